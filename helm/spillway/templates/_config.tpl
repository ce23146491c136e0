{{/* How many pods share an account's limit, when the account does not say: empty if that is not known. */}}
{{- define "spillway.podCount" -}}
{{- with .Values.autoscaling.maxReplicas | default .Values.replicaCount -}}
{{- int64 . -}}
{{- end -}}
{{- end }}

{{- define "spillway.ratesDir" -}}/var/lib/spillway-rates{{- end }}
{{- define "spillway.sinkDir" -}}/var/lib/spillway-sink{{- end }}

{{/* "yes" when something fills a directory of rate tables. */}}
{{- define "spillway.hasRates" -}}
{{- if or .Values.rates.configMapName .Values.rates.volume .Values.rates.fetch.url }}yes{{ end -}}
{{- end }}

{{/*
The sidecar's configuration file. toYaml goes by way of JSON, which writes a whole number in digits up to 1e21; a
number printed directly would come out as 1e+06.
*/}}
{{- define "spillway.config" -}}
{{- include "spillway.checkConfig" . -}}
{{- $config := deepCopy .Values.config -}}
{{- /* helm reads YAML 1.1, in which on and off are true and false. */ -}}
{{- with $config.reconcile }}{{- if kindIs "bool" .filing }}{{- $_ := set . "filing" (ternary "on" "off" .filing) }}{{- end }}{{- end -}}
{{- $pods := include "spillway.podCount" . -}}
{{- $proxy := .Values.egressProxy -}}
{{- range $name, $account := $config.accounts -}}
{{- range prepend ($account.limiters | default list) $account.limit }}{{- if kindIs "bool" .mode }}{{- $_ := set . "mode" "off" }}{{- end }}{{- end -}}
{{- if not $account.limit.pods -}}
{{- if not $pods -}}
{{- fail (printf "spillway: nothing says how many pods share the limit of account %s: set replicaCount (or autoscaling.maxReplicas) to the most pods that may run at a time, or config.accounts.%s.limit.pods" $name $name) -}}
{{- end -}}
{{- $_ := set $account.limit "pods" (int64 $pods) -}}
{{- end -}}
{{- if and $proxy.url (not $account.proxy) -}}
{{- $_ := set $account "proxy" $proxy.url -}}
{{- if $proxy.secretName -}}
{{- $_ := set $account "proxy_credentials_file" "/etc/spillway/secrets/egress-proxy" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "spillway.hasRates" . -}}
{{- $_ := set $config "fallback" (merge (dict "rates_dir" (include "spillway.ratesDir" .)) ($config.fallback | default dict)) -}}
{{- end -}}
{{- if .Values.sink.volume -}}
{{- $_ := set $config "store" (merge (dict "sink" (dict "file" (include "spillway.sinkDir" .))) ($config.store | default dict)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/* What the schema cannot see: one value against another. */}}
{{- define "spillway.checkConfig" -}}
{{- if not .Values.config.accounts -}}
{{- fail "spillway: config.accounts is empty: name at least one account (README.md shows one), or give existingConfigMap.name" -}}
{{- end -}}
{{- $doors := dict "listen.admin" (dig "listen" "admin" "" .Values.config) "listen.quote" (dig "listen" "quote" "" .Values.config) "listen.control" (dig "listen" "control" "" .Values.config) -}}
{{- range $name, $account := .Values.config.accounts }}{{- $_ := set $doors (printf "accounts.%s.listen" $name) $account.listen }}{{- end -}}
{{- $ports := dict -}}
{{- range $door, $address := $doors }}{{- with $address -}}
{{- $port := splitList ":" . | last -}}
{{- if gt (int $port) 65535 -}}
{{- fail (printf "spillway: config.%s has port %s, and ports end at 65535" $door $port) -}}
{{- end -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "spillway: config.%s and config.%s have the same port %s: give each its own" (get $ports $port) $door $port) -}}
{{- end -}}
{{- $_ := set $ports $port $door -}}
{{- end }}{{- end -}}
{{- $mounted := dict -}}
{{- if and .Values.egressProxy.url .Values.egressProxy.secretName }}{{- $_ := set $mounted "/etc/spillway/secrets/egress-proxy" true }}{{- end -}}
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
{{- if and (include "spillway.hasRates" .) (dig "fallback" "rates_dir" "" .Values.config) -}}
{{- fail "spillway: config.fallback.rates_dir is the chart's where rates is used: leave it out, or mount the directory yourself by extraVolumeMounts" -}}
{{- end -}}
{{- if and .Values.sink.volume (dig "store" "sink" "file" "" .Values.config) -}}
{{- fail "spillway: config.store.sink.file is the chart's where sink.volume is used: leave it out, or mount the directory yourself by extraVolumeMounts" -}}
{{- end -}}
{{- end }}

