{{/* The Jobs by name: the module that each runs. */}}
{{- define "setup.jobs" -}}
{{- if .Values.topics.create }}
topics: services.runtime.topics
{{- end }}
{{- if .Values.objectStore.initialise }}
store: services.runtime.stores
{{- end }}
{{- end -}}

{{/*
The name of a Job: (root, name, spec). A Job cannot change, so another spec is another Job, whatever applies the
chart. At most 63 characters, because it becomes a label of the pods.
*/}}
{{- define "setup.jobName" -}}
{{- $name := printf "%s-%s" (include "service-base.fullname" (index . 0)) (index . 1) -}}
{{- printf "%s-%s" ($name | trunc 54) (index . 2 | sha256sum | trunc 8) -}}
{{- end -}}

{{/* The spec of a Job: (root, name, module). */}}
{{- define "setup.jobSpec" -}}
{{- $name := index . 1 -}}
{{- $module := index . 2 -}}
{{- with index . 0 -}}
backoffLimit: {{ .Values.tries }}
{{- with .Values.ttlSecondsAfterFinished }}
ttlSecondsAfterFinished: {{ int64 . }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "service-base.podLabels" . | nindent 6 }}
      app.kubernetes.io/component: {{ $name }}
    {{- with .Values.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    {{- include "service-base.podBase" . | nindent 4 }}
    containers:
      - name: {{ $name }}
        image: {{ include "service-base.image" . | quote }}
        imagePullPolicy: {{ (include "service-base.shared" . | fromYaml).image.pullPolicy }}
        command: ["python", "-m", {{ $module | quote }}]
        env:
          {{- include "service-base.withExtraEnv" (list . (include (printf "setup.%sEnvironment" $name) .)) | nindent 10 }}
        resources:
          {{- toYaml .Values.resources | nindent 10 }}
        {{- include "service-base.confined" . | nindent 8 }}
{{- end -}}
{{- end -}}

{{- define "setup.storeEnvironment" -}}
{{- include "service-base.objectStoreEnvironment" . -}}
{{- end -}}

{{- define "setup.topicsEnvironment" -}}
{{ include "service-base.kafkaEnvironment" . }}
- name: DRIVETRAIN_TOPIC_REPLICATION_FACTOR
  value: {{ .Values.topics.replicationFactor | quote }}
{{- end -}}
