"""What the API server silently removes from a slice while a feature gate is off (Kubernetes 1.37).

A feature that the stored slice already uses is kept, as on the real server.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

__all__ = ["GATES", "without_disabled"]

_Json = dict[str, Any]


class _Gate(msgspec.Struct, frozen=True):
    """The members that go with a gate: of the spec, of each device, of each consumption, capacity and attribute."""

    spec: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    consumption: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    attribute: tuple[str, ...] = ()


GATES = {
    "DRADeviceTaints": _Gate(device=("taints",)),
    "DRADeviceTaintRules": _Gate(),  # rules are stored all the same; scheduler and eviction do not heed them
    "DRAPartitionableDevices": _Gate(
        spec=("sharedCounters", "perDeviceNodeSelection"),
        device=("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
    ),
    "DRADeviceBindingConditions": _Gate(device=("bindingConditions", "bindingFailureConditions", "bindsToNode")),
    "DRAConsumableCapacity": _Gate(device=("allowMultipleAllocations",), capacity=("requestPolicy",)),
    "DRADeviceCompatibilityGroups": _Gate(consumption=("compatibilityGroups",)),
    "DRANodeAllocatableResources": _Gate(device=("nodeAllocatableResources",)),
    "DRAListTypeAttributes": _Gate(attribute=("bools", "ints", "strings", "versions")),
    "DRAPartitionableDevicesType": _Gate(spec=("partitionTypeAttribute",)),
    "DRAOptionalNodeOperations": _Gate(spec=("skipNodeOperations",)),
}


def without_disabled(new: _Json, old: _Json | None, disabled: Collection[str]) -> _Json:
    """Return the slice as it is stored when the gates ``disabled`` are off."""
    for name in disabled:
        if old is None or _without(old, GATES[name]) == old:
            new = _without(new, GATES[name])
    return new


def _without(obj: _Json, gate: _Gate) -> _Json:
    spec = _dropped(obj.get("spec") or {}, gate.spec)
    if spec.get("devices"):
        spec = {**spec, "devices": [_device(device, gate) for device in spec["devices"]]}
    return {**obj, "spec": spec}


def _device(device: _Json, gate: _Gate) -> _Json:
    device = _dropped(device, gate.device)
    _each(device, "capacity", lambda value: _dropped(value, gate.capacity))
    _each(device, "attributes", lambda value: _dropped(value, gate.attribute))
    if gate.consumption and device.get("consumesCounters"):
        device["consumesCounters"] = [_dropped(item, gate.consumption) for item in device["consumesCounters"]]
    return device


def _each(device: _Json, key: str, change: Callable[[_Json], _Json]) -> None:
    if device.get(key):
        device[key] = {name: change(value) for name, value in device[key].items()}


def _dropped(obj: _Json, members: tuple[str, ...]) -> _Json:
    return {name: value for name, value in obj.items() if name not in members}
