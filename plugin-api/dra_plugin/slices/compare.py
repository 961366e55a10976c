"""Is what the server stores what was wanted? Quantities by value, nil equals empty, times of taints carried over."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dra_plugin.resources import Device, DeviceTaint, ResourceSlice, ResourceSliceSpec, Value

__all__ = ["carried", "dropped", "same", "with_times"]


def same(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> bool:
    """Tell whether both say the same, but for the generation."""
    one = replace(wanted, pool=stored.pool)
    counts = wanted.pool.resource_slice_count == stored.pool.resource_slice_count
    return counts and wanted.pool.name == stored.pool.name and (one == stored or _alike(one, stored))


def _alike(one: Any, other: Any) -> bool:  # noqa: ANN401 - any two parts of a slice
    """Compare part by part; only what differs at first sight is looked into."""
    if one == other or (_is_empty(one) and _is_empty(other)):
        return True
    if isinstance(one, Value) and type(one) is type(other):
        return all(_alike(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return False


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | tuple | list | Mapping) and not value)


def with_times(device: Device, stored: Device | None) -> Device:
    """Return ``device`` with the stored ``timeAdded`` of each taint whose key, value and effect are equal.

    Left out, the server would stamp the time of the write, and every toleration would start anew. That is right for a
    taint of which only the effect is another one: it has held since now, whatever the time that it came with.
    """
    if not device.taints or stored is None or not stored.taints:
        return device
    times = {_identity(taint): taint.time_added for taint in stored.taints if taint.time_added}
    before = {identity[:2]: time for identity, time in times.items()}

    def time_of(taint: DeviceTaint) -> str | None:
        identity = _identity(taint)
        if identity in times:
            return times[identity]
        return taint.time_added if (taint.time_added or "") > before.get(identity[:2], "") else None

    taints = tuple(replace(taint, time_added=time_of(taint)) for taint in device.taints)
    return device if taints == device.taints else replace(device, taints=taints)


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value or "", taint.effect


def carried(wanted: ResourceSlice, stored: ResourceSlice) -> ResourceSlice:
    """Return ``wanted`` with the times of taints that ``stored`` has for the same devices."""
    devices = {device.name: device for device in stored.spec.devices or ()}
    timed = tuple(with_times(device, devices.get(device.name)) for device in wanted.spec.devices or ())
    return replace(wanted, spec=replace(wanted.spec, devices=timed or None))


def dropped(wanted: ResourceSlice, stored: ResourceSlice) -> tuple[str, ...]:
    """Return the fields of ``wanted.spec`` that the server did not keep, as in ``devices[].taints``, once each, sorted.

    Most were removed (a feature gate is off); one that stands there with another value counts as well.
    """
    return tuple(sorted(set(_missing(wanted.spec, stored.spec, ""))))


def _missing(one: Any, other: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any two parts of a slice
    if _is_empty(one) or one == other:
        return
    if _is_empty(other):
        yield path
    elif isinstance(one, Value) and isinstance(other, Value):
        for name, shown in zip(one.__struct_fields__, one.__struct_encode_fields__, strict=True):
            yield from _missing(getattr(one, name), getattr(other, name, None), f"{path}.{shown}".lstrip("."))
    elif isinstance(one, Mapping | tuple):
        there, here = _by_key(other), _by_key(one)
        for key, item in here.items():
            yield from _missing(item, there.get(key), f"{path}[]")
    else:
        yield path


def _by_key(items: Any) -> Mapping[Any, Any]:  # noqa: ANN401 - a map or a list of the API
    """Return the items of a map by key, of a list by name where they have one, else by position."""
    if isinstance(items, Mapping):
        return items
    return {getattr(item, "name", position): item for position, item in enumerate(items)}
