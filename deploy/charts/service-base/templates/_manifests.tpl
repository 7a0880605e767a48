{{/* All objects that every service has. */}}
{{- define "service-base.manifests" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{ include "service-base.workload" . }}
---
{{ include "service-base.serviceAccount" . }}
{{- if or $facts.http (eq $facts.workload "StatefulSet") }}
---
{{ include "service-base.service" . }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
---
{{ include "service-base.networkPolicy" . }}
{{- end }}
{{- if (.Values.podDisruptionBudget | default dict).enabled }}
---
{{ include "service-base.podDisruptionBudget" . }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas (%d) is above autoscaling.maxReplicas (%d): lower the one or raise the other" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- if (.Values.autoscaling | default dict).enabled }}
---
{{ include "service-base.autoscaling" . }}
{{- end }}
{{- if .Values.podMonitor.enabled }}
---
{{ include "service-base.podMonitor" . }}
{{- end }}
{{- end -}}

{{- define "service-base.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "service-base.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/* The HTTP port; a service without one has the headless Service that its StatefulSet names. */}}
{{- define "service-base.service" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
  {{- with (.Values.service | default dict).annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if $facts.http }}
  type: {{ (.Values.service | default dict).type | default "ClusterIP" }}
  {{- else }}
  clusterIP: None
  {{- end }}
  selector:
    {{- include "service-base.selector" . | nindent 4 }}
  ports:
    {{- if $facts.http }}
    - name: http
      port: 8080
      targetPort: http
    {{- else }}
    - name: ops
      port: 9090
      targetPort: ops
    {{- end }}
{{- end -}}

{{- define "service-base.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "service-base.selector" . | nindent 6 }}
{{- end -}}

{{- define "service-base.podMonitor" -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.monitoring.from) -}}
{{- fail "networkPolicy.monitoring.from is empty: say from where Prometheus reads /metrics, or podMonitor has no effect" -}}
{{- end -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- toYaml (merge (include "service-base.labels" . | fromYaml) .Values.podMonitor.labels) | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "service-base.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - port: ops
      path: /metrics
      interval: {{ .Values.podMonitor.interval }}
      # The labels that the alerts and dashboards expect (deploy/alerts/README.md).
      relabelings:
        - {targetLabel: job, replacement: drivetrain}
        - {targetLabel: service, replacement: {{ .Chart.Name }}}
{{- end -}}
