{{- define "gateway.name" -}}
{{ printf "%s-gateway" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gateway.metadata" -}}
name: {{ include "gateway.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "gateway.labels" . | nindent 2 }}
{{- end }}

{{/* What all kinds of pods have in common. */}}
{{- define "gateway.pod" -}}
{{- $ := . -}}
metadata:
  labels:
    {{- include "gateway.labels" . | nindent 4 }}
  annotations:
    # A change of the config makes new pods.
    checksum/config: {{ .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    # The group of the directory of the socket.
    fsGroup: {{ .Values.group }}
    seccompProfile: { type: RuntimeDefault }
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: gateway
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: ["--config", "/etc/tollfree/gateway.toml"]
      {{- if eq .Values.mode "daemonset" }}
      env:
        # A new pod beside the old one takes its place.
        - { name: TOLLFREE_GATEWAY_TAKE_OVER, value: "true" }
      {{- end }}
      ports:
        - { name: grpc, containerPort: {{ .Values.ports.world }} }
        - { name: metrics, containerPort: {{ .Values.ports.metrics }} }
        - { name: probes, containerPort: {{ .Values.ports.probes }} }
        {{- if .Values.ports.stream }}
        - { name: backends, containerPort: {{ .Values.ports.stream }} }
        {{- end }}
      livenessProbe:
        httpGet: { path: /healthz, port: probes }
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: { path: /readyz, port: probes }
        periodSeconds: 2
        timeoutSeconds: 2
      lifecycle:
        preStop:
          sleep: { seconds: {{ .Values.preStopSeconds }} }
      securityContext:
        runAsUser: {{ .Values.user }}
        runAsGroup: {{ .Values.group }}
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities: { drop: [ALL] }
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: sockets, mountPath: /run/tollfree }
        - { name: config, mountPath: /etc/tollfree/gateway.toml, subPath: gateway.toml, readOnly: true }
        {{- range .Values.secrets }}
        - { name: {{ printf "secret-%s" . }}, mountPath: {{ printf "/etc/tollfree/secrets/%s" . }}, readOnly: true }
        {{- end }}
    {{- if eq .Values.mode "sidecar" }}
    {{- range .Values.backends.containers }}
    - lifecycle:
        preStop:
          sleep: { seconds: {{ $.Values.backendsPreStopSeconds }} }
      securityContext:
        runAsUser: {{ $.Values.backends.user }}
        runAsGroup: {{ $.Values.group }}
        allowPrivilegeEscalation: false
      volumeMounts:
        - { name: sockets, mountPath: /run/tollfree }
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
  volumes:
    - name: sockets
      {{- if eq .Values.mode "daemonset" }}
      hostPath: { path: {{ .Values.hostPath }}, type: DirectoryOrCreate }
      {{- else }}
      emptyDir: { medium: Memory, sizeLimit: 1Mi }
      {{- end }}
    - name: config
      configMap: { name: {{ include "gateway.name" . }} }
    {{- range .Values.secrets }}
    - name: {{ printf "secret-%s" . }}
      secret: { secretName: {{ . }} }
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
