"""Objects in, rows out. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dra_plugin.claims import ConsumerReference, ResourceClaim
from dra_plugin.resources import DeviceTaint, DeviceTaintRule, DeviceTaintSelector
from drasim.cli.status.objects import Slice, SliceDevice, Snapshot, is_group
from drasim.config.problems import PROBLEM_KINDS
from drasim.controller.status import DeviceStatus
from drasim.devices import pool_name
from drasim.faults import DeviceFault, DeviceFaultStatus
from drasim.hardware import Kind

__all__ = ["ControllerRow", "DeviceRow", "ProblemRow", "RuleRow", "Scope", "TaintRow", "UseRow", "concerns", "view"]

_Key = tuple[str, str, str]  # driver, pool, device


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be shown.

    Attributes:
        drivers: names of the drivers, that of GPUs first.
        pools: names of the pools of the one Node that is asked for; None for all Nodes.
    """

    drivers: tuple[str, ...]
    pools: frozenset[str] | None = None

    def has(self, driver: str, pool: str) -> bool:
        """Tell whether devices of that pool are to be shown."""
        return driver in self.drivers and (self.pools is None or pool in self.pools)


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What every part of the output is. Times are RFC 3339 in whole seconds; empty where nobody says."""


class ProblemRow(Row, frozen=True, kw_only=True):
    """A problem that the driver says the device has; one that DeviceFaults alone tell of has no effect."""

    kind: str
    code: str = ""
    since: str = ""
    effect: str = ""


class TaintRow(Row, frozen=True, kw_only=True):
    """A taint of the slice that is no problem of the driver's."""

    key: str
    value: str = ""
    effect: str
    since: str = ""


class RuleRow(Row, frozen=True, kw_only=True):
    """A DeviceTaintRule that hits the device, whoever made it."""

    name: str
    key: str
    value: str = ""
    effect: str
    since: str = ""


class ControllerRow(Row, frozen=True, kw_only=True):
    """What `drasim controller` has in mind with the device; see ``drasim.controller.status.DeviceState``."""

    state: str
    reason: str = ""
    until: str = ""
    rule: str = ""


class UseRow(Row, frozen=True, kw_only=True):
    """A claim that holds the device, and the Pods that it is reserved for, all of one namespace.

    Attributes:
        namespace: of claim and Pods.
        claim: its name.
        pods: names of Pods; a PodGroup whose Pods are not known is ``podgroup/<name>``.
        admin_access: the claim is for watching over the device and keeps nobody away.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...] = ()
    admin_access: bool = False


class DeviceRow(Row, frozen=True, kw_only=True):
    """One device.

    Attributes:
        node: its Node, empty where nobody says.
        driver, pool, device: as in slices and claims.
        published: a slice has it.
        health: what its slice says: Healthy, Unhealthy, Unknown; empty when it says nothing.
        problems: what its slice says that is wrong with it; DeviceFaults where no slice has it.
        taints: what else taints it in its slice.
        rules: rules that hit it.
        controller: what the controller has in mind with it.
        used_by: claims that it is allocated to.
    """

    node: str = ""
    driver: str
    pool: str
    device: str
    published: bool = True
    health: str = ""
    problems: tuple[ProblemRow, ...] = ()
    taints: tuple[TaintRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    controller: ControllerRow | None = None
    used_by: tuple[UseRow, ...] = ()


def view(snapshot: Snapshot, scope: Scope) -> tuple[DeviceRow, ...]:
    """Return a row for each device in scope: what is published, and what is held or sick though nobody publishes it.

    A node leaves out devices that are unplugged, and sick ones where the server drops taints. Ordered by Node, pool and
    device; of a pool only the slices of its newest generation count.
    """
    uses = _uses(snapshot, scope)
    plans = {(each.driver, each.pool, each.device): each for each in _planned(snapshot)}
    published = dict(_published(snapshot.slices, scope))
    nodes = {(key[0], key[1]): row.node for key, row in published.items()}
    sick = _befallen(snapshot.faults, scope)
    hidden = (key for key in (*uses, *plans, *sick) if scope.has(key[0], key[1]))
    rows = {key: _unpublished(key, nodes, plans.get(key), sick.get(key, ())) for key in hidden}
    return tuple(
        msgspec.structs.replace(
            row,
            rules=tuple(_rules(snapshot.rules, key)),
            controller=_controller(plans.get(key)),
            used_by=uses.get(key, ()),
        )
        for key, row in sorted({**rows, **published}.items(), key=lambda item: _order(item[1]))
    )


def concerns(row: DeviceRow) -> bool:
    """Tell whether the device is worth a look: something is wrong with it, somebody taints it, or it is in use."""
    unwell = row.health not in ("", "Healthy") or not row.published
    return unwell or bool(row.problems or row.taints or row.rules or row.controller or row.used_by)


def _published(slices: Iterable[Slice], scope: Scope) -> Iterator[tuple[_Key, DeviceRow]]:
    ours = [each for each in slices if scope.has(each.spec.driver, each.spec.pool.name)]
    newest: dict[tuple[str, str], int] = {}
    for each in ours:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(each.spec.pool.generation, newest.get(pool, 0))
    for each in ours:
        driver, pool_name = each.spec.driver, each.spec.pool.name
        if each.spec.pool.generation == newest[driver, pool_name]:
            for device in each.spec.devices or ():
                yield (driver, pool_name, device.name), _row(each, device)


def _row(each: Slice, device: SliceDevice) -> DeviceRow:
    taints = device.taints or ()
    kinds = {taint: _kind(each.spec.driver, taint) for taint in taints}
    health = device.attributes.health if device.attributes else None
    return DeviceRow(
        node=each.spec.node_name or "",
        driver=each.spec.driver,
        pool=each.spec.pool.name,
        device=device.name,
        health=(health.string or "") if health else "",
        problems=tuple(_problem(kinds[taint], taint) for taint in taints if kinds[taint]),
        taints=tuple(_taint(taint) for taint in taints if not kinds[taint]),
    )


def _befallen(faults: Iterable[DeviceFault], scope: Scope) -> Mapping[_Key, tuple[DeviceFault, ...]]:
    """Return the faults that befall each device now."""
    gpu, nic = scope.drivers
    found: dict[_Key, tuple[DeviceFault, ...]] = {}
    for fault in faults:
        status = fault.status or DeviceFaultStatus()
        for name in (status.devices or ()) if status.phase == "Active" else ():
            kind: Kind = "gpu" if name.startswith("gpu-") else "nic"
            key = (gpu if kind == "gpu" else nic, pool_name(fault.spec.node, kind), name)
            found[key] = (*found.get(key, ()), fault)
    return found


def _unpublished(
    key: _Key, nodes: Mapping[tuple[str, str], str], plan: DeviceStatus | None, faults: tuple[DeviceFault, ...]
) -> DeviceRow:
    driver, pool, device = key
    node = nodes.get((driver, pool)) or (plan.node if plan else "") or (faults[0].spec.node if faults else "")
    return DeviceRow(
        node=node, driver=driver, pool=pool, device=device, published=False, problems=tuple(map(_told, faults))
    )


def _told(fault: DeviceFault) -> ProblemRow:
    since = fault.status.first_seen if fault.status else None
    return ProblemRow(kind=fault.spec.kind, code=fault.spec.code or "", since=since or "")


def _kind(driver: str, taint: DeviceTaint) -> str:
    """Return the kind of problem that a taint stands for; empty for a taint that is none of the driver's problems."""
    domain, _, kind = taint.key.rpartition("/")
    return kind if domain == driver and kind in PROBLEM_KINDS else ""


