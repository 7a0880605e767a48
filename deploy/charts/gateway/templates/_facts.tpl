{{- define "gateway.facts" -}}
workload: StatefulSet
http: true
reports: true
readToken: true
objectStore: true
calls: [metrics, cost, hpo, scheduler]
drainSeconds: 5
consumes:
  gateway: [events.jobs, events.nodes, events.checkpoints, events.studies, events.charges, events.alerts]
  gateway.streams: [commands.jobs, commands.studies, reports]
environment:
  - name: DRIVETRAIN_API_TOKEN_FILE
    value: /etc/drivetrain/secrets/api-token
  - name: DRIVETRAIN_COOKIE_SECRET_FILE
    value: /etc/drivetrain/secrets/cookie-secret
  # Of the image.
  - name: DRIVETRAIN_ASSETS_DIRECTORY
    value: /opt/drivetrain/assets
  - name: DRIVETRAIN_METRICS_URL
    value: {{ .Values.metricsUrl | default (printf "http://%s:8080" (include "service-base.sibling" (list . "metrics"))) | quote }}
  - name: DRIVETRAIN_COST_URL
    value: {{ .Values.costUrl | default (printf "http://%s:8080" (include "service-base.sibling" (list . "cost"))) | quote }}
  - name: DRIVETRAIN_HPO_URL
    value: {{ .Values.hpoUrl | default (printf "http://%s:8080" (include "service-base.sibling" (list . "hpo"))) | quote }}
  - name: DRIVETRAIN_SCHEDULER_URL
    value: {{ .Values.schedulerUrl | default (printf "http://%s:8080" (include "service-base.sibling" (list . "scheduler"))) | quote }}
secrets:
  - [{{ .Values.apiTokenSecret.name | quote }}, {{ .Values.apiTokenSecret.key | quote }}, api-token]
  - [{{ .Values.cookieSecret.name | quote }}, {{ .Values.cookieSecret.key | quote }}, cookie-secret]
{{- end -}}
