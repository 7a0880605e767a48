{{- define "setup.facts" -}}
workload: Job
kafka: {{ .Values.topics.create }}
objectStore: true
{{- end -}}
