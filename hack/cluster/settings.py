"""What the user sets for single components: `--set COMPONENT.key=value`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hack.cluster.errors import UsageError

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
PER_NODE = ("containerd", "kubelet")
COMPONENTS = (*CONTROL_PLANE, *PER_NODE)
CONFIGURED = ("kube-scheduler", "kubelet")
"""These read a configuration file; the others take flags only."""


@dataclass(frozen=True)
class Settings:
    """Settings of one component: flags, and fields of its configuration file by path."""

    flags: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def parse(words: Iterable[str]) -> dict[str, Settings]:
    """Return the settings of every component from words like `kubelet.syncFrequency=5s`.

    A key that starts with `--` is a flag of the component. Another key is a field of the component's configuration
    file where it has one (kubelet, kube-scheduler; `kube-scheduler.plugin.NAME.FIELD` sets an argument of a plugin),
    else a flag. A field's value is JSON where it can be read as such, else text.
    """
    flags: dict[str, dict[str, str]] = {name: {} for name in COMPONENTS}
    fields: dict[str, dict[str, Any]] = {name: {} for name in COMPONENTS}
    for word in words:
        component, key, value = _split(word)
        if key.startswith("--") or component not in CONFIGURED:
            flags[component][key.removeprefix("--")] = value
        else:
            fields[component][key] = _value(value)
    return {name: Settings(flags[name], fields[name]) for name in COMPONENTS}


def _split(word: str) -> tuple[str, str, str]:
    path, equals, value = word.partition("=")
    component, dot, key = path.partition(".")
    if not (equals and dot and key):
        msg = f"--set {word}: expected COMPONENT.key=value, for example kubelet.syncFrequency=5s"
        raise UsageError(msg)
    if component not in COMPONENTS:
        msg = f"--set {word}: no component {component!r}; there are {', '.join(COMPONENTS)}"
        raise UsageError(msg)
    return component, key, value


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def with_fields(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with fields set by their dotted paths; what is not named stays."""
    result = dict(config)
    for path, value in fields.items():
        result = _with_field(result, path.split("."), value)
    return result


def _with_field(config: Mapping[str, Any], path: list[str], value: object) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**config, first: value}
    inner = config.get(first, {})
    if not isinstance(inner, dict):
        msg = f"--set: {first} is no object, so {'.'.join(rest)} cannot be set in it"
        raise UsageError(msg)
    return {**config, first: _with_field(inner, rest, value)}
