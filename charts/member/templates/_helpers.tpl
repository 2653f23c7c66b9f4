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

{{- /*
The container and the pull secrets of chart federlet's own Deployment, as JSON: whoever installed that from a registry of
their own means the same image for members. Nothing without a cluster to ask, as in `helm template` and in tools that
render with it.
*/}}
{{- define "member.shared" -}}
{{- $found := lookup "apps/v1" "Deployment" (include "member.namespace" .) "federlet" | default dict }}
{{- $pod := dig "spec" "template" "spec" dict $found }}
{{- $containers := $pod.containers | default list }}
{{- $container := dict }}
{{- range $containers }}{{- if eq .name "federlet" }}{{- $container = . }}{{- end }}{{- end }}
{{- $policies := not (has "--webhook-port=0" ($container.args | default list)) }}
{{- dict "image" ($container.image | default "") "pullPolicy" ($container.imagePullPolicy | default "") "pullSecrets" ($pod.imagePullSecrets | default list) "policies" $policies | toJson }}
{{- end }}

{{- /*
Helm renders hooks when it installs or upgrades a release, not when it uninstalls it: the Job that leaves runs the image
of that time.
*/}}
{{- define "member.image" -}}
{{- $shared := include "member.shared" . | fromJson }}
{{- $image := .Values.image }}
{{- if and $shared.image (not $image.repository) (not $image.tag) }}
{{- $shared.image }}
{{- else }}
{{- $theirs := regexReplaceAll "(:[^:/@]+)?(@.+)?$" $shared.image "" }}
{{- $image.repository | default $theirs | default "ghcr.io/federlet/federlet" }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "member.pullPolicy" -}}
{{- $shared := include "member.shared" . | fromJson }}
{{- .Values.image.pullPolicy | default $shared.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{- define "member.pullSecrets" -}}
{{- $shared := include "member.shared" . | fromJson }}
{{- with .Values.imagePullSecrets | default $shared.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Whether overrides are obeyed for the pods of a dedicated member; nothing if not. As chart federlet does, unless said. */}}
{{- define "member.policies" -}}
{{- $said := .Values.deployment.policies }}
{{- if kindIs "bool" $said }}{{ if $said }}true{{ end }}
{{- else if (include "member.shared" . | fromJson).policies }}true{{ end }}
{{- end }}

{{- define "member.pods" -}}
app.kubernetes.io/name: federlet-member
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{- /*
Never on a virtual node, whether or not that has a taint: what somebody says of nodes is asked for beside that, in each of
its terms, because one that matches is enough.
*/}}
{{- define "member.affinity" -}}
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

{{- /* What Federlet would refuse later is refused here, where somebody reads it. */}}
{{- define "member.check" -}}
{{- if .Release.IsUpgrade }}
{{- /* No hook runs on upgrade, so nobody would leave the member under its former name. */}}
{{- $name := include "member.name" . }}
{{- $mine := list .Release.Name .Release.Namespace }}
{{- range (lookup "cluster.karmada.io/v1alpha1" "Cluster" "" "").items }}
{{- $notes := .metadata.annotations | default dict }}
{{- if and (deepEqual $mine (list (get $notes "meta.helm.sh/release-name") (get $notes "meta.helm.sh/release-namespace"))) (ne .metadata.name $name) }}
{{- fail (printf "this release is the Cluster %s, whose name cannot change to %s: keep --set name=%s, or uninstall the release and install it anew" .metadata.name $name .metadata.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- $given := .Values.kubeconfig }}
{{- if and $given .Values.existingSecret }}
{{- fail "kubeconfig and existingSecret exclude each other: give one of them" }}
{{- end }}
{{- if not (or $given .Values.existingSecret) }}
{{- fail "the member has no credentials: --set-file kubeconfig=FILE, or --set existingSecret=NAME; on upgrade, --reset-then-reuse-values keeps those from before" }}
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
