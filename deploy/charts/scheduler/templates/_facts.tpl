{{- define "scheduler.facts" -}}
{{- $shared := include "service-base.shared" . | fromYaml -}}
{{- $jobs := .Values.jobs -}}
workload: Deployment
http: true
reports: true
readToken: true
objectStore: true
callsKubernetes: true
environment:
  - name: DRIVETRAIN_LAUNCHER
    value: kubernetes
  - name: DRIVETRAIN_KUBERNETES_NAMESPACE
    value: {{ include "scheduler.jobsNamespace" . | quote }}
  - name: DRIVETRAIN_KUBERNETES_IMAGE
    value: {{ required "jobs.image is empty: give the image of jobs that name none" $jobs.image | quote }}
  - name: DRIVETRAIN_KUBERNETES_SERVICE_ACCOUNT
    value: {{ $jobs.serviceAccount.name | quote }}
  {{- with $jobs.pullSecrets }}
  - name: DRIVETRAIN_KUBERNETES_IMAGE_PULL_SECRETS
    value: {{ toJson . | quote }}
  {{- end }}
  {{- with $jobs.environmentSecret }}
  - name: DRIVETRAIN_KUBERNETES_ENVIRONMENT_SECRET
    value: {{ . | quote }}
  {{- end }}
  {{- with $jobs.kafka.bootstrapServers }}
  - name: DRIVETRAIN_PODS_KAFKA_BOOTSTRAP_SERVERS
    value: {{ . | quote }}
  {{- end }}
  {{- if include "service-base.usesSasl" . }}
  - name: DRIVETRAIN_PODS_KAFKA_USERNAME
    value: {{ $jobs.kafka.user | quote }}
  - name: DRIVETRAIN_PODS_KAFKA_PASSWORD_FILE
    value: /etc/drivetrain/secrets/pods-kafka/password
  {{- end }}
  {{- if eq $shared.kafka.securityProtocol "SSL" }}
  - name: DRIVETRAIN_PODS_KAFKA_CERTIFICATE_PATH
    value: /etc/drivetrain/secrets/pods-kafka/tls.crt
  - name: DRIVETRAIN_PODS_KAFKA_KEY_PATH
    value: /etc/drivetrain/secrets/pods-kafka/tls.key
  {{- end }}
secrets:
  {{- if include "service-base.usesSasl" . }}
  - [{{ $jobs.kafka.passwordSecret.name | default $jobs.kafka.user | quote }}, {{ $jobs.kafka.passwordSecret.key | quote }}, pods-kafka/password]
  {{- end }}
  {{- if eq $shared.kafka.securityProtocol "SSL" }}
  - [{{ $jobs.kafka.certificateSecret.name | default $jobs.kafka.user | quote }}, {{ $jobs.kafka.certificateSecret.certificateKey | quote }}, pods-kafka/tls.crt]
  - [{{ $jobs.kafka.certificateSecret.name | default $jobs.kafka.user | quote }}, {{ $jobs.kafka.certificateSecret.privateKey | quote }}, pods-kafka/tls.key]
  {{- end }}
{{- end -}}

{{- define "scheduler.jobsNamespace" -}}
{{- .Values.jobs.namespace | default .Release.Namespace -}}
{{- end -}}
