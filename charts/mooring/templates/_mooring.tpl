{{/* Labels: (list $ name). */}}
{{- define "mooring.labels" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: mooring
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{/* Metadata of an object without a namespace, and with the release's: (list $ name). */}}
{{- define "mooring.global" -}}
metadata:
  name: {{ index . 1 }}
  labels: {{- include "mooring.labels" . | nindent 4 }}
{{- end }}
{{- define "mooring.metadata" -}}
{{ include "mooring.global" . }}
  namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{/* A service account. Its pods project its token themselves. */}}
{{- define "mooring.account" -}}
apiVersion: v1
kind: ServiceAccount
{{ include "mooring.metadata" . }}
automountServiceAccountToken: false
{{- end }}

{{/* A ClusterRole with the rules NAME.rules, bound to an account: (list $ name account). */}}
{{- define "mooring.role" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
{{ include "mooring.global" . }}
rules:
  {{- include (printf "%s.rules" $name) $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
{{ include "mooring.global" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 2 }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* The same, within the namespace. */}}
{{- define "mooring.localRole" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
{{ include "mooring.metadata" . }}
rules:
  {{- include (printf "%s.rules" $name) $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
{{ include "mooring.metadata" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 2 }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* An admission policy with the content NAME.policy about one account's requests: (list $ name account). */}}
{{- define "mooring.policy" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
{{ include "mooring.global" . }}
spec:
  failurePolicy: Fail
  matchConditions:
    - name: is-the-account
      expression: request.userInfo.username == "system:serviceaccount:{{ $root.Release.Namespace }}:{{ index . 2 }}"
  variables:
    - name: node
      expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"].orValue([""])[0]
    {{- include (printf "%s.policy" $name) $root }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
{{ include "mooring.global" . }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
  {{- if eq $name "mooring-agent-evict" }}
  paramRef: {selector: {}, parameterNotFoundAction: Deny}
  {{- end }}
{{- end }}

{{/* Image of a container. */}}
{{- define "mooring.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* What every pod has: (list $ account); an empty account has no token. */}}
{{- define "mooring.pod" -}}
{{ with index . 1 -}}
serviceAccountName: {{ . }}
{{ end -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels and annotations of a program's pods: (list name values annotations). */}}
{{- define "mooring.podMetadata" -}}
labels: {{- toYaml (merge (dict "app.kubernetes.io/name" (index . 0)) (index . 1).podLabels) | nindent 2 }}
{{- with merge (index . 2) (index . 1).podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a program's pods run: (list values labels), with what every node of them has. */}}
{{- define "mooring.place" -}}
{{- with merge (index . 1) (index . 0).nodeSelector -}}
nodeSelector: {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with (index . 0).affinity -}}
affinity: {{- toYaml . | nindent 2 }}
{{ end -}}
tolerations: {{- toYaml (index . 0).tolerations | nindent 2 }}
{{- end }}

{{/* Where pods of nodes with the agent run: (list $ values). */}}
{{- define "mooring.agentNodes" -}}
priorityClassName: {{ (index . 0).Values.priorityClasses.node }}
{{ include "mooring.place" (list (index . 1) (dict "kubernetes.io/os" "linux" "mooring.dev/agent" "true")) }}
{{- end }}

{{/* Where the other pods run: also where an agent that is not ready keeps pods away, because they hold no CPUs. */}}
{{- define "mooring.clusterPods" -}}
priorityClassName: {{ .Values.priorityClasses.cluster }}
tolerations: [{key: mooring/agent-not-ready, operator: Exists}]
{{- end }}

{{/* The same for a program with values: (list $ values). */}}
{{- define "mooring.clusterProgram" -}}
priorityClassName: {{ (index . 0).Values.priorityClasses.cluster }}
{{ include "mooring.place" (list (index . 1) (dict)) }}
{{- end }}

{{/* Security context of a container: (list user). Root, where sockets and folders of the node are root's. */}}
{{- define "mooring.confined" -}}
securityContext:
  runAsUser: {{ index . 0 }}
  runAsNonRoot: {{ ne (index . 0) 0 }}
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The token of a pod's account, for one container only: its volume and its mount. */}}
{{- define "mooring.token" -}}
- name: token
  projected:
    defaultMode: 0444
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- define "mooring.tokenMount" -}}
- {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{/* How a program reads the kubelet of its node, and writes nothing: options, mounts and volumes. */}}
{{- define "mooring.kubeletOptions" -}}
- --state=/host/kubelet
- --config=/host/{{ ternary (printf "kubelet/%s" (base .Values.paths.kubeletConfig)) "kubelet.yaml" (eq (dir .Values.paths.kubeletConfig) .Values.paths.kubelet) }}
{{- end }}
{{- define "mooring.kubeletMounts" -}}
- {name: kubelet, mountPath: /host/kubelet, readOnly: true}
{{- range list "checkpoints" "pki" "plugins" "plugins_registry" "pods" }}
- {name: nothing, mountPath: /host/kubelet/{{ . }}, readOnly: true}
{{- end }}
{{- if ne (dir .Values.paths.kubeletConfig) .Values.paths.kubelet }}
- {name: configuration, mountPath: /host/kubelet.yaml, readOnly: true}
{{- end }}
{{- end }}
{{- define "mooring.kubeletVolumes" -}}
# The whole folder: state files are replaced by others of the same name, which a mount of single files would
# not follow.
- {name: kubelet, hostPath: {path: {{ .Values.paths.kubelet }}, type: Directory}}
# Over the kubelet's keys, pods' volumes with tokens and secrets, memory of containers, and sockets of drivers.
- {name: nothing, emptyDir: {sizeLimit: 1Mi}}
# Not every kubelet makes these two, and without them the runtime could mount nothing over them.
- {name: checkpoints, hostPath: {path: {{ .Values.paths.kubelet }}/checkpoints, type: DirectoryOrCreate}}
- {name: pki, hostPath: {path: {{ .Values.paths.kubelet }}/pki, type: DirectoryOrCreate}}
{{- if ne (dir .Values.paths.kubeletConfig) .Values.paths.kubelet }}
- {name: configuration, hostPath: {path: {{ .Values.paths.kubeletConfig }}, type: File}}
{{- end }}
{{- end }}

{{/* The kubelet creates the folders of its volumes. The program does nothing, and its user cannot read them. */}}
{{- define "mooring.kubeletFolders" -}}
initContainers:
  - name: folders
    {{- include "mooring.image" (index . 0) | nindent 4 }}
    args: [version]
    resources: {{- toYaml (index . 1) | nindent 6 }}
    {{- include "mooring.confined" (list 65532) | nindent 4 }}
    volumeMounts:
      - {name: checkpoints, mountPath: /host/checkpoints, readOnly: true}
      - {name: pki, mountPath: /host/pki, readOnly: true}
{{- end }}

{{/* Nodes whose kubelet decides, with the program's values: on the others its files are empty, and the agent publishes (publish: true). */}}
{{- define "mooring.kubeletNodes" -}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: mooring.dev/agent, operator: DoesNotExist}
{{ include "mooring.place" (list . (dict "kubernetes.io/os" "linux")) }}
{{- end }}

{{/* The agent's accounts, by what its configuration switches on. */}}
{{- define "mooring.agentAccounts" -}}
{{- $options := .Values.agent.agentConfiguration -}}
pods events
{{- if eq ($options.onRejection | default "hold") "evict" }} evict{{ end }}
{{- if or $options.failClosed $options.nodeCondition }} taint{{ end }}
{{- if $options.publish }} publish{{ end }}
{{- end }}

{{/* Who makes certificates. */}}
{{- define "mooring.certificates" -}}
{{- if not .Values.extender.enabled }}none
{{- else if ne .Values.certificates.by "auto" }}{{ .Values.certificates.by }}
{{- else if .Capabilities.APIVersions.Has "cert-manager.io/v1" }}cert-manager
{{- else }}job
{{- end }}
{{- end }}
