{{- define "hpo.facts" -}}
workload: StatefulSet
http: true
readToken: true
consumes:
  hpo: [commands.studies, events.alerts, events.charges, events.jobs]
{{- end -}}
