{{/* Names and labels. */}}

{{- define "service-base.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of another service of the same platform: drivetrain-gateway -> drivetrain-metrics. */}}
{{- define "service-base.sibling" -}}
{{- $root := index . 0 -}}
{{- include "service-base.fullname" $root | replace $root.Chart.Name (index . 1) -}}
{{- end -}}

{{- define "service-base.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "service-base.labels" -}}
{{ include "service-base.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: drivetrain
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "service-base.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "service-base.fullname" .) -}}
{{- end -}}

{{/*
What this service is. Each chart defines "<chart>.facts": workload (Deployment or StatefulSet), http,
reports and readToken (whether it needs these secrets), objectStore, callsKubernetes, calls (services
it reads from), consumes (topics), drainSeconds; and further environment,
secrets ([name, key, path]), volumes, mounts, podAnnotations.
*/}}
{{- define "service-base.facts" -}}
{{- include (printf "%s.facts" .Chart.Name) . -}}
{{- end -}}
