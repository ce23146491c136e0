{{/* How many pods share an account's limit, when the account does not say: empty if that is not known. */}}
{{- define "spillway.podCount" -}}
{{- with .Values.autoscaling.maxReplicas | default .Values.replicaCount -}}
{{- int64 . -}}
{{- end -}}
{{- end }}

{{/*
The sidecar's configuration file. toYaml goes by way of JSON, which writes a whole number in digits up to 1e21; a
number printed directly would come out as 1e+06.
*/}}
{{- define "spillway.config" -}}
{{- include "spillway.checkConfig" . -}}
{{- $config := deepCopy .Values.config -}}
{{- $pods := include "spillway.podCount" . -}}
{{- range $name, $account := $config.accounts -}}
{{- if not $account.limit.pods -}}
{{- if not $pods -}}
{{- fail (printf "spillway: nothing says how many pods share the limit of account %s: set replicaCount (or autoscaling.maxReplicas) to the most pods that may run at a time, or config.accounts.%s.limit.pods" $name $name) -}}
{{- end -}}
{{- $_ := set $account.limit "pods" (int64 $pods) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* What the schema cannot see: one value against another. */}}
{{- define "spillway.checkConfig" -}}
{{- if not .Values.config.accounts -}}
{{- fail "spillway: config.accounts is empty: name at least one account (values.yaml shows one in a comment)" -}}
{{- end -}}
{{- $mounted := dict -}}
{{- range concat .Values.credentials .Values.files -}}
{{- if hasKey $mounted .mountPath -}}
{{- fail (printf "spillway: two entries of credentials and files are mounted at %s: give each a mountPath of its own" .mountPath) -}}
{{- end -}}
{{- $_ := set $mounted .mountPath true -}}
{{- end -}}
{{- range $name, $account := .Values.config.accounts -}}
{{- range list "api_key_file" "username_file" "password_file" -}}
{{- with index $account.credentials . -}}
{{- if and (hasPrefix "/etc/spillway/secrets/" .) (not (hasKey $mounted .)) -}}
{{- fail (printf "spillway: account %s reads %s, which nothing mounts: add an entry to credentials with this mountPath" $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $account.ca_file -}}
{{- if and (hasPrefix "/etc/spillway/" .) (not (hasKey $mounted .)) -}}
{{- fail (printf "spillway: account %s reads %s, which nothing mounts: add an entry to files with this mountPath" $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range dig "fallback" "rates" list .Values.config -}}
{{- if and (hasPrefix "/etc/spillway/" .file) (not (hasKey $mounted .file)) -}}
{{- fail (printf "spillway: config.fallback.rates names %s, which nothing mounts: add an entry to files with this mountPath" .file) -}}
{{- end -}}
{{- end -}}
{{- if and (has (dig "loop" "backend" "auto" .Values.config) (list "io_uring" "io-uring")) (eq .Values.seccompProfile.type "RuntimeDefault") -}}
{{- fail "spillway: config.loop.backend is io_uring, which seccompProfile RuntimeDefault forbids: use auto, or a Localhost profile that allows io_uring" -}}
{{- end -}}
{{- end }}
