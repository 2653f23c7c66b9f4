{{- define "member.namespace" -}}federlet-system{{- end }}

{{- define "member.name" -}}
{{- $name := .Values.name | default .Release.Name }}
{{- if gt (len $name) 48 }}
{{- fail (printf "the name of a cluster has at most 48 characters, and %q has %d: say another one with --set name=…" $name (len $name)) }}
{{- end }}
{{- $name }}
{{- end }}

{{- define "member.secret" -}}
{{- .Values.existingSecret | default (include "member.name" .) }}
{{- end }}

{{- define "member.labels" -}}
app.kubernetes.io/name: federlet-member
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: federlet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "member.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "member.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "member.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Never on a virtual node, whether or not that has a taint. */}}
{{- define "member.affinity" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      - key: type
        operator: NotIn
        values: [virtual-kubelet]
{{- end }}

{{- /* What Federlet would refuse later is refused here, where somebody reads it. */}}
{{- define "member.check" -}}
{{- $given := .Values.kubeconfig }}
{{- if and $given .Values.existingSecret }}
{{- fail "kubeconfig and existingSecret exclude each other: give one of them" }}
{{- end }}
{{- if not (or $given .Values.existingSecret) }}
{{- fail "the member has no credentials: --set-file kubeconfig=FILE, or --set existingSecret=NAME; on upgrade, --reuse-values keeps those from before" }}
{{- end }}
{{- if $given }}
{{- $config := fromYaml $given }}
{{- if or (hasKey $config "Error") (not (hasKey $config "current-context")) }}
{{- fail "kubeconfig is not a kubeconfig in YAML or JSON with a current-context: --set-file kubeconfig=FILE" }}
{{- end }}
{{- $current := dict }}
{{- range $config.contexts }}{{- if eq .name (index $config "current-context") }}{{- $current = .context }}{{- end }}{{- end }}
{{- range $config.users }}
{{- if eq .name ($current.user | default "") }}
{{- $user := .user | default dict }}
{{- range $field := list "exec" "auth-provider" "tokenFile" "client-certificate" "client-key" "username" "as" }}
{{- if hasKey $user $field }}
{{- fail (printf "the kubeconfig uses %s: only what is written out in it is taken (token, client-certificate-data, client-key-data, certificate-authority-data), never a program or a path; `kubectl config view --raw --flatten --minify` writes paths out, and for a login plugin use `federlet join`" $field) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $config.clusters }}
{{- if and (eq .name ($current.cluster | default "")) (hasKey (default dict .cluster) "certificate-authority") }}
{{- fail "the kubeconfig uses certificate-authority, a path: `kubectl config view --raw --flatten --minify` writes it out" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "member.server" -}}
{{- if .Values.apiEndpoint }}{{ .Values.apiEndpoint }}
{{- else if .Values.kubeconfig }}
{{- $config := fromYaml .Values.kubeconfig }}
{{- $current := dict }}
{{- range $config.contexts }}{{- if eq .name (index $config "current-context") }}{{- $current = .context }}{{- end }}{{- end }}
{{- range $config.clusters }}{{- if eq .name ($current.cluster | default "") }}{{ .cluster.server }}{{- end }}{{- end }}
{{- end }}
{{- end }}

{{- define "member.selector" -}}
{{- $terms := list }}
{{- range $key, $value := .Values.region.selector }}
{{- $terms = append $terms (printf "%s=%v" $key $value) }}
{{- end }}
{{- join "," $terms }}
{{- end }}
