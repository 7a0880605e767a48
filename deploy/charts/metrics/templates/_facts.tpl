{{- define "metrics.facts" -}}
workload: StatefulSet
http: true
reports: true
readToken: true
objectStore: true
consumes:
  metrics: [events.jobs, events.alerts, events.budgets, events.checkpoints]
  metrics.streams: [metrics, logs, windows, reports]
{{- end -}}
