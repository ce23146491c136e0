{{/*
The sidecar as an item of a pod's initContainers: a native sidecar. With its startup probe the app starts only when
the segment is there; it ends after the app, and it does not keep a Job from completing.
There is no readiness probe: with the sidecar down the app still decides by the segment, so the pod stays in service.
*/}}
{{- define "spillway.sidecar" -}}
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
    runAsUser: {{ int64 .Values.uid }}
    runAsGroup: {{ int64 .Values.sharedGid }}
    runAsNonRoot: true
    readOnlyRootFilesystem: true
    allowPrivilegeEscalation: false
    privileged: false
    capabilities:
      drop: [ALL]
    seccompProfile:
      {{- toYaml .Values.seccompProfile | nindent 6 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: spillway-config, mountPath: /etc/spillway, readOnly: true}
    - {name: spillway-pub, mountPath: /run/spillway/pub}
    - {name: spillway-rw, mountPath: /run/spillway/rw}
    - {name: spillway-store, mountPath: /var/lib/spillway}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
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
and a subPath would never see a rotated key. */}}
- name: spillway-config
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ include "spillway.fullname" . }}-config
      {{- range .Values.credentials }}
      - secret:
          name: {{ .secretName }}
          items:
            - {key: {{ .key | quote }}, path: {{ trimPrefix "/etc/spillway/" .mountPath | quote }}}
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
{{- end }}

{{/* The pod's securityContext: the group by which app and sidecar share the segment, and nothing beyond. */}}
{{- define "spillway.podSecurity" -}}
fsGroup: {{ int64 .Values.sharedGid }}
fsGroupChangePolicy: OnRootMismatch
supplementalGroups: [{{ int64 .Values.sharedGid }}]
{{- end }}

{{/* The pod's annotations: a changed configuration rolls the pods; where the metrics are. */}}
{{- define "spillway.podAnnotations" -}}
checksum/spillway-config: {{ include "spillway.config" . | sha256sum }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ include "spillway.adminPort" . | quote }}
prometheus.io/path: /metrics
{{- end }}
