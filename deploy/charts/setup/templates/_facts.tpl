{{- define "setup.facts" -}}
workload: Job
objectStore: true
{{- end -}}
