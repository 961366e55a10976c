{{- /*
What the schema cannot say of the configuration is refused here, as drasim.config does it (a test compares both): a policy that
could never fire, or that names a driver which does not run here, ends the installation and not the controller.
*/}}

{{- /* What can be wrong, and the kinds of devices that it befalls: drasim.config.problems.PROBLEM_KINDS. */}}
{{- define "drasim.problemKinds" -}}
lost: [gpu, nic]
down: [gpu, nic]
unplugged: [gpu, nic]
xid: [gpu]
ecc-uncorrectable: [gpu]
nvlink: [gpu]
thermal: [gpu]
link-down: [nic]
link-flap: [nic]
crc-errors: [nic]
probe-hangs: [gpu, nic]
{{- end }}

{{- /* What only informs by default; all else keeps new claims away. */}}
{{- define "drasim.informing" -}}
{thermal: None, crc-errors: None, xid/13: None, xid/31: None, xid/43: None, xid/45: None, xid/68: None, xid/109: None}
{{- end }}

{{- define "drasim.checkConfig" -}}
{{- $problems := .Values.config.problems | default dict }}
{{- $controller := .Values.config.controller | default dict }}
{{- range $key := list "clearAfter" "clearAfterMost" "silentAfter" }}
{{- include "drasim.checkTime" (dict "key" (printf "problems.%s" $key) "value" (get $problems $key) "least" "1ms") }}
{{- end }}
{{- include "drasim.checkTime" (dict "key" "controller.goneAfter" "value" (get $controller "goneAfter") "least" "1ms") }}
{{- include "drasim.checkTime" (dict "key" "drain" "value" .Values.config.drain "least" "1ms") }}
{{- include "drasim.checkTime" (dict "key" "periods.look" "value" (dig "periods" "look" "" .Values.config) "least" "1ms") }}
{{- range $index, $entry := $controller.evict }}
{{- range $key := list "after" "recoverAfter" }}
{{- include "drasim.checkTime" (dict "key" (printf "controller.evict[%d].%s" $index $key) "value" (get $entry $key) "least" "0s") }}
{{- end }}
{{- end }}
{{- include "drasim.checkPolicy" . }}
{{- end }}

{{- /* A time (key, value, least): at most 24h. What it looks like the schema has checked; 0 where that is not allowed. */}}
{{- define "drasim.checkTime" -}}
{{- $text := toString .value }}
{{- if $text }}
{{- $seconds := include "drasim.seconds" $text | float64 }}
{{- $shortest := include "drasim.seconds" .least | float64 }}
{{- if or (lt $seconds $shortest) (gt $seconds 86400.0) }}
{{- fail (printf "config.%s: %q is not allowed; allowed: %s to 24h" .key $text .least) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "drasim.checkPolicy" -}}
{{- $kinds := include "drasim.problemKinds" . | fromYaml }}
{{- $given := dig "problems" "effects" dict .Values.config | default dict }}
{{- $effects := merge dict $given (include "drasim.informing" . | fromYaml) }}
{{- $drivers := dict }}
{{- range $kind := list "gpu" "nic" }}
{{- $section := index $.Values.config $kind }}
{{- if ne $section.hardware "off" }}{{ $_ := set $drivers $section.driver $kind }}{{ end }}
{{- end }}
{{- $seen := dict }}
{{- range $index, $entry := dig "controller" "evict" list .Values.config }}
{{- $at := printf "config.controller.evict[%d]" $index }}
{{- $driver := $entry.driver | default "" }}
{{- if and $driver (not (hasKey $drivers $driver)) }}
{{- fail (printf "%s.driver: %q is not a driver of this configuration; allowed: %s, or empty for both" $at $driver (keys $drivers | sortAlpha | join ", ")) }}
{{- end }}
{{- include "drasim.checkCodes" (dict "at" $at "entry" $entry "effects" $effects) }}
{{- $able := list }}
{{- $fresh := false }}
{{- range $name, $kind := $drivers }}
{{- if has $kind (index $kinds $entry.problem) }}
{{- $able = append $able $name }}
{{- if or (not $driver) (eq $driver $name) }}
{{- /* A code, or "" for all of them, as it stands in the earlier entries of this problem and driver. */}}
{{- range $code := $entry.codes | default (list "") }}
{{- $mark := printf "%s/%s/" $name $entry.problem }}
{{- if not (or (hasKey $seen $mark) (hasKey $seen (print $mark $code))) }}{{ $fresh = true }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (or (has $driver $able) (and $able (not $driver))) }}
{{- fail (printf "%s.driver: %q never befalls its devices; allowed: %s" $at $entry.problem (join ", " $able | default "no driver that is switched on")) }}
{{- end }}
{{- if not $fresh }}
{{- fail (printf "%s.problem: %q never gets here: earlier entries have all of it; allowed: before them" $at $entry.problem) }}
{{- end }}
{{- range $name := $able }}
{{- if or (not $driver) (eq $driver $name) }}
{{- range $code := $entry.codes | default (list "") }}{{ $_ := set $seen (printf "%s/%s/%s" $name $entry.problem $code) true }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "drasim.checkCodes" -}}
{{- $problem := .entry.problem }}
{{- range $number, $code := .entry.codes }}
{{- $at := printf "%s.codes[%d]: %q" $.at $number $code }}
{{- if not (has $problem (list "xid" "down")) }}
{{- fail (printf "%s is not allowed; allowed: no codes, %q has none" $at $problem) }}
{{- else if and (eq $problem "xid") (not (regexMatch "^[1-9][0-9]{0,2}$" $code)) }}
{{- fail (printf "%s is not allowed; allowed: a number from 1 to 999" $at) }}
{{- else if eq "None" (get $.effects (printf "%s/%s" $problem $code) | default (get $.effects $problem)) }}
{{- fail (printf "%s only informs; allowed: codes with the effect NoSchedule" $at) }}
{{- end }}
{{- end }}
{{- $some := ne "None" (get $.effects $problem) }}
{{- range $key, $effect := $.effects }}
{{- if and (hasPrefix (print $problem "/") $key) (eq $effect "NoSchedule") }}{{ $some = true }}{{ end }}
{{- end }}
{{- if not (or .entry.codes $some) }}
{{- fail (printf "%s.problem: %q only informs; allowed: problems with the effect NoSchedule" $.at $problem) }}
{{- end }}
{{- end }}
