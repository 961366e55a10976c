"""Which slice holds what: from scratch in order of preference, or as stored with the least change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dra_plugin.resources import CounterSet, Device, Pool, ResourceSlice
from dra_plugin.slices.compare import with_times

__all__ = ["DEVICES_PER_SLICE", "SETS_PER_SLICE", "Content", "fresh", "settled", "timed"]

DEVICES_PER_SLICE = 64
SETS_PER_SLICE = 8

T = TypeVar("T", Device, CounterSet)
_Slot = Sequence[str] | None  # the names in a stored slice; None = the slice is missing


class Content(msgspec.Struct, frozen=True):
    """What one slice holds: devices or counter sets, or neither."""

    devices: tuple[Device, ...] = ()
    counters: tuple[CounterSet, ...] = ()


def fresh(pool: Pool) -> tuple[Content, ...]:
    """Split ``pool`` in its own order; a pool without devices has one empty slice for them."""
    sets = tuple(Content(counters=part) for part in _chunks(pool.counters, SETS_PER_SLICE))
    return sets + tuple(Content(devices=part) for part in _chunks(pool.devices, DEVICES_PER_SLICE) or ((),))


def settled(pool: Pool, stored: Mapping[int, ResourceSlice], count: int) -> tuple[Content, ...] | None:
    """Return the layout that leaves all in the slice (0 to ``count`` - 1) that holds it now.

    What is new goes to the slice that changes anyway, or to one near its neighbour in the order. None when that needs
    another number of slices, or when the stored layout is not one of ours.
    """
    first = 1 + max((index for index, each in stored.items() if each.spec.shared_counters), default=-1)
    sets = [_names(stored.get(index), "shared_counters") for index in range(first)]
    devices = [_names(stored.get(index), "devices") for index in range(first, count)]
    if any(_names(stored.get(index), "devices") for index in range(first)) or not devices:
        return None
    placed_sets = _placed(pool.counters, sets, SETS_PER_SLICE)
    placed = _placed(pool.devices, devices, DEVICES_PER_SLICE)
    if placed_sets is None or placed is None or not all(placed_sets):
        return None
    return (*(Content(counters=part) for part in placed_sets), *(Content(devices=part) for part in placed))


def timed(contents: Iterable[Content], stored: Iterable[ResourceSlice]) -> tuple[Content, ...]:
    """Return ``contents`` with the times of taints that are stored for the same devices."""
    known = {device.name: device for each in stored for device in each.spec.devices or () if device.taints}
    if not known:
        return tuple(contents)
    return tuple(
        Content(tuple(with_times(device, known.get(device.name)) for device in each.devices), each.counters)
        for each in contents
    )


def _chunks(items: tuple[T, ...], size: int) -> tuple[tuple[T, ...], ...]:
    return tuple(items[start : start + size] for start in range(0, len(items), size))


def _names(stored: ResourceSlice | None, field: str) -> _Slot:
    return tuple(each.name for each in getattr(stored.spec, field) or ()) if stored else None


def _placed(items: tuple[T, ...], slots: list[_Slot], size: int) -> list[tuple[T, ...]] | None:
    """Return what each slot holds, in the order of ``items``; None when the new ones do not fit into one slot."""
    if not slots:
        return None if items else []
    home = {name: index for index, names in enumerate(slots) for name in names or ()}
    new = [item.name for item in items if item.name not in home]
    if new:
        index = _slot_for_new(items, slots, home, size - len(new))
        if index is None:
            return None
        home.update(dict.fromkeys(new, index))
    placed: list[list[T]] = [[] for _ in slots]
    for item in items:
        placed[home[item.name]].append(item)
    return [tuple(part) for part in placed] if all(len(part) <= size for part in placed) else None


def _slot_for_new(items: tuple[T, ...], slots: list[_Slot], home: Mapping[str, int], room: int) -> int | None:
    """Return the slot with room for all new items: one that changes anyway first, then the nearest in the order."""
    wanted = {item.name for item in items}
    kept = [sum(name in wanted for name in slot or ()) for slot in slots]
    calm = [slot is not None and count == len(slot) for slot, count in zip(slots, kept, strict=True)]
    near = _neighbour(items, home)
    fits = [index for index, count in enumerate(kept) if count <= room]
    return min(fits, key=lambda index: (calm[index], abs(index - near), index), default=None)


def _neighbour(items: tuple[T, ...], home: Mapping[str, int]) -> int:
    """Return the slot of the item before the first new one (the first slot if there is none)."""
    near = 0
    for item in items:
        if item.name not in home:
            break
        near = home[item.name]
    return near
