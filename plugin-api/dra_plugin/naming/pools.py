"""A whole pool: its name, its counter sets, and the names of its devices."""

from collections import Counter as Tally
from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from dra_plugin.naming.devices import fitted_device
from dra_plugin.naming.names import LABEL, device_name, is_label, pool_name
from dra_plugin.naming.problems import Problem, Problems
from dra_plugin.quantity import Quantity
from dra_plugin.resources import CounterSet, Device, Pool

__all__ = ["Checked", "checked"]

_COUNTERS = 32  # of one set


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that the API takes, and what had to be changed for that."""

    pool: Pool
    problems: tuple[Problem, ...] = ()


class _Limits(msgspec.Struct, frozen=True):
    """What a device is checked against: the driver's name, the pool's counters by set, devices known to be fine."""

    driver: str
    counters: Mapping[str, Collection[str]]
    fine: Mapping[str, Device]


def checked(pool: Pool, driver: str, last: Checked | None = None) -> Checked:
    """Return ``pool`` as it can be published by ``driver``; parts that were fine are the same objects.

    ``last`` is what an earlier check for this driver returned: devices that are still as they were then need no look,
    which matters where one device of many changes.
    """
    found: list[Problem] = []
    name = _checked_name(pool.name, found)
    counters = _checked_counters(pool.counters, found)
    known = {each.name: each.counters for each in counters}
    fine = {each.name: each for each in last.pool.devices} if last and last.pool.counters == counters else {}
    devices = _checked_devices(pool.devices, _Limits(driver, known, fine), found)
    if not found:
        return Checked(pool=pool)
    return Checked(pool=Pool(name=name, devices=devices, counters=counters), problems=tuple(found))


def _checked_name(name: str, found: list[Problem]) -> str:
    try:
        fit = pool_name(name)
    except ValueError:
        fit = "pool"
    if fit != name:
        rule = "must be DNS subdomains joined by '/', 253 characters at most"
        Problems("", found).add("pool.name", name, rule, fit)
    return fit


def _checked_counters(sets: tuple[CounterSet, ...], found: list[Problem]) -> tuple[CounterSet, ...]:
    """Keep the counter sets that the API takes; devices that draw from another one are left out later."""
    names = Tally(each.name for each in sets)
    kept = []
    for each in sets:
        rule = _counter_set_rule(each, names)
        if rule is None:
            kept.append(each)
        else:
            Problems(f"counter set {each.name}", found).add("sharedCounters", each.name, rule)
    return tuple(kept)


def _counter_set_rule(each: CounterSet, names: Mapping[str, int]) -> str | None:
    if not is_label(each.name):
        return f"the name must be {LABEL}"
    if names[each.name] > 1:
        return "the name must be unique in the pool"
    if not 1 <= len(each.counters) <= _COUNTERS:
        return f"must have 1 to {_COUNTERS} counters"
    if not all(map(is_label, each.counters)):
        return f"the names of counters must be {LABEL}"
    if not all(isinstance(counter.value, Quantity) for counter in each.counters.values()):
        return "counters must be quantities"
    return None


def _checked_devices(devices: tuple[Device, ...], limits: _Limits, found: list[Problem]) -> tuple[Device, ...]:
    kept: dict[str, Device] = {}
    for device in devices:
        if device.name not in kept and limits.fine.get(device.name) == device:
            kept[device.name] = device
            continue
        problems = Problems(device.name, found)
        named = _named(device, kept, problems)
        fit = named and fitted_device(named, limits.driver, limits.counters, problems)
        if fit:
            kept[fit.name] = fit
    return tuple(kept.values())


def _named(device: Device, taken: Collection[str], problems: Problems) -> Device | None:
    try:
        name = device_name(device.name)
    except ValueError:
        problems.add("name", device.name, f"must be {LABEL}; the device is left out")
        return None
    if name in taken:
        problems.add("name", device.name, "must be unique in the pool; the device is left out")
        return None
    if name == device.name:
        return device
    problems.add("name", device.name, f"must be {LABEL}", name)
    return replace(device, name=name)
