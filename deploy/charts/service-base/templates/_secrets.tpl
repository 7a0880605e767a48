{{/* The sources of the volume "secrets": existing Secrets, and where their keys appear. */}}
{{- define "service-base.secrets" -}}
{{- $shared := include "service-base.shared" . | fromYaml -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
{{- $kafka := $shared.kafka -}}
{{- $user := include "service-base.kafkaUser" . -}}
{{- if ne $facts.workload "Job" }}
{{ include "service-base.secret" (list ($shared.postgres.dsnSecret.name | default (printf "%s-postgres" .Chart.Name)) $shared.postgres.dsnSecret.key "postgres/dsn") }}
{{- if and (hasPrefix "verify" $shared.postgres.sslMode) $shared.postgres.caSecret.name }}
{{ include "service-base.secret" (list $shared.postgres.caSecret.name $shared.postgres.caSecret.key "postgres/ca.crt") }}
{{- end }}
{{- end }}
{{- if ne (toString $facts.kafka) "false" }}
{{- if include "service-base.usesSasl" . }}
{{ include "service-base.secret" (list ($kafka.passwordSecret.name | default $user) $kafka.passwordSecret.key "kafka/password") }}
{{- end }}
{{- if and (include "service-base.usesTls" .) $kafka.caSecret.name }}
{{ include "service-base.secret" (list $kafka.caSecret.name $kafka.caSecret.key "kafka/ca.crt") }}
{{- end }}
{{- if eq $kafka.securityProtocol "SSL" }}
{{- $name := $kafka.certificateSecret.name | default $user }}
{{ include "service-base.secret" (list $name $kafka.certificateSecret.certificateKey "kafka/tls.crt") }}
{{ include "service-base.secret" (list $name $kafka.certificateSecret.privateKey "kafka/tls.key") }}
{{- end }}
{{- end }}
{{- if $facts.reports }}
{{ include "service-base.secret" (list $shared.runTokenKeySecret.name $shared.runTokenKeySecret.key "run-token-key") }}
{{- end }}
{{- if $facts.readToken }}
{{ include "service-base.secret" (list $shared.readTokenSecret.name $shared.readTokenSecret.key "read-token") }}
{{- end }}
{{- if and $facts.objectStore $shared.objectStore.caSecret.name }}
{{ include "service-base.secret" (list $shared.objectStore.caSecret.name $shared.objectStore.caSecret.key "object-store/ca.crt") }}
{{- end }}
{{- range $facts.secrets }}
{{ include "service-base.secret" . }}
{{- end }}
{{- end -}}

{{/* One key of an existing Secret: (name, key, path). */}}
{{- define "service-base.secret" -}}
- secret:
    name: {{ index . 0 | quote }}
    items:
      - key: {{ index . 1 | quote }}
        path: {{ index . 2 }}
{{- end -}}
