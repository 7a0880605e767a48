{{- define "hpo.facts" -}}
workload: StatefulSet
http: true
readToken: true
consumes:
  hpo: [commands.studies, events.jobs]
{{- end -}}
