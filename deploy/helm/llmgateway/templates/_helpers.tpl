{{- define "llmgateway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "llmgateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llmgateway.labels" -}}
{{ include "llmgateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "llmgateway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "llmgateway.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "llmgateway.name" .) -}}
{{- end -}}

{{- define "llmgateway.secret" -}}
{{- .Values.secrets.existingSecret | default (include "llmgateway.name" .) -}}
{{- end -}}

{{/* The names of all secrets, as a JSON list. */}}
{{- define "llmgateway.secretNames" -}}
{{- if .Values.secrets.existingSecret -}}
{{- .Values.secrets.names | toJson -}}
{{- else -}}
{{- keys .Values.secrets.values | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{/* What cannot work is said before anything is installed. */}}
{{- define "llmgateway.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set: build the image, push it to your registry (docs/deployment.md), and pass --set image.repository=registry.example.com/team/llmgateway" -}}
{{- end -}}
{{- $names := include "llmgateway.secretNames" . | fromJsonArray -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- if and $several (not (has "DATABASE_URL" $names)) -}}
{{- fail "More than one node needs PostgreSQL: name DATABASE_URL in secrets.names (with secrets.existingSecret) or give it in secrets.values, or set replicas=1 for SQLite" -}}
{{- end -}}
{{- if has "DATABASE_URL" $names -}}
{{- range list "GATEWAY_API_KEY_HASH_SECRET" "GATEWAY_ENCRYPTION_KEY" -}}
{{- if not (has . $names) -}}
{{- fail (printf "Nodes on one database share %s: add it to the secrets, made once and kept" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (eq (int .Values.metrics.port) 0) (not (has "GATEWAY_METRICS_TOKEN" $names)) -}}
{{- fail "metrics.port=0 needs GATEWAY_METRICS_TOKEN among the secrets: without either there are no metrics" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.enabled needs ingress.host" -}}
{{- end -}}
{{- end -}}

{{- define "llmgateway.podSecurity" -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}

{{- define "llmgateway.containerSecurity" -}}
{{- toYaml .Values.containerSecurityContext -}}
{{- end -}}

{{- define "llmgateway.environment" -}}
- name: GATEWAY_ENV
  value: production
- name: GATEWAY_DATA_DIR
  value: /data
- name: PORT
  value: "4001"
- name: WEB_CONCURRENCY
  value: {{ .Values.workers | quote }}
- name: GATEWAY_SERVER_BODIES_MB
  value: {{ .Values.bodiesMb | quote }}
- name: GATEWAY_SERVER_ORGANIZATION_BODIES_MB
  value: {{ div (int .Values.bodiesMb) 2 | quote }}
- name: GATEWAY_SERVER_UPLOADS_MB
  value: {{ .Values.uploadsMb | quote }}
- name: GATEWAY_SERVER_ORGANIZATION_UPLOADS_MB
  value: {{ div (int .Values.uploadsMb) 4 | quote }}
- name: SHUTDOWN_GRACE_PERIOD_MS
  value: {{ mul (int .Values.shutdown.graceSeconds) 1000 | quote }}
{{- if gt (int .Values.metrics.port) 0 }}
- name: GATEWAY_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
- name: GATEWAY_METRICS_HOST
  value: 0.0.0.0
{{- end }}
{{- if and .Values.ingress.enabled (not (hasKey .Values.settings "GATEWAY_SERVER_PUBLIC_URL")) }}
- name: GATEWAY_SERVER_PUBLIC_URL
  value: {{ printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host | quote }}
{{- end }}
{{- with .Values.trustedProxies }}
- name: TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.clientIpHeader }}
- name: CLIENT_IP_HEADER
  value: {{ . | quote }}
{{- end }}
{{- if .Values.config }}
- name: GATEWAY_CONFIG
  value: /etc/llmgateway/gateway.toml
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range include "llmgateway.secretNames" . | fromJsonArray }}
- name: {{ . }}_FILE
  value: /run/secrets/llmgateway/{{ . }}
{{- end }}
{{- end -}}

{{- define "llmgateway.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "llmgateway.secretNames" . | fromJsonArray }}
- name: secrets
  mountPath: /run/secrets/llmgateway
  readOnly: true
{{- end }}
{{- if .Values.config }}
- name: config
  mountPath: /etc/llmgateway
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "llmgateway.volumes" -}}
- name: tmp
  emptyDir: {}
{{- with include "llmgateway.secretNames" . | fromJsonArray }}
- name: secrets
  secret:
    secretName: {{ include "llmgateway.secret" $ }}
    defaultMode: 0440
    items:
      {{- range . }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
{{- end }}
{{- if .Values.config }}
- name: config
  configMap:
    name: {{ include "llmgateway.name" . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
