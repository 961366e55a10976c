"""The events of a scenario: what is injected and repaired when. Pure; the same scenario gives the same events.

Chance is a hash of the seed and of what is chosen, so a changed step changes no other one, on any Python.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from drasim.config import ConfigError
from drasim.faults.objects import DeviceFaultSpec, fault_name, where
from drasim.faults.scenario import Clear, Inject, Scenario, Step, moment_of, span_of
from drasim.hardware import Gpu, Nic, device_name
from drasim.hardware.simulated import Machine
from drasim.hardware.simulated.faults import FAULT_KINDS, FaultRefused, resolve

__all__ = ["Event", "Injected", "events_of", "nodes_of"]


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a scenario, from its injection to its repair. Times are seconds since the start.

    Attributes:
        name: of the object; each injection has its own, so that two on one device clear independently.
        begin: when it is injected.
        end: when it is repaired; None: the scenario leaves it.
    """

    name: str
    spec: DeviceFaultSpec
    begin: float
    end: float | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happens, ``at`` seconds after the start."""

    at: float
    action: Literal["inject", "clear"]
    name: str
    spec: DeviceFaultSpec

    def __str__(self) -> str:
        """Say it for people."""
        what = " ".join(filter(None, (self.spec.kind, self.spec.code)))
        return f"+{self.at:.1f}s {self.action} {self.spec.node} {where(self.spec)} {what}"


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step stands: its file, its key for messages, and what all of its choices are made from."""

    file: str
    key: str
    chance: tuple[object, ...]

    def refused(self, field: str, problem: str) -> ConfigError:
        return ConfigError(self.file, f"{self.key}.{field}", problem)


def nodes_of(scenario: Scenario, node: str, file: str) -> tuple[str, ...]:
    """Return the nodes that the scenario injects faults on; ``node`` is for what names none. Raises ConfigError."""
    found: dict[str, None] = {}
    for number, step in enumerate(scenario.steps):
        if step.inject:
            name = step.inject.node or scenario.node or node
            if not name:
                raise ConfigError(file, f"steps[{number}].inject.node", "missing; give it here, as node, or as --node")
            found[name] = None
    return tuple(found)


def events_of(
    scenario: Scenario, machines: Mapping[str, Machine], node: str, file: str, name: str
) -> tuple[Event, ...]:
    """Return all events in their order. ``machines`` has those of ``nodes_of``; ``name`` goes into the objects' names.

    Raises ConfigError for what these machines cannot do, and for a ``clear`` that finds nothing.
    """
    injected: dict[str, Injected] = {}
    for place, step, at in _occasions(scenario, file):
        if step.inject:
            filled = msgspec.structs.replace(step.inject, node=step.inject.node or scenario.node or node)
            for spec in _chosen(filled, machines[filled.node], place):
                each = _injected(filled, spec, at, place, f"{name}-{len(injected) + 1}")
                injected[each.name] = each
    for place, step, at in sorted(_occasions(scenario, file), key=lambda occasion: occasion[2]):
        if step.clear:
            injected.update(_cleared(step.clear, injected, at, place))
    return tuple(sorted(_events(injected), key=lambda event: event.at))


def _occasions(scenario: Scenario, file: str) -> Iterator[tuple[_Place, Step, float]]:
    """Yield each time that a step is done, in the order of the file."""
    for number, step in enumerate(scenario.steps):
        for turn in range(step.times):
            chance = (scenario.seed, number, turn)
            late = float(step.jitter or 0.0) * _share(*chance, "jitter")
            at = moment_of(step) + turn * float(step.every or 0.0) + late
            yield _Place(file=file, key=f"steps[{number}]", chance=chance), step, round(at, 3)


def _chosen(inject: Inject, machine: Machine, place: _Place) -> Iterator[DeviceFaultSpec]:
    """Yield the faults of one injection, and raise ConfigError for what the machine cannot do."""
    devices: Sequence[str | None] = _devices(inject, machine, place) if inject.any else (inject.device or None,)
    for device in devices:
        codes = {kind: _code(kind, device, inject, machine, place) for kind in inject.kinds}
        kind = _one(inject.kinds, *place.chance, device, "kind")
        yield DeviceFaultSpec(node=inject.node, device=device, all=inject.all, kind=kind, code=codes[kind] or None)


def _code(kind: str, device: str | None, inject: Inject, machine: Machine, place: _Place) -> str:
    """Return the code that a fault of that kind would have; raise ConfigError where the machine cannot have it.

    Of several kinds each is checked, whichever chance chooses: another seed is no less allowed.
    """
    code = _one(inject.codes, *place.chance, device, "code") if FAULT_KINDS[kind].code else ""
    try:
        (first, *_) = resolve(machine, kind, code, device=device or "", every=inject.all or "")
    except FaultRefused as refusal:
        field = "any" if refusal.field == "device" and inject.any else refusal.field
        raise place.refused(f"inject.{field}", f"on {inject.node}: {refusal.problem}") from None
    return first.code if code else ""


def _devices(inject: Inject, machine: Machine, place: _Place) -> tuple[str, ...]:
    """Return the devices, or PCIe roots, that chance gives."""
    everything: tuple[Gpu | Nic, ...] = (*machine.gpus, *machine.nics)
    if inject.any == "root":
        known = sorted({device.pci.root for device in everything})
    else:
        known = [device_name(device) for device in (machine.gpus if inject.any == "gpu" else machine.nics)]
    if len(known) < inject.count:
        problem = f"{inject.count} is more than {inject.node} has; allowed: at most {len(known)}"
        raise place.refused("inject.count", problem)
    return tuple(sorted(known, key=lambda each: _share(*place.chance, "device", each))[: inject.count])


def _injected(inject: Inject, spec: DeviceFaultSpec, at: float, place: _Place, name: str) -> Injected:
    span = span_of(inject)
    if span is None:
        return Injected(name=fault_name(spec, name), spec=spec, begin=at)
    share = _share(*place.chance, spec.device, "duration")
    return Injected(
        name=fault_name(spec, name),
        spec=spec,
        begin=at,
        end=round(at + span.least + share * (span.most - span.least), 3),
    )


def _cleared(clear: Clear, injected: Mapping[str, Injected], at: float, place: _Place) -> Mapping[str, Injected]:
    """Return the faults that stand then and that are meant, with that as their end."""
    wanted = {field: value for field in ("node", "device", "all", "kind") if (value := getattr(clear, field))}
    found = {
        name: msgspec.structs.replace(each, end=at)
        for name, each in injected.items()
        if each.begin < at and (each.end is None or each.end > at)
        if all(getattr(each.spec, field) == value for field, value in wanted.items())
    }
    if not found:
        raise place.refused("clear", f"finds nothing: no such fault of this scenario stands at {at:g}s")
    return found


def _events(injected: Mapping[str, Injected]) -> Iterator[Event]:
    """Yield repairs first: what ends at some time makes way for what begins then."""
    for each in injected.values():
        if each.end is not None:
            yield Event(at=each.end, action="clear", name=each.name, spec=each.spec)
    for each in injected.values():
        yield Event(at=each.begin, action="inject", name=each.name, spec=each.spec)


def _one(options: tuple[str, ...], *chance: object) -> str:
    """Return one of the options; nothing of none."""
    return min(options, key=lambda option: _share(*chance, option), default="")


def _share(*words: object) -> float:
    """Return a number from 0 to 1 that is always the same for the same words."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
