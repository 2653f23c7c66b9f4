{{/* Credentials of members are read from this namespace only, so there is one installation in a cluster. */}}
{{- define "federlet.namespace" -}}federlet-system{{- end }}

{{- define "federlet.selector" -}}
app.kubernetes.io/name: federlet
app.kubernetes.io/component: serve
{{- end }}

{{- define "federlet.labels" -}}
{{ include "federlet.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: federlet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
