{{/* The environment of the container. Secrets are files, read from the volume "secrets". */}}
{{- define "service-base.environment" -}}
{{- $shared := include "service-base.shared" . | fromYaml -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{ include "service-base.kafkaEnvironment" . }}
- name: DRIVETRAIN_POSTGRES_DSN_FILE
  value: /etc/drivetrain/secrets/postgres/dsn
- name: PGSSLMODE
  value: {{ $shared.postgres.sslMode }}
{{- if hasPrefix "verify" $shared.postgres.sslMode }}
- name: PGSSLROOTCERT
  value: {{ ternary "/etc/drivetrain/secrets/postgres/ca.crt" "/etc/ssl/certs/ca-certificates.crt" (not (empty $shared.postgres.caSecret.name)) }}
{{- end }}
{{- if $facts.objectStore }}
{{ include "service-base.objectStoreEnvironment" . }}
{{- end }}
{{- if $facts.reports }}
- name: DRIVETRAIN_RUN_TOKEN_KEY_FILE
  value: /etc/drivetrain/secrets/run-token-key
{{- end }}
{{- if $facts.readToken }}
- name: DRIVETRAIN_READ_TOKEN_FILE
  value: /etc/drivetrain/secrets/read-token
{{- end }}
{{- if eq $facts.workload "StatefulSet" }}
- name: DRIVETRAIN_REPLICA
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end }}
- name: DRIVETRAIN_OPS_HOST
  value: {{ .Values.bindAddress | quote }}
- name: DRIVETRAIN_OPS_PORT
  value: "9090"
{{- if $facts.http }}
- name: DRIVETRAIN_HTTP_HOST
  value: {{ .Values.bindAddress | quote }}
- name: DRIVETRAIN_HTTP_PORT
  value: "8080"
- name: DRIVETRAIN_ALLOWED_HOSTS
  value: {{ include "service-base.allowedHosts" . | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: DRIVETRAIN_{{ upper $name }}
  value: {{ include "service-base.text" $value | quote }}
{{- end }}
{{- with $facts.environment }}
{{ toYaml . }}
{{- end }}
{{- with $shared.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Variables with those of the values behind them. A name given twice fails server-side apply. */}}
{{- define "service-base.withExtraEnv" -}}
{{- $names := dict -}}
{{- range index . 1 | fromYamlArray }}{{ $_ := set $names .name true }}{{ end -}}
{{- index . 1 -}}
{{- range (index . 0).Values.extraEnv }}
{{- if hasKey $names .name }}
{{- fail (printf "extraEnv: %s is set already: leave it out, and set it by the value of its own where there is one" .name) }}
{{- end }}
{{- $_ := set $names .name true }}
- name: {{ .name | quote }}
  value: {{ .value | quote }}
{{- end }}
{{- end -}}

{{/* A setting as text: numbers without an exponent, lists and mappings as JSON. */}}
{{- define "service-base.text" -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) }}{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}{{ end -}}
{{- end -}}

{{- define "service-base.kafkaEnvironment" -}}
{{- $kafka := (include "service-base.shared" . | fromYaml).kafka -}}
- name: DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS
  value: {{ required "kafka.bootstrapServers is empty: give the brokers' addresses, here or as global.kafka.bootstrapServers" $kafka.bootstrapServers | quote }}
- name: DRIVETRAIN_KAFKA_SECURITY_PROTOCOL
  value: {{ $kafka.securityProtocol }}
{{- if include "service-base.usesSasl" . }}
- name: DRIVETRAIN_KAFKA_SASL_MECHANISM
  value: {{ $kafka.saslMechanism }}
- name: DRIVETRAIN_KAFKA_SASL_USERNAME
  value: {{ include "service-base.kafkaUser" . | quote }}
- name: DRIVETRAIN_KAFKA_SASL_PASSWORD_FILE
  value: /etc/drivetrain/secrets/kafka/password
{{- end }}
{{- if and (include "service-base.usesTls" .) $kafka.caSecret.name }}
- name: DRIVETRAIN_KAFKA_CA_PATH
  value: /etc/drivetrain/secrets/kafka/ca.crt
{{- end }}
{{- if eq $kafka.securityProtocol "SSL" }}
- name: DRIVETRAIN_KAFKA_CERTIFICATE_PATH
  value: /etc/drivetrain/secrets/kafka/tls.crt
- name: DRIVETRAIN_KAFKA_KEY_PATH
  value: /etc/drivetrain/secrets/kafka/tls.key
{{- end }}
- name: DRIVETRAIN_TOPIC_PREFIX
  value: {{ $kafka.topicPrefix | quote }}
{{- end -}}

{{- define "service-base.objectStoreEnvironment" -}}
{{- $store := (include "service-base.shared" . | fromYaml).objectStore -}}
- name: DRIVETRAIN_OBJECT_STORE_URL
  value: {{ required "objectStore.url is empty: give s3://bucket/prefix, here or as global.objectStore.url" $store.url | quote }}
{{- with $store.endpointUrl }}
- name: DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with $store.id }}
- name: DRIVETRAIN_OBJECT_STORE_ID
  value: {{ . | quote }}
{{- end }}
{{- with $store.region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- with $store.credentialsSecret }}
{{- if .name }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .accessKeyIdKey | quote }}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .secretAccessKeyKey | quote }}
{{- end }}
{{- end }}
{{- if $store.caSecret.name }}
- name: AWS_CA_BUNDLE
  value: /etc/drivetrain/secrets/object-store/ca.crt
{{- end }}
{{- end -}}

{{/* The names of this Service, by which the gateway calls it, and further ones of the chart. */}}
{{- define "service-base.allowedHosts" -}}
{{- $name := include "service-base.fullname" . -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $hosts := list -}}
{{- range $names }}{{ $hosts = append $hosts (printf "%s:8080" .) }}{{ end -}}
{{- with (.Values.ingress | default dict).host }}{{ $hosts = append $hosts . }}{{ end -}}
{{- concat $hosts (.Values.hosts | default list) | toJson -}}
{{- end -}}
