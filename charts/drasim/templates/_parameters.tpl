{{/*
What a claim may tell each driver, as the driver's own decoder has it: a kind, and for each key the rule in words and in CEL,
where v is the value. tests/chart compares it with drasim.opaque.
*/}}
{{- define "drasim.parameters" -}}
apiVersion: dra.example.com/v1alpha1
gpu:
  kind: GpuConfig
  keys:
    powerLimitWatts:
      rule: a whole number from 100 to 700
      cel: type(v) == int && v >= 100 && v <= 700
    computeMode:
      rule: Default or ExclusiveProcess
      cel: v in ['Default', 'ExclusiveProcess']
nic:
  kind: NicConfig
  keys:
    mtu:
      rule: a whole number from 1280 to 9216
      cel: type(v) == int && v >= 1280 && v <= 9216
    interfaceName:
      rule: 1 to 15 characters of a-z, 0-9 and -
      cel: type(v) == string && v.matches('^[a-z0-9-]{1,15}$')
{{- end -}}