def _problem(kind: str, taint: DeviceTaint) -> ProblemRow:
    return ProblemRow(kind=kind, code=taint.value or "", since=taint.time_added or "", effect=taint.effect)


def _taint(taint: DeviceTaint) -> TaintRow:
    return TaintRow(key=taint.key, value=taint.value or "", effect=taint.effect, since=taint.time_added or "")


def _rules(rules: Iterable[DeviceTaintRule], key: _Key) -> Iterator[RuleRow]:
    for rule in rules:
        if _hits(rule.spec.device_selector, key):
            taint = _taint(rule.spec.taint)
            yield RuleRow(
                name=rule.metadata.name or "", key=taint.key, value=taint.value, effect=taint.effect, since=taint.since
            )


def _hits(selector: DeviceTaintSelector | None, key: _Key) -> bool:
    """Tell whether a rule is about the device: no selector is about none, an empty one about all."""
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want in (None, have) for want, have in zip(wanted, key, strict=True))


def _planned(snapshot: Snapshot) -> tuple[DeviceStatus, ...]:
    return snapshot.controller.devices if snapshot.controller else ()


def _controller(plan: DeviceStatus | None) -> ControllerRow | None:
    return ControllerRow(state=plan.state, reason=plan.reason, until=plan.until, rule=plan.rule) if plan else None


def _uses(snapshot: Snapshot, scope: Scope) -> Mapping[_Key, tuple[UseRow, ...]]:
    """Return who holds each device; a claim with several shares or requests of it is one user."""
    uses: dict[_Key, dict[str, UseRow]] = {}
    for claim in snapshot.claims:
        allocation = claim.status.allocation if claim.status else None
        for result in (allocation.devices.results or ()) if allocation else ():
            if scope.has(result.driver, result.pool):
                use = _use(claim, snapshot, admin=bool(result.admin_access))
                uses.setdefault((result.driver, result.pool, result.device), {})[claim.metadata.uid or ""] = use
    return {key: tuple(each.values()) for key, each in uses.items()}


def _use(claim: ResourceClaim, snapshot: Snapshot, *, admin: bool) -> UseRow:
    namespace = claim.metadata.namespace or ""
    consumers = (claim.status.reserved_for if claim.status else None) or ()
    pods = dict.fromkeys(name for each in consumers for name in _pods(each, namespace, snapshot))
    return UseRow(namespace=namespace, claim=claim.metadata.name or "", pods=tuple(pods), admin_access=admin)


def _pods(consumer: ConsumerReference, namespace: str, snapshot: Snapshot) -> tuple[str, ...]:
    if is_group(consumer):
        return snapshot.members.get((namespace, consumer.name)) or (f"podgroup/{consumer.name}",)
    return (consumer.name if consumer.resource == "pods" else f"{consumer.resource}/{consumer.name}",)


def _order(row: DeviceRow) -> tuple[str, str, str, list[tuple[int, str]]]:
    """Return what rows are sorted by; a number in a device's name counts as a number: gpu-2 before gpu-10."""
    parts = re.findall(r"\d+|\D+", row.device)
    natural = [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
    return row.node, row.driver, row.pool, natural
