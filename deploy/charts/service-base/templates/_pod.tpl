{{/* Of every pod: its account, no privilege, volumes, where it may run. */}}
{{- define "service-base.podBase" -}}
{{- $shared := include "service-base.shared" . | fromYaml -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
serviceAccountName: {{ include "service-base.serviceAccountName" . | quote }}
automountServiceAccountToken: {{ $facts.callsKubernetes | default false }}
enableServiceLinks: false
{{- with $shared.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAsUser }}
  runAsUser: {{ int64 . }}
  runAsGroup: {{ int64 . }}
  fsGroup: {{ int64 . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: secrets
    projected:
      defaultMode: 0440
      {{- with include "service-base.secrets" . | trim }}
      sources:
        {{- . | nindent 8 }}
      {{- else }}
      sources: []
      {{- end }}
  - name: tmp
    emptyDir:
      sizeLimit: 256Mi
  {{- with $facts.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of every container: no privilege, and what it may write. */}}
{{- define "service-base.confined" -}}
{{- $facts := include "service-base.facts" . | fromYaml -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: secrets
    mountPath: /etc/drivetrain/secrets
    readOnly: true
  - name: tmp
    mountPath: /tmp
  {{- with $facts.mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
