{{- define "hpo.facts" -}}
workload: StatefulSet
consumes:
  hpo: [commands.studies, events.jobs]
{{- end -}}
