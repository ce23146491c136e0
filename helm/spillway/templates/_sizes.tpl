{{/*
Bytes of the two segment files, from the counts in config.segment and the sidecar's defaults for them. This is the
only place that knows: `spillwayd --config FILE --print-segment-bytes` prints the true sizes, and these formulas must
never give less.
*/}}

{{/* pub: 320 KiB of header, accounts, limiters and policy; two halves of rate records (64 bytes each) and of index words
(8 bytes each, a power of two of at least two words for each record); learned rates (64 bytes each, at most one for eight
records, at least 128). */}}
{{- define "spillway.pubBytes" -}}
{{- $records := dig "segment" "rate_records" 65536 .Values.config | int64 -}}
{{- $words := 1024 -}}
{{- range until 20 }}{{- if lt (int64 $words) (mul 2 $records) }}{{- $words = mul 2 $words }}{{- end }}{{- end -}}
{{- add 327680 (mul 136 $records) (mul 16 $words) -}}
{{- end }}

{{/* rw: 64 KiB of header, limiter words and permits; 2,056 bytes for each flag cell, 2,176 for each process slot. */}}
{{- define "spillway.rwBytes" -}}
{{- $cells := dig "segment" "cells" 2048 .Values.config | int64 -}}
{{- $slots := dig "segment" "slots" 256 .Values.config | int64 -}}
{{- add 65536 (mul $cells 2056) (mul $slots 2176) -}}
{{- end }}

{{/* A volume holds two files while a new layout replaces the old, and 1 MiB for sockets, token and rounding. */}}
{{- define "spillway.volumeMi" -}}
{{- $bytes := int64 . -}}
{{- add 1 (div (add (mul 2 $bytes) 1048575) 1048576) -}}
{{- end }}

{{/* Pages of a memory volume are charged to the container that first touches them: the sidecar. */}}
{{- define "spillway.memoryNeededMi" -}}
{{- $pub := include "spillway.volumeMi" (include "spillway.pubBytes" .) -}}
{{- $rw := include "spillway.volumeMi" (include "spillway.rwBytes" .) -}}
{{- add (int64 .Values.resources.processMemoryMi) (int64 $pub) (int64 $rw) -}}
{{- end }}

{{- define "spillway.memoryMi" -}}
{{- $needed := include "spillway.memoryNeededMi" . | int64 -}}
{{- $given := int64 (.Values.resources.memoryLimitMi | default $needed) -}}
{{- if lt $given $needed -}}
{{- fail (printf "spillway: resources.memoryLimitMi %d is below the %d MiB of process (%d) and twice the segment: leave it out, or make config.segment smaller" $given $needed (int64 .Values.resources.processMemoryMi)) -}}
{{- end -}}
{{- $given -}}
{{- end }}
