{{- define "edge.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "edge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: edge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: {{ include "edge.fullname" . }}
{{- end }}

{{- /* Labels that select pods. They cannot be changed later. */}}
{{- define "edge.node" -}}
app.kubernetes.io/name: edge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "edge.shard" -}}
app.kubernetes.io/name: edge
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: shard
{{- end }}

{{- /* All nodes of the namespace, as a PoP may consist of several releases. */}}
{{- define "edge.anyNode" -}}
podSelector:
  matchLabels:
    app.kubernetes.io/name: edge
    app.kubernetes.io/component: node
{{- end }}

{{- define "edge.secret" -}}
{{- .Values.existingSecret | default (printf "%s-keys" (include "edge.fullname" .)) -}}
{{- end }}

{{- define "edge.shardPort" -}}
{{- if eq .Values.shards.type "redis" }}6379{{ else }}11211{{ end -}}
{{- end }}

{{- /* Each shard needs a name of its own: a Service in front of several would be one shard with several counters. */}}
{{- define "edge.shardAddresses" -}}
{{- if eq .Values.shards.type "given" -}}
{{- join "," .Values.shards.addresses -}}
{{- else -}}
{{- $name := printf "%s-%s" (include "edge.fullname" .) .Values.shards.type -}}
{{- $format := "%[1]s-%[2]d.%[1]s:11211" -}}
{{- if eq .Values.shards.type "redis" -}}
{{- $format = "redis://%[1]s-%[2]d.%[1]s:6379?password_file=/etc/edge/keys/redis-password" -}}
{{- end -}}
{{- $all := list -}}
{{- range $i := until (int .Values.shards.replicas) -}}
{{- $all = append $all (printf $format $name $i) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}
{{- end }}

{{- define "edge.spread" -}}
{{- $root := index . 0 -}}
{{- $labels := index . 1 -}}
{{- $constraints := list -}}
{{- range $key, $when := dict "topology.kubernetes.io/zone" $root.Values.spread.zones "kubernetes.io/hostname" $root.Values.spread.hosts -}}
{{- if $when -}}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" $when "labelSelector" (dict "matchLabels" $labels)) -}}
{{- end -}}
{{- end -}}
{{- with $constraints -}}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- /* A container without privileges, with a read-only root. */}}
{{- define "edge.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "edge.asked" -}}
{{- if or .Values.check.enabled .Values.spop.enabled .Values.envoy.enabled }}true{{ end -}}
{{- end }}

{{- /* Contradictions that the schema cannot find. */}}
{{- define "edge.check" -}}
{{- $v := .Values -}}
{{- $serves := or $v.origin (index $v.settings "host_origin") -}}
{{- $most := $v.autoscaling.enabled | ternary $v.autoscaling.maxReplicas $v.replicas | int -}}
{{- if not (or $serves (include "edge.asked" .)) -}}
{{- fail "set origin to the URL of what nodes protect, or enable check, spop or envoy" -}}
{{- else if and $v.envoy.enabled (or $serves $v.check.enabled $v.spop.enabled) -}}
{{- fail "envoy.enabled: edge-envoy serves only Envoy; install a second release for origin, check and spop, with the same existingSecret and shards, and join" -}}
{{- else if and (or $v.check.enabled $v.spop.enabled) (not $v.trustedProxies) -}}
{{- fail "trustedProxies is empty: check and spop answer only proxies from these networks, such as [10.244.0.0/16]" -}}
{{- else if and (include "edge.asked" .) $v.networkPolicy.enabled (not $v.networkPolicy.askers) -}}
{{- fail "networkPolicy.askers is empty: name the pods that ask, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: traefik}}}]; all others could count requests for any client" -}}
{{- else if and $v.tlsSecret (not $serves) -}}
{{- fail "tlsSecret is for clients: it needs origin" -}}
{{- else if gt $most (int $v.maxNodes) -}}
{{- fail (printf "there may be %d nodes but maxNodes is %v: raise maxNodes, and see docs/kubernetes.md" $most $v.maxNodes) -}}
{{- else if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) $most) -}}
{{- fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas" -}}
{{- else if and (eq $v.shards.type "given") (not $v.shards.addresses) -}}
{{- fail "shards.addresses is empty: shards of type given need their addresses" -}}
{{- end -}}
{{- range $name := list "name" "pop" "rules" "listen" "tls_listen" "tls_cert" "tls_key" "metrics_listen" "origin" "check_listen" "spop_listen" "secret" "secret_file" "shard" "shard_listen" "gossip_listen" "gossip_advertise" "gossip_key" "gossip_key_file" "join" "max_nodes" "trusted_proxy" "drain_timeout" -}}
{{- if hasKey $v.settings $name -}}
{{- fail (printf "settings.%s: the chart sets it from its other values" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
