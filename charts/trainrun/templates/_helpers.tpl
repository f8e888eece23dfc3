{{/* Name of the release's objects. */}}
{{- define "trainrun.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Name of its objects outside of its own namespace: another installation may have the same release
name. A namespace has no dot, so no two of these names are alike.
*/}}
{{- define "trainrun.outsideName" -}}
{{- printf "%s.%s" .Release.Namespace (include "trainrun.fullname" .) -}}
{{- end }}

{{/* What never changes in the life of a release: a Deployment's selector cannot. */}}
{{- define "trainrun.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trainrun.labels" -}}
{{ include "trainrun.selectorLabels" . }}
app.kubernetes.io/component: operator
{{ include "trainrun.commonLabels" . }}
{{- end }}

{{/* Of every object, the operator's and the page's. */}}
{{- define "trainrun.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: trainrun
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "trainrun.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "trainrun.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/*
The operator's image. A global registry takes the place of the repository's own: its first part, if
that looks like a host.
*/}}
{{- define "trainrun.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with .Values.global.imageRegistry -}}
{{- $first := splitList "/" $repository | first -}}
{{- if and (contains "/" $repository) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $repository = trimPrefix (printf "%s/" $first) $repository -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{/* "true" where nodes may be read. */}}
{{- define "trainrun.readsNodes" -}}
{{- if kindIs "bool" .Values.nodes.enabled -}}
{{- .Values.nodes.enabled -}}
{{- else -}}
{{- empty .Values.watchNamespaces -}}
{{- end -}}
{{- end }}

{{/* "true" where the cluster's user roles learn of TrainRuns. */}}
{{- define "trainrun.aggregates" -}}
{{- if kindIs "bool" .Values.rbac.aggregateToUserRoles -}}
{{- .Values.rbac.aggregateToUserRoles -}}
{{- else -}}
{{- empty .Values.watchNamespaces -}}
{{- end -}}
{{- end }}

{{/* The operator's service account, as the subject of a binding. */}}
{{- define "trainrun.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "trainrun.serviceAccountName" . }}
    namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What the operator does where TrainRuns are: in every namespace, or in those it watches. */}}
{{- define "trainrun.workRules" -}}
- apiGroups: [trainrun.dev]
  resources: [trainruns]
  # delete: spec.ttlAfterFinished. All three: the trials of TrainSweeps
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [trainrun.dev]
  resources: [trainsweeps]
  verbs: [get, list, watch]
- apiGroups: [trainrun.dev]
  resources: [trainruns/status, trainsweeps/status]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* Of each pod: who it is on its node, where it may run, what it may pull. */}}
{{- define "trainrun.podSettings" -}}
enableServiceLinks: false # dozens of services would each add variables that nobody reads
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with concat (default list .Values.global.imagePullSecrets) .Values.imagePullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of each container: our image, and nothing that it could do but run it. */}}
{{- define "trainrun.containerSettings" -}}
image: {{ include "trainrun.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* What every pod of ours may reach: the API server, and names. */}}
{{- define "trainrun.apiEgress" -}}
# The API server.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
# Names.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}
