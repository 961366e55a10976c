"""One device: attributes, capacity, counters, taints, binding conditions. Source: dra-1.37.md 3.2 to 3.5."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from dra_plugin.naming.names import (
    LABEL,
    attribute_name_rule,
    is_condition,
    is_label,
    label_key,
    label_value,
)
from dra_plugin.naming.problems import Problems
from dra_plugin.naming.values import fitted_attribute, value_count
from dra_plugin.quantity import Quantity
from dra_plugin.resources import CounterConsumption, Device, DeviceAttribute, DeviceCapacity, DeviceTaint

__all__ = ["fitted_device"]

_NAMES = 32  # attributes and capacities together
_VALUES = 48  # of all attributes, each item of a list counted
_TAINTS = 16
_CONDITIONS = 4
_CONSUMED_SETS = 2
_CONSUMED_COUNTERS = 32
_GROUPS = 2
_STANDARD = "resource.kubernetes.io/"
_EFFECTS = ("NoExecute", "NoSchedule", "None")  # the most important first
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def fitted_device(
    device: Device, driver: str, counters: Mapping[str, Collection[str]], problems: Problems
) -> Device | None:
    """Return ``device`` as the API takes it (the same object if it was fine), or None if it must be left out.

    ``counters`` are the names of the counters of each counter set of the pool.
    """
    rule = _counters_rule(device.consumes_counters or (), counters)
    if rule:
        problems.add("consumesCounters", device.name, f"{rule}; the device is left out")
        return None
    rule = _conditions_rule(device.binding_conditions or (), device.binding_failure_conditions or ())
    if rule:
        problems.add("bindingConditions", device.name, f"{rule}; the device is left out")
        return None
    before = len(problems.found)
    capacity = _fitted_capacity(device.capacity or {}, driver, problems)
    attributes = _fitted_attributes(device.attributes or {}, driver, problems, _NAMES - len(capacity))
    taints = _fitted_taints(device.taints or (), driver, problems)
    _drop_node_selection(device, problems)
    if len(problems.found) == before:
        return device
    changed: dict[str, Any] = {"attributes": attributes, "capacity": capacity, "taints": taints}
    return replace(device, node_name=None, all_nodes=None, **changed)


def _drop_node_selection(device: Device, problems: Problems) -> None:
    for field, value in (("nodeName", device.node_name), ("allNodes", device.all_nodes)):
        if value is not None:
            problems.add(field, value, "only with spec.perDeviceNodeSelection, which a pool of a node does not use")


def _fitted_capacity(
    capacity: Mapping[str, DeviceCapacity], driver: str, problems: Problems
) -> dict[str, DeviceCapacity]:
    kept: dict[str, DeviceCapacity] = {}
    for name, each in capacity.items():
        rule = _name_rule(name, capacity, driver)
        if rule is None and not _is_quantity(each.value):
            rule = "must be a quantity"
        if rule is None and len(kept) == _NAMES:
            rule = f"a device has at most {_NAMES} attributes and capacities"
        if rule is None:
            kept[name] = each
        else:
            problems.add(f"capacity[{name}]", each.value, rule)
    return kept


def _is_quantity(value: object) -> bool:
    return isinstance(value, Quantity)  # msgspec does not check what a program gives it


def _fitted_attributes(
    attributes: Mapping[str, DeviceAttribute], driver: str, problems: Problems, room: int
) -> dict[str, DeviceAttribute]:
    """Keep what fits: the standard attributes first (claims align on them), then in the order given."""
    kept: dict[str, DeviceAttribute] = {}
    values = 0
    for name in _by_importance(attributes, room):
        each, rule = _fitted(name, attributes, driver)
        if each and len(kept) == room:
            each, rule = None, f"a device has at most {_NAMES} attributes and capacities"
        if each and values + value_count(each) > _VALUES:
            each, rule = None, f"the attributes of a device have at most {_VALUES} values"
        if rule:
            problems.add(f"attributes[{name}]", _shown(attributes[name]), rule, _shown(each) if each else None)
        if each:
            kept[name] = each
            values += value_count(each)
    return kept


def _by_importance(attributes: Mapping[str, DeviceAttribute], room: int) -> Collection[str]:
    if len(attributes) <= room:
        return attributes.keys()
    return sorted(attributes, key=lambda name: not name.startswith(_STANDARD))


def _fitted(name: str, all_: Mapping[str, DeviceAttribute], driver: str) -> tuple[DeviceAttribute | None, str | None]:
    rule = _name_rule(name, all_, driver)
    return (None, rule) if rule else fitted_attribute(all_[name])


def _name_rule(name: str, names: Collection[str], driver: str) -> str | None:
    rule = attribute_name_rule(name)
    if rule is None and name.startswith(f"{driver}/") and name[len(driver) + 1 :] in names:
        return f"stands beside {name[len(driver) + 1 :]!r}, which means the same"
    return rule


def _shown(attribute: DeviceAttribute) -> str:
    values = (getattr(attribute, name) for name in attribute.__struct_fields__)
    return ", ".join(str(value) for value in values if value is not None)


def _fitted_taints(taints: tuple[DeviceTaint, ...], driver: str, problems: Problems) -> tuple[DeviceTaint, ...]:
    """Make every taint fit (one that is lost would offer a bad device); beyond 16 the least important are left out."""
    fit = tuple(_fitted_taint(taint, driver, problems) for taint in taints)
    if len(fit) <= _TAINTS:
        return fit
    ranked = sorted(fit, key=lambda taint: _EFFECTS.index(taint.effect))
    for taint in ranked[_TAINTS:]:
        problems.add("taints", f"{taint.key}:{taint.effect}", f"a device has at most {_TAINTS} taints")
    return tuple(ranked[:_TAINTS])


def _fitted_taint(taint: DeviceTaint, driver: str, problems: Problems) -> DeviceTaint:
    key = label_key(taint.key) or f"{driver}/unnamed"
    value = label_value(taint.value) if taint.value else taint.value
    effect = taint.effect if taint.effect in _EFFECTS else "NoSchedule"
    fit = DeviceTaint(key=key, value=value, effect=effect, time_added=_whole_seconds(taint.time_added))
    if fit == taint:
        return taint
    rule = "key and value must be as in labels, the effect NoExecute, NoSchedule or None, timeAdded in whole seconds"
    problems.add("taints", _taint_text(taint), rule, _taint_text(fit))
    return fit


def _taint_text(taint: DeviceTaint) -> str:
    return f"{taint.key}={taint.value or ''}:{taint.effect} {taint.time_added or ''}".strip()


def _whole_seconds(time: str | None) -> str | None:
    match = _TIME.fullmatch(time or "")
    return match[1] + match[2] if match else None


def _counters_rule(consumed: tuple[CounterConsumption, ...], known: Mapping[str, Collection[str]]) -> str | None:
    if len(consumed) > _CONSUMED_SETS:
        return f"a device draws from at most {_CONSUMED_SETS} counter sets"
    if len({each.counter_set for each in consumed}) < len(consumed):
        return "each counter set may be named once"
    return next(filter(None, (_consumption_rule(each, known) for each in consumed)), None)


def _consumption_rule(each: CounterConsumption, known: Mapping[str, Collection[str]]) -> str | None:
    if each.counter_set not in known:
        return f"the pool has no counter set {each.counter_set!r}"
    unknown = sorted(set(each.counters) - set(known[each.counter_set]))
    if unknown:
        return f"the counter set {each.counter_set!r} has no counter {unknown[0]!r}"
    if not 1 <= len(each.counters) <= _CONSUMED_COUNTERS:
        return f"1 to {_CONSUMED_COUNTERS} counters of a set must be named"
    groups = each.compatibility_groups or ()
    if len(groups) > _GROUPS or len(set(groups)) < len(groups) or not all(map(is_label, groups)):
        return f"at most {_GROUPS} compatibility groups, different ones, each {LABEL}"
    return None


def _conditions_rule(conditions: tuple[str, ...], failures: tuple[str, ...]) -> str | None:
    if bool(conditions) != bool(failures):
        return "bindingConditions and bindingFailureConditions need each other"
    if max(len(conditions), len(failures)) > _CONDITIONS:
        return f"at most {_CONDITIONS} of each"
    if len({*conditions, *failures}) < len(conditions) + len(failures):
        return "each condition may be named once"
    if not all(map(is_condition, (*conditions, *failures))):
        return "a condition must have the syntax of a label's key"
    return None
