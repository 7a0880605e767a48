{{/* Deny all but the flows of docs/guides/network.md. */}}
{{- define "service-base.networkPolicy" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{- $policy := .Values.networkPolicy -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "service-base.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- if or $facts.http $policy.monitoring.from }}
  ingress:
    {{- if $facts.http }}
    {{- include "service-base.httpIngress" . | nindent 4 }}
    {{- end }}
    {{- with $policy.monitoring.from }}
    - from:
        {{- toYaml . | nindent 8 }}
      ports:
        - port: 9090
    {{- end }}
  {{- end }}
  egress:
    # DNS
    - ports:
        - port: 53
          protocol: UDP
        - port: 53
          protocol: TCP
    # Kafka
    {{- include "service-base.kafkaPeer" (list . "") | nindent 4 }}
    {{- if ne $facts.workload "Job" }}
    # Postgres
    {{- include "service-base.peer" $policy.postgres | nindent 4 }}
    {{- with include "service-base.collectorRule" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- if $facts.objectStore }}
    # object store
    {{- include "service-base.objectStorePeer" . | nindent 4 }}
    {{- end }}
    {{- if $facts.callsKubernetes }}
    # Kubernetes API server
    {{- include "service-base.peer" $policy.kubernetes | nindent 4 }}
    {{- end }}
    {{- range $facts.calls }}
    # {{ . }}
    - to:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: {{ . }}
              app.kubernetes.io/part-of: drivetrain
      ports:
        - port: 8080
    {{- end }}
{{- end -}}

{{/* Read ports are for the gateway; the gateway's own is for people: values say from where. */}}
{{- define "service-base.httpIngress" -}}
{{- if hasKey .Values.networkPolicy "people" -}}
- ports:
    - port: 8080
  {{- with .Values.networkPolicy.people.from }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else -}}
- from:
    - podSelector:
        matchLabels:
          app.kubernetes.io/name: gateway
          app.kubernetes.io/part-of: drivetrain
  ports:
    - port: 8080
{{- end -}}
{{- end -}}

{{/* Kafka: the ports of the values, and those in the addresses of the brokers. */}}
{{- define "service-base.kafkaPeer" -}}
{{- $root := index . 0 -}}
{{- $policy := $root.Values.networkPolicy.kafka -}}
{{- $addresses := index . 1 | default (include "service-base.shared" $root | fromYaml).kafka.bootstrapServers -}}
{{- $ports := $policy.ports -}}
{{- range splitList "," $addresses -}}
{{- with include "service-base.namedPort" (trim .) }}{{ $ports = append $ports . }}{{ end -}}
{{- end -}}
{{- include "service-base.peer" (dict "ports" $ports "to" $policy.to) -}}
{{- end -}}

{{/* The object store: the ports of the values, and that of its endpoint. */}}
{{- define "service-base.objectStorePeer" -}}
{{- $policy := .Values.networkPolicy.objectStore -}}
{{- $endpoint := (include "service-base.shared" . | fromYaml).objectStore.endpointUrl -}}
{{- $ports := $policy.ports -}}
{{- if $endpoint -}}
{{- $ports = append $ports (include "service-base.portOf" $endpoint) -}}
{{- end -}}
{{- include "service-base.peer" (dict "ports" $ports "to" $policy.to) -}}
{{- end -}}

{{/* The port of an address of HTTP: the one that it names, else that of its scheme. */}}
{{- define "service-base.portOf" -}}
{{- include "service-base.namedPort" . | default (ternary "80" "443" (hasPrefix "http://" (lower .))) -}}
{{- end -}}

{{/* The port after the host, of `[SCHEME://][USER@]HOST[:PORT][/...]`; an IPv6 address is in brackets. */}}
{{- define "service-base.namedPort" -}}
{{- $authority := regexReplaceAll "^[A-Za-z][A-Za-z0-9+.-]*://" . "" | regexFind "^[^/?#]*" -}}
{{- regexFind "^([^:]*|\\[.*\\]):[0-9]+$" (regexReplaceAll "^.*@" $authority "") | regexFind "[0-9]+$" -}}
{{- end -}}

{{/* The collector of spans, where there is one. */}}
{{- define "service-base.collectorRule" -}}
{{- with (include "service-base.shared" . | fromYaml).tracing.endpoint -}}
# collector of spans
{{ include "service-base.peer" (dict "ports" (list (include "service-base.portOf" .))) }}
{{- end -}}
{{- end -}}

{{- define "service-base.peer" -}}
- ports:
    {{- $ports := list }}
    {{- range .ports }}{{ $ports = append $ports (int .) }}{{ end }}
    {{- range uniq $ports }}
    - port: {{ . }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
