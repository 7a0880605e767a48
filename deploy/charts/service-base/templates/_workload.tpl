{{/*
The Deployment or StatefulSet of a service. A service with one replica is a Deployment that stops the
old pod first. One that may have several is a StatefulSet, because each needs a number of its own
that stays: its place in the consumer group.
*/}}
{{- define "service-base.workload" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
apiVersion: apps/v1
kind: {{ $facts.workload }}
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  {{- if not (.Values.autoscaling | default dict).enabled }}
  replicas: {{ .Values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  {{- if eq $facts.workload "StatefulSet" }}
  serviceName: {{ include "service-base.fullname" . }}
  podManagementPolicy: Parallel
  updateStrategy:
    type: RollingUpdate
  {{- else }}
  strategy:
    type: Recreate
  {{- end }}
  selector:
    matchLabels:
      {{- include "service-base.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "service-base.podLabels" . | nindent 8 }}
      {{- with merge (deepCopy .Values.podAnnotations) ($facts.podAnnotations | default dict) }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "service-base.podSpec" . | nindent 6 }}
{{- end -}}

{{- define "service-base.podSpec" -}}
{{- $shared := include "service-base.shared" . | fromYaml -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{ include "service-base.podBase" . }}
# Longer than the service's own shutdown: finish records, drain the outbox, close.
terminationGracePeriodSeconds: {{ add (ceil ((.Values.settings | default dict).shutdown_seconds | default 20)) 15 ($facts.drainSeconds | default 0) }}
containers:
  - name: {{ .Chart.Name }}
    image: {{ include "service-base.image" . | quote }}
    imagePullPolicy: {{ $shared.image.pullPolicy }}
    command: ["python", "-m", "services.{{ .Chart.Name }}"]
    env:
      {{- include "service-base.withExtraEnv" (list . (include "service-base.environment" .)) | nindent 6 }}
    ports:
      - name: ops
        containerPort: 9090
      {{- if $facts.http }}
      - name: http
        containerPort: 8080
      {{- end }}
    {{- include "service-base.probes" . | nindent 4 }}
    {{- if $facts.drainSeconds }}
    lifecycle:
      # It answers until load balancers no longer send requests here.
      preStop:
        sleep:
          seconds: {{ $facts.drainSeconds }}
    {{- end }}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    {{- include "service-base.confined" . | nindent 4 }}
{{- with .Values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ .topologyKey | quote }}
    whenUnsatisfiable: {{ .whenUnsatisfiable | default "ScheduleAnyway" }}
    labelSelector:
      matchLabels:
        {{- include "service-base.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/*
/livez answers from the first moment, also while Postgres is away or a migration runs, so neither
ends the process. /readyz waits for both and for partitions.
*/}}
{{- define "service-base.probes" -}}
startupProbe:
  httpGet:
    path: /livez
    port: ops
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ div (add .Values.probes.startupSeconds 1) 2 }}
livenessProbe:
  httpGet:
    path: /livez
    port: ops
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ div (add .Values.probes.livenessSeconds 9) 10 }}
readinessProbe:
  httpGet:
    path: /readyz
    port: ops
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}
