{{/*
What the app's container needs, as its keys env and volumeMounts. A container that has those keys already takes
spillway.appEnv and spillway.appMounts as items of them.
*/}}
{{- define "spillway.app" -}}
env:
  {{- include "spillway.appEnv" . | nindent 2 }}
volumeMounts:
  {{- include "spillway.appMounts" . | nindent 2 }}
{{- end }}

{{/*
Items of the app container's volumeMounts. pub is read-only: a private read-only mapping alone protects nothing,
since whoever may open the file read-write can map it so.
*/}}
{{- define "spillway.appMounts" -}}
- {name: spillway-pub, mountPath: /run/spillway/pub, readOnly: true}
- {name: spillway-rw, mountPath: /run/spillway/rw}
{{- end }}

{{/* Items of the app container's env. The token is asked for on loopback only. */}}
{{- define "spillway.appEnv" -}}
- {name: SPILLWAY_SOCKET, value: /run/spillway/pub/quote.sock}
{{- with (.Values.config.listen).quote }}
- {name: SPILLWAY_URL, value: {{ printf "http://%s" . | quote }}}
- {name: SPILLWAY_TOKEN_FILE, value: /run/spillway/pub/token}
{{- end }}
{{- end }}
