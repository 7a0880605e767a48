{{/* The values that may be given for all services: own, else global, else the default. */}}
{{- define "service-base.shared" -}}
{{- $defaults := include "service-base.defaults" . | fromYaml -}}
{{- $global := include "service-base.given" (.Values.global | default dict) | fromYaml -}}
{{- $own := include "service-base.given" (pick .Values "image" "kafka" "postgres" "objectStore" "runTokenKeySecret" "readTokenSecret" "tracing") | fromYaml -}}
{{- mergeOverwrite $defaults $global $own | toYaml -}}
{{- end -}}

{{/* A mapping without its empty values. */}}
{{- define "service-base.given" -}}
{{- $given := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $inner := include "service-base.given" $value | fromYaml -}}
{{- if $inner }}{{ $_ := set $given $key $inner }}{{ end -}}
{{- else if $value -}}
{{- $_ := set $given $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}

{{- define "service-base.image" -}}
{{- $image := (include "service-base.shared" . | fromYaml).image -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- define "service-base.usesSasl" -}}
{{- if hasPrefix "SASL" (include "service-base.shared" . | fromYaml).kafka.securityProtocol }}true{{ end -}}
{{- end -}}

{{- define "service-base.usesTls" -}}
{{- if hasSuffix "SSL" (include "service-base.shared" . | fromYaml).kafka.securityProtocol }}true{{ end -}}
{{- end -}}

{{- define "service-base.kafkaUser" -}}
{{- (include "service-base.shared" . | fromYaml).kafka.user | default .Chart.Name -}}
{{- end -}}