{{/* A policy that would shut the way to a provider. */}}
{{- define "spillway.checkEgress" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.egressPorts }}{{- $ports = append $ports (toString (int64 .)) }}{{- end -}}
{{- range $name, $account := .Values.config.accounts -}}
{{- $way := $account.proxy | default $.Values.egressProxy.url | default $account.url | default "https://" -}}
{{- $port := regexFind ":[0-9]+$" $way | trimPrefix ":" | default (ternary "80" "443" (hasPrefix "http://" $way)) -}}
{{- if not (has $port $ports) -}}
{{- fail (printf "spillway: networkPolicy.egressPorts lacks port %s, by which account %s goes out (%s): add it" $port $name $way) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The same for what is in the pod, whoever wrote the configuration. */}}
{{- define "spillway.checkPod" -}}
{{- if and .Values.existingConfigMap.name .Values.config.accounts -}}
{{- fail (printf "spillway: config.accounts is not read where existingConfigMap.name (%s) is given: leave one of the two out" .Values.existingConfigMap.name) -}}
{{- end -}}
{{- if and (has (dig "loop" "backend" "auto" .Values.config) (list "io_uring" "io-uring")) (eq .Values.seccompProfile.type "RuntimeDefault") -}}
{{- fail "spillway: config.loop.backend is io_uring, which seccompProfile RuntimeDefault forbids: use auto, or a Localhost profile that allows io_uring" -}}
{{- end -}}
{{- if and .Values.app.shareProcessNamespace (not .Values.app.uid) -}}
{{- fail "spillway: app.shareProcessNamespace needs app.uid: in a shared process namespace the app must not run as the sidecar's user, so say which it is" -}}
{{- end -}}
{{- if and .Values.app.uid (eq (int64 .Values.app.uid) (int64 .Values.uid)) -}}
{{- if .Values.app.shareProcessNamespace -}}
{{- fail "spillway: app.uid equals uid in a shared process namespace: the app could read the sidecar's memory and with it the provider's credentials; give the app another user" -}}
{{- end -}}
{{- fail "spillway: app.uid equals uid: the app must not run as the sidecar's user, or it could write what is read-only to it" -}}
{{- end -}}
{{- $rates := .Values.rates -}}
{{- if and $rates.configMapName (or $rates.volume $rates.fetch.url) -}}
{{- fail "spillway: rates.configMapName stands alone: take it, or rates.volume, or rates.fetch" -}}
{{- end -}}
{{- if and $rates.fetch.url (not $rates.fetch.file) -}}
{{- fail "spillway: rates.fetch.url needs rates.fetch.file: the name ends in the day of the rates, as vendor-%Y-%m-%d.csv.gz" -}}
{{- end -}}
{{- if and $rates.fetch.schedule (not (dig "persistentVolumeClaim" "claimName" "" $rates.volume)) -}}
{{- fail "spillway: rates.fetch.schedule needs rates.volume to be a persistentVolumeClaim: the job fetches into it, and the pods read it" -}}
{{- end -}}
{{- if and $rates.fetch.url (not $rates.fetch.schedule) $rates.volume -}}
{{- fail "spillway: rates.fetch without a schedule fills a directory of the pod's own: leave rates.volume empty, or give a schedule" -}}
{{- end -}}
{{- $drain := dig "drain" "10s" .Values.config -}}
{{- $drainS := int64 (regexFind "^[0-9]+" $drain) -}}
{{- if hasSuffix "ms" $drain }}{{- $drainS = div $drainS 1000 }}{{- else if not (hasSuffix "s" $drain) }}{{- $drainS = mul $drainS 60 }}{{- end -}}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) (add $drainS 30) -}}
{{- fail (printf "spillway: terminationGracePeriodSeconds %d leaves no room for the app to end before the sidecar drains (config.drain %s): give at least %d" (int64 .Values.terminationGracePeriodSeconds) $drain (add $drainS 30)) -}}
{{- end -}}
{{- end }}
