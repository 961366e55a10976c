{{/* The name of all objects. */}}
{{- define "drasim.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "drasim.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "drasim.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "drasim.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "drasim.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "drasim.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The folders of the host that the driver uses, as its own configuration derives them: one absolute path a line. */}}
{{- define "drasim.registry" -}}
{{- .Values.config.paths.registry | default (printf "%s/plugins_registry" .Values.config.paths.kubelet) -}}
{{- end -}}

{{- define "drasim.plugins" -}}
{{- .Values.config.paths.plugins | default (printf "%s/plugins" .Values.config.paths.kubelet) -}}
{{- end -}}

{{/* The port of config.probes.address, empty for none. */}}
{{- define "drasim.probesPort" -}}
{{- regexFind "[0-9]+$" (.Values.config.probes.address | default "") -}}
{{- end -}}

{{/* The names of the drivers that run, as a JSON list. */}}
{{- define "drasim.drivers" -}}
{{- $drivers := list -}}
{{- if ne .Values.config.gpu.hardware "off" }}{{ $drivers = append $drivers .Values.config.gpu.driver }}{{ end -}}
{{- if ne .Values.config.nic.hardware "off" }}{{ $drivers = append $drivers .Values.config.nic.driver }}{{ end -}}
{{- if not $drivers }}{{ fail "config.gpu.hardware and config.nic.hardware are both off: nothing to run" }}{{ end -}}
{{- if eq .Values.config.gpu.driver .Values.config.nic.driver }}{{ fail "config.gpu.driver and config.nic.driver must differ" }}{{ end -}}
{{- $drivers | toJson -}}
{{- end -}}

{{/* Seconds of grace for the Pod: what config.drain says (20, "20s", "2m"), and ten more. */}}
{{- define "drasim.grace" -}}
{{- addf (include "drasim.seconds" (toString .Values.config.drain) | float64) 10 | ceil | int -}}
{{- end -}}

{{/* The seconds of a time, such as "20", "500ms", "2m"; Helm writes large numbers with an exponent. */}}
{{- define "drasim.seconds" -}}
{{- $number := regexFind "^[0-9.]+(e[+-][0-9]+)?" . | float64 -}}
{{- $unit := regexFind "(ms|s|m|h)$" . | default "s" -}}
{{- mulf $number (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit) -}}
{{- end -}}

{{/* The name of what belongs to the controller: its Deployment, account, rights, Lease; the stem of its status. */}}
{{- define "drasim.controllerName" -}}
{{- printf "%s-controller" (include "drasim.fullname" . | trunc 44 | trimSuffix "-") -}}
{{- end -}}

{{/* Other labels than the DaemonSet's, whose selector cannot change: neither may take the other's Pods for its own. */}}
{{- define "drasim.controllerSelectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "drasim.controllerLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "drasim.controllerSelectorLabels" . }}
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "drasim.controllerServiceAccountName" -}}
{{- if .Values.controller.serviceAccount.create -}}
{{- .Values.controller.serviceAccount.name | default (include "drasim.controllerName" .) -}}
{{- else -}}
{{- required "controller.serviceAccount.name is needed when controller.serviceAccount.create is false" .Values.controller.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/*
The configuration as the processes read it: the values, and the names that follow from the release. What owns the controller's
rules is its ClusterRole: uninstalling removes it, and Kubernetes then the rules.
*/}}
{{- define "drasim.config" -}}
{{- $name := include "drasim.controllerName" . -}}
{{- $owner := ternary $name "" .Values.rbac.create -}}
{{- $names := dict "name" $name "namespace" .Release.Namespace "owner" $owner -}}
{{- merge (dict "controller" $names) .Values.config | toYaml -}}
{{- end -}}
