{{/* Names and labels. */}}

{{- define "service-base.fullname" -}}
{{- include "service-base.sibling" (list . .Chart.Name) -}}
{{- end -}}

{{/*
The name of any service of the same platform: drivetrain-metrics. A release of one service alone may
have its name in that of the release; in the umbrella chart the release is never one service.
*/}}
{{- define "service-base.sibling" -}}
{{- $root := index . 0 -}}
{{- if and $root.Chart.IsRoot (contains $root.Chart.Name $root.Release.Name) -}}
{{- $root.Release.Name | replace $root.Chart.Name (index . 1) | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" ($root.Release.Name | trunc 40 | trimSuffix "-") (index . 1) -}}
{{- end -}}
{{- end -}}

{{- define "service-base.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Of pods. Workloads, Services and policies select by those of the chart; values only add to them. */}}
{{- define "service-base.podLabels" -}}
{{ include "service-base.selector" . }}
app.kubernetes.io/part-of: drivetrain
{{- range $name, $value := .Values.podLabels }}
{{- if regexMatch "^(drivetrain\\.dev/.*|apps?\\.kubernetes\\.io/(name|instance|part-of|component|pod-index))$" $name }}
{{- fail (printf "podLabels: pods are selected by %s, which the chart sets: choose another name" $name) }}
{{- end }}
{{ $name | quote }}: {{ $value | quote }}
{{- end }}
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
