{{- define "delayline.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "delayline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "delayline.labels" -}}
{{ include "delayline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "delayline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where the server has all its pages, the probes' and metrics too; empty for /. */}}
{{- define "delayline.basePath" -}}
{{ (.Values.settings | default dict).DELAYLINE__HTTP__BASE_PATH | default "" | trimSuffix "/" }}
{{- end }}

{{/* Of each pod: no root, and no right that it does not need. */}}
{{- define "delayline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 7700
runAsGroup: 7700
fsGroup: 7700
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "delayline.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
