{{/*
More replicas while records wait: KEDA's ScaledObject on the lag of the consumer groups; or, where
`autoscaling.by` is "cpu", a HorizontalPodAutoscaler. Never more than a topic has partitions.
*/}}
{{- define "service-base.autoscaling" -}}
{{- if eq .Values.autoscaling.by "cpu" -}}
{{ include "service-base.horizontalPodAutoscaler" . }}
{{- else -}}
{{ include "service-base.scaledObject" . }}
{{- if or (include "service-base.usesSasl" .) (include "service-base.usesTls" .) }}
---
{{ include "service-base.triggerAuthentication" . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "service-base.horizontalPodAutoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: StatefulSet
    name: {{ include "service-base.fullname" . }}
  minReplicas: {{ .Values.autoscaling.minReplicas }}
  maxReplicas: {{ .Values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .Values.autoscaling.cpuPercent }}
{{- end -}}

{{- define "service-base.scaledObject" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{- $kafka := (include "service-base.shared" . | fromYaml).kafka -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: StatefulSet
    name: {{ include "service-base.fullname" . }}
  minReplicaCount: {{ .Values.autoscaling.minReplicas }}
  maxReplicaCount: {{ .Values.autoscaling.maxReplicas }}
  triggers:
    {{- range $group, $topics := $facts.consumes }}
    {{- range $topics }}
    - type: kafka
      metadata:
        bootstrapServers: {{ $kafka.bootstrapServers | quote }}
        consumerGroup: {{ printf "%s%s" $kafka.topicPrefix $group | quote }}
        topic: {{ printf "%s%s" $kafka.topicPrefix . | quote }}
        lagThreshold: {{ include "service-base.text" $.Values.autoscaling.lag | quote }}
        offsetResetPolicy: earliest
        limitToPartitionsWithLag: "true"
        allowIdleConsumers: "false"
        {{- if include "service-base.usesSasl" $ }}
        sasl: {{ dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512" | dig $kafka.saslMechanism "" }}
        {{- end }}
        tls: {{ ternary "enable" "disable" (not (empty (include "service-base.usesTls" $))) }}
      {{- if or (include "service-base.usesSasl" $) (include "service-base.usesTls" $) }}
      authenticationRef:
        name: {{ include "service-base.fullname" $ }}
      {{- end }}
    {{- end }}
    {{- end }}
{{- end -}}

{{- define "service-base.triggerAuthentication" -}}
{{- $kafka := (include "service-base.shared" . | fromYaml).kafka -}}
{{- $user := include "service-base.kafkaUser" . -}}
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  name: {{ include "service-base.fullname" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "service-base.labels" . | nindent 4 }}
spec:
  {{- if include "service-base.usesSasl" . }}
  env:
    - parameter: username
      name: DRIVETRAIN_KAFKA_SASL_USERNAME
      containerName: {{ .Chart.Name }}
  {{- end }}
  secretTargetRef:
    {{- if include "service-base.usesSasl" . }}
    - parameter: password
      name: {{ $kafka.passwordSecret.name | default $user | quote }}
      key: {{ $kafka.passwordSecret.key | quote }}
    {{- end }}
    {{- if eq $kafka.securityProtocol "SSL" }}
    - parameter: cert
      name: {{ $kafka.certificateSecret.name | default $user | quote }}
      key: {{ $kafka.certificateSecret.certificateKey | quote }}
    - parameter: key
      name: {{ $kafka.certificateSecret.name | default $user | quote }}
      key: {{ $kafka.certificateSecret.privateKey | quote }}
    {{- end }}
    {{- if and (include "service-base.usesTls" .) $kafka.caSecret.name }}
    - parameter: ca
      name: {{ $kafka.caSecret.name | quote }}
      key: {{ $kafka.caSecret.key | quote }}
    {{- end }}
{{- end -}}
