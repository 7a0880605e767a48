{{- define "checkpoints.facts" -}}
workload: Deployment
reports: true
objectStore: true
{{- end -}}
