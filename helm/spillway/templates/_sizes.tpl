{{/*
Bytes of the two segment files, from the counts in config.segment and the sidecar's defaults for them. This is the
only place that knows: `spillwayd --config FILE --print-segment-bytes` prints the true sizes, and these formulas must
never give less.
*/}}

{{/* pub: 64 KiB of header, accounts and selectors, and two halves of rate records (64 bytes and 16 of index each). */}}
{{- define "spillway.pubBytes" -}}
{{- $records := dig "segment" "rate_records" 65536 .Values.config | int64 -}}
{{- add 65536 (mul 2 $records 80) -}}
{{- end }}

{{/* rw: 256 KiB of header and limiter words, 2 KiB for each flag cell, 128 bytes for each process slot. */}}
{{- define "spillway.rwBytes" -}}
{{- $cells := dig "segment" "cells" 2048 .Values.config | int64 -}}
{{- $slots := dig "segment" "slots" 256 .Values.config | int64 -}}
{{- add 262144 (mul $cells 2048) (mul $slots 128) -}}
{{- end }}

{{/* A volume holds two files while a new layout replaces the old, and 1 MiB for sockets, token and rounding. */}}
{{- define "spillway.volumeMi" -}}
{{- $bytes := int64 . -}}
{{- add 1 (div (add (mul 2 $bytes) 1048575) 1048576) -}}
{{- end }}

{{/* Pages of a memory volume are charged to the container that first touches them: the sidecar. */}}
{{- define "spillway.memoryMi" -}}
{{- $pub := include "spillway.volumeMi" (include "spillway.pubBytes" .) -}}
{{- $rw := include "spillway.volumeMi" (include "spillway.rwBytes" .) -}}
{{- add (int64 .Values.resources.processMemoryMi) (int64 $pub) (int64 $rw) -}}
{{- end }}
