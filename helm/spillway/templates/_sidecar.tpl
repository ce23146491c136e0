{{/*
All that the pod's spec needs, as its keys. A pod that has one of those keys already takes the parts as items instead:
spillway.podSecurity, spillway.sidecar, spillway.volumes.
*/}}
{{- define "spillway.pod" -}}
terminationGracePeriodSeconds: {{ int64 .Values.terminationGracePeriodSeconds }}
{{- if .Values.app.shareProcessNamespace }}
shareProcessNamespace: true
{{- end }}
securityContext:
  {{- include "spillway.podSecurity" . | nindent 2 }}
initContainers:
  {{- include "spillway.sidecar" . | nindent 2 }}
volumes:
  {{- include "spillway.volumes" . | nindent 2 }}
{{- end }}

{{/*
The sidecar as an item of a pod's initContainers: a native sidecar. With its startup probe the app starts only when
the segment is there; it ends after the app, and it does not keep a Job from completing.
There is no readiness probe: with the sidecar down the app still decides by the segment, so the pod stays in service.
*/}}
{{- define "spillway.sidecar" -}}
{{- include "spillway.checkPod" . -}}
{{- if and .Values.rates.fetch.url (not .Values.rates.fetch.schedule) -}}
- name: spillway-rates
  {{- include "spillway.fetch" . | nindent 2 }}
  volumeMounts:
    - {name: spillway-rates, mountPath: {{ include "spillway.ratesDir" . }}}
{{ end -}}
- name: spillway
  image: {{ include "spillway.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args: ["--config", "/etc/spillway/spillway.yaml"]
  ports:
    - name: spillway-admin
      containerPort: {{ include "spillway.adminPort" . }}
  startupProbe:
    httpGet: {path: /readyz, port: spillway-admin}
    periodSeconds: 1
    failureThreshold: 120
  livenessProbe:
    httpGet: {path: /healthz, port: spillway-admin}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  resources:
    requests:
      cpu: {{ .Values.resources.cpuRequest }}
      memory: {{ include "spillway.memoryMi" . }}Mi
    limits:
      memory: {{ include "spillway.memoryMi" . }}Mi
  securityContext:
    {{- include "spillway.containerSecurity" (list .Values.uid .Values.sharedGid .Values.seccompProfile) | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: spillway-config, mountPath: /etc/spillway, readOnly: true}
    - {name: spillway-pub, mountPath: /run/spillway/pub}
    - {name: spillway-rw, mountPath: /run/spillway/rw}
    - {name: spillway-store, mountPath: /var/lib/spillway}
    {{- if include "spillway.hasRates" . }}
    - {name: spillway-rates, mountPath: {{ include "spillway.ratesDir" . }}, readOnly: true}
    {{- end }}
    {{- if .Values.sink.volume }}
    - {name: spillway-sink, mountPath: {{ include "spillway.sinkDir" . }}}
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Of every container: called with (list uid gid seccompProfile). */}}
{{- define "spillway.containerSecurity" -}}
runAsUser: {{ int64 (index . 0) }}
runAsGroup: {{ int64 (index . 1) }}
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
seccompProfile:
  {{- toYaml (index . 2) | nindent 2 }}
{{- end }}

{{/*
The rest of a container that fetches a rate table: under another name first, then renamed, so that a reader never sees
half of one; what it replaces goes.
*/}}
{{- define "spillway.fetch" -}}
image: {{ .Values.rates.fetch.image | quote }}
command: [/bin/sh, -euc]
args:
  - |
    dated() { echo "$1" | sed "$(date -u +'s/%%Y/%Y/g; s/%%m/%m/g; s/%%d/%d/g')"; }
    file=$(dated "$RATES_FILE")
    curl -fsSL ${PROXY_USER:+--proxy-user "$PROXY_USER"} --proto '=https' --retry 5 --retry-all-errors --max-time 300 -o "$RATES_DIR/.fetched" "$(dated "$RATES_URL")"
    [ -z "$RATES_SHA256" ] || echo "$RATES_SHA256  $RATES_DIR/.fetched" | sha256sum -c -
    mv "$RATES_DIR/.fetched" "$RATES_DIR/$file"
    for old in "$RATES_DIR"/*.csv "$RATES_DIR"/*.csv.gz; do [ "$old" = "$RATES_DIR/$file" ] || rm -f "$old"; done
env:
  - {name: RATES_URL, value: {{ .Values.rates.fetch.url | quote }}}
  - {name: RATES_FILE, value: {{ .Values.rates.fetch.file | quote }}}
  - {name: RATES_SHA256, value: {{ .Values.rates.fetch.sha256 | quote }}}
  - {name: RATES_DIR, value: {{ include "spillway.ratesDir" . }}}
  {{- with .Values.egressProxy.url }}
  - {name: https_proxy, value: {{ . | quote }}}
  {{- with $.Values.egressProxy.secretName }}
  - {name: PROXY_USER, valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.egressProxy.key | quote }}}}}
  {{- end }}
  {{- end }}
securityContext:
  {{- include "spillway.containerSecurity" (list .Values.uid .Values.sharedGid (dict "type" "RuntimeDefault")) | nindent 2 }}
resources:
  requests: {cpu: 50m, memory: 32Mi}
  limits: {memory: 64Mi}
{{- end }}

{{- define "spillway.adminPort" -}}
{{- dig "listen" "admin" "0.0.0.0:9090" .Values.config | splitList ":" | last -}}
{{- end }}

{{/* Items of the pod's volumes. */}}
{{- define "spillway.volumes" -}}
- name: spillway-pub
  emptyDir:
    medium: Memory
    sizeLimit: {{ include "spillway.volumeMi" (include "spillway.pubBytes" .) }}Mi
