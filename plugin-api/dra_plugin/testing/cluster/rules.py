"""What the API server checks, fills in and removes when ResourceSlices are written (Kubernetes 1.37).

Objects are plain JSON here. The limits are those that a driver can run into; dra-plugin's ``naming`` knows them all.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["EFFECTS", "name_problems", "now", "pruned", "slice_problems", "stamped"]

_Json = dict[str, Any]
_Problem = tuple[str, str]

EFFECTS = ("None", "NoSchedule", "NoExecute")
"""The effects of a taint."""
_NODE_CHOICES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_MOST_DEVICES = 128
_MOST_ADVANCED_DEVICES = 64
_MOST_COUNTER_SETS = 8
_MOST_TAINTS = 16
_MOST_NAMED_VALUES = 32
_MOST_TEXT = 64
_MOST_NAME = 63
_LISTS = ("bools", "ints", "strings", "versions")
_MEMBERS = ("bool", "int", "string", "version", *_LISTS)
_IMMUTABLE = (("driver",), ("nodeName",), ("pool", "name"))


def now() -> str:
    """Return the time as the API writes it: UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamped(obj: _Json) -> _Json:
    """Return the slice with ``timeAdded`` filled in for taints that have none; carried values are kept."""
    spec = obj.get("spec") or {}
    if not any(device.get("taints") for device in spec.get("devices") or ()):
        return obj
    devices = [_stamped_device(device) for device in spec["devices"]]
    return {**obj, "spec": {**spec, "devices": devices}}


def _stamped_device(device: _Json) -> _Json:
    if not device.get("taints"):
        return device
    return {**device, "taints": [{**taint, "timeAdded": taint.get("timeAdded") or now()} for taint in device["taints"]]}


def pruned(value: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON without nulls and empty lists, which the API's storage does not keep."""
    if isinstance(value, dict):
        return {name: pruned(item, name) for name, item in value.items() if not _empty(name, item)}
    if isinstance(value, list):
        return [pruned(item, key) for item in value]
    return value


def _empty(key: str, value: object) -> bool:
    maps = ("attributes", "capacity", "labels", "annotations")
    return value is None or value == [] or (value == {} and key in maps)


def name_problems(meta: _Json) -> Iterator[_Problem]:
    """Yield what is wrong with the name of a new object, or with what it was generated from."""
    prefix = meta.get("generateName") or ""
    checks = (("metadata.name", meta["name"]), ("metadata.generateName", prefix.removesuffix("-") or "x"))
    for field, name in checks:
        if not all(map(_is_label, name.split("."))):
            yield field, "must be a DNS subdomain"


def slice_problems(new: _Json, old: _Json | None) -> Iterator[_Problem]:
    """Yield what is wrong with a slice that is written: field and rule."""
    spec: _Json = new.get("spec") or {}
    yield from _pool_problems(spec)
    yield from _immutable_problems(spec, (old or {}).get("spec"))
    chosen = [name for name in _NODE_CHOICES if spec.get(name)]
    if len(chosen) != 1:
        yield "spec", f"exactly one of {', '.join(_NODE_CHOICES)} is required"
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield "spec", "only one of sharedCounters or devices is allowed"
    if len(spec.get("sharedCounters") or ()) > _MOST_COUNTER_SETS:
        yield "spec.sharedCounters", f"must have at most {_MOST_COUNTER_SETS} items"
    yield from _devices_problems(spec.get("devices") or [])


def _pool_problems(spec: _Json) -> Iterator[_Problem]:
    pool = spec.get("pool") or {}
    if not spec.get("driver") or len(spec["driver"]) > _MOST_NAME:
        yield "spec.driver", f"is required, at most {_MOST_NAME} characters"
    if not pool.get("name"):
        yield "spec.pool.name", "is required"
    if pool.get("resourceSliceCount", 0) <= 0:
        yield "spec.pool.resourceSliceCount", "must be greater than zero"
    if pool.get("generation", 0) < 0:
        yield "spec.pool.generation", "must be greater than or equal to zero"


def _immutable_problems(spec: _Json, old: _Json | None) -> Iterator[_Problem]:
    if old is None:
        return
    for path in _IMMUTABLE:
        if _at(spec, path) != _at(old, path):
            yield ".".join(("spec", *path)), "field is immutable"


def _at(obj: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON
    for part in path:
        obj = (obj or {}).get(part)
    return obj


def _devices_problems(devices: list[_Json]) -> Iterator[_Problem]:
    limit = _MOST_ADVANCED_DEVICES if any(map(_advanced, devices)) else _MOST_DEVICES
    if len(devices) > limit:
        yield "spec.devices", f"Too many: {len(devices)}: must have at most {limit} items"
    seen: set[str] = set()
    for index, device in enumerate(devices):
        path = f"spec.devices[{index}]"
        name = device.get("name") or ""
        if not _is_label(name):
            yield f"{path}.name", "must be a DNS label"
        if name in seen:
            yield path, f"Duplicate value: {name}"
        seen.add(name)
        yield from _device_problems(device, path)


def _advanced(device: _Json) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(member in value for value in (device.get("attributes") or {}).values() for member in _LISTS)


def _is_label(name: str) -> bool:
    inner = name.replace("-", "")
    plain = inner.isascii() and inner.isalnum() and inner == inner.lower()
    return plain and 0 < len(name) <= _MOST_NAME and name[0] != "-" and name[-1] != "-"


def _device_problems(device: _Json, path: str) -> Iterator[_Problem]:
    attributes: Mapping[str, _Json] = device.get("attributes") or {}
    if len(attributes) + len(device.get("capacity") or {}) > _MOST_NAMED_VALUES:
        yield path, f"the total number of attributes and capacities must not exceed {_MOST_NAMED_VALUES}"
    for name, value in attributes.items():
        yield from _attribute_problems(value, f"{path}.attributes[{name}]")
    taints = device.get("taints") or ()
    if len(taints) > _MOST_TAINTS:
        yield f"{path}.taints", f"must have at most {_MOST_TAINTS} items"
    for index, taint in enumerate(taints):
        if taint.get("effect") not in EFFECTS:
            yield f"{path}.taints[{index}].effect", f"supported values: {', '.join(EFFECTS)}"


def _attribute_problems(value: _Json, path: str) -> Iterator[_Problem]:
    members = [member for member in _MEMBERS if value.get(member) is not None]
    if len(members) != 1:
        yield path, "exactly one value must be specified"
    for member in ("string", "version"):
        if len((value.get(member) or "").encode()) > _MOST_TEXT:
            yield f"{path}.{member}", f"may not be more than {_MOST_TEXT} bytes"
