{{- define "cost.facts" -}}
workload: StatefulSet
http: true
readToken: true
consumes:
  cost: [events.jobs]
{{- if .Values.prices }}
environment:
  - name: DRIVETRAIN_PRICE_BOOK
    value: /etc/drivetrain/prices/prices.yaml
mounts:
  - name: prices
    mountPath: /etc/drivetrain/prices
    readOnly: true
volumes:
  - name: prices
    configMap:
      name: {{ include "service-base.fullname" . }}-prices
podAnnotations:
  # The price book is read at the start.
  drivetrain.dev/prices: {{ toJson .Values.prices | sha256sum }}
{{- end }}
{{- end -}}