- name: spillway-rw
  emptyDir:
    medium: Memory
    sizeLimit: {{ include "spillway.volumeMi" (include "spillway.rwBytes" .) }}Mi
{{- /* One projected volume: a Secret mounted inside a ConfigMap's read-only directory has no place to be mounted at,
and a subPath would never see a rotated key or a changed configuration. */}}
- name: spillway-config
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ include "spillway.configMapName" . }}
          items:
            - {key: {{ ternary .Values.existingConfigMap.key "spillway.yaml" (ne .Values.existingConfigMap.name "") | quote }}, path: spillway.yaml}
      {{- range .Values.credentials }}
      - secret:
          name: {{ .secretName }}
          items:
            - {key: {{ .key | quote }}, path: {{ trimPrefix "/etc/spillway/" .mountPath | quote }}}
      {{- end }}
      {{- if and .Values.egressProxy.url .Values.egressProxy.secretName }}
      - secret:
          name: {{ .Values.egressProxy.secretName }}
          items:
            - {key: {{ .Values.egressProxy.key | quote }}, path: secrets/egress-proxy}
      {{- end }}
      {{- range .Values.files }}
      - configMap:
          name: {{ .configMapName }}
          items:
            - {key: {{ .key | quote }}, path: {{ trimPrefix "/etc/spillway/" .mountPath | quote }}}
      {{- end }}
{{- with .Values.store }}
{{- if eq .kind "emptyDir" }}
- name: spillway-store
  emptyDir:
    sizeLimit: {{ .size }}
{{- else if eq .kind "ephemeral" }}
- name: spillway-store
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests:
            storage: {{ .size }}
{{- else if eq .kind "claim" }}
- name: spillway-store
  persistentVolumeClaim:
    claimName: {{ required "spillway: store.kind is claim: name the claim in store.claimName" .claimName }}
{{- end }}
{{- end }}
{{- if .Values.rates.configMapName }}
- name: spillway-rates
  configMap:
    name: {{ .Values.rates.configMapName }}
    defaultMode: 0444
{{- else if .Values.rates.volume }}
- name: spillway-rates
  {{- toYaml .Values.rates.volume | nindent 2 }}
{{- else if .Values.rates.fetch.url }}
- name: spillway-rates
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
{{- with .Values.sink.volume }}
- name: spillway-sink
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The pod's securityContext: the group by which app and sidecar share the segment, and nothing beyond. */}}
{{- define "spillway.podSecurity" -}}
fsGroup: {{ int64 .Values.sharedGid }}
fsGroupChangePolicy: OnRootMismatch
supplementalGroups: [{{ int64 .Values.sharedGid }}]
{{- end }}

{{/* The pod's annotations: where the metrics are, and whether a changed configuration rolls the pods. */}}
{{- define "spillway.podAnnotations" -}}
{{- if and .Values.rollOnConfigChange (not .Values.existingConfigMap.name) -}}
checksum/spillway-config: {{ include "spillway.config" . | sha256sum }}
{{ end -}}
{{- /* What is scraped twice is counted twice. */ -}}
{{- if not .Values.monitoring.podMonitor.enabled -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ include "spillway.adminPort" . | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}
