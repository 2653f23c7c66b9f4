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

{{- define "federlet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "federlet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "federlet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /*
Never on a virtual node, whether or not that has a taint: what somebody says of nodes is asked for beside that, in each of
its terms, because one that matches is enough.
*/}}
{{- define "federlet.affinity" -}}
{{- $given := deepCopy (. | default dict) }}
{{- $node := $given.nodeAffinity | default dict }}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $real := dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet") }}
{{- $terms := list }}
{{- range $required.nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $real)) .) }}
{{- end }}
{{- $required = dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- toYaml (merge (dict "nodeAffinity" (merge $required $node)) $given) }}
{{- end }}
