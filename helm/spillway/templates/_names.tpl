{{/* Everything here works in this chart's own context; another chart passes .Subcharts.spillway (or its alias). */}}

{{- define "spillway.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 56 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 56 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "spillway.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "spillway.selectorLabels" . }}
{{- end }}

{{- define "spillway.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "spillway.configMapName" -}}
{{- .Values.existingConfigMap.name | default (printf "%s-config" (include "spillway.fullname" .)) -}}
{{- end }}

{{/* Which pods a NetworkPolicy or a PodMonitor speaks of: called with (list context selector "the.value"). */}}
{{- define "spillway.podSelector" -}}
{{- $context := index . 0 -}}
{{- if index . 1 -}}
matchLabels:
  {{- toYaml (index . 1) | nindent 2 }}
{{- else if $context.Values.demo.enabled -}}
matchLabels:
  {{- include "spillway.selectorLabels" $context | nindent 2 }}
  app.kubernetes.io/component: demo
{{- else -}}
{{- fail (printf "spillway: %s is empty: give the labels of your pods" (index . 2)) -}}
{{- end -}}
{{- end }}
