"""What a set of DeviceFaults means at a moment: what the machine is to be told, and what is said of each. Pure.

Times count from the creation of the object, so a driver that was away meanwhile finds the same answer. Its second is
known and no more: they count from the end of that, so that no fault begins early or ends before it began.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from drasim.config.strict import Delay, Seconds
from drasim.faults.objects import DeviceFault, DeviceFaultSpec, DeviceFaultStatus
from drasim.hardware import Fault, Gpu, Kind, Nic, device_name
from drasim.hardware.simulated import Machine
from drasim.hardware.simulated.faults import FaultRefused, resolve, struck

__all__ = [
    "SEEN_PERIOD",
    "Outcome",
    "Site",
    "Verdict",
    "judge",
    "key_of",
    "moment",
    "next_status",
    "outcome_of",
    "refused",
    "seconds_of",
    "stamp",
]

SEEN_PERIOD = 300.0
"""Seconds after which ``lastSeen`` of a fault that stands is brought up to date."""

_GRAIN = 1.0  # seconds: of a creation it is said in which second it was, and that may be its end
_LONGEST_REASON = 1024  # characters, as in the CRD
_LAST_SECOND = 253_402_300_799  # of the year 9999: a file may say of its faults that they were created then


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where faults are done: the node, its machine, and the kinds of devices whose driver runs there."""

    node: str
    machine: Machine
    running: frozenset[Kind]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one DeviceFault means at a moment.

    Attributes:
        phase: one of ``faults.objects.PHASES``.
        reason: why it is refused, or what it waits for.
        faults: what the machine is to be told now.
        devices: published names of the devices that it befalls.
        end: Unix time at which it ended.
        changes: Unix time at which the phase becomes another one; None: not by itself.
    """

    phase: str
    reason: str = ""
    faults: tuple[Fault, ...] = ()
    devices: tuple[str, ...] = ()
    end: float | None = None
    changes: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What all DeviceFaults of one source mean.

    Attributes:
        faults: what the machine is to be told, sorted, each once.
        statuses: what is said of each object, by its UID (its name where it has none).
        look_again: Unix time at which this may be different; None: not by itself.
    """

    faults: tuple[Fault, ...] = ()
    statuses: Mapping[str, DeviceFaultStatus] = MappingProxyType({})
    look_again: float | None = None


def outcome_of(
    objects: Iterable[DeviceFault],
    site: Site,
    now: float,
    *,
    known: Mapping[str, DeviceFaultStatus] = MappingProxyType({}),
) -> Outcome:
    """Return what ``objects`` mean at the Unix time ``now``; those of other nodes, or being deleted, mean nothing.

    ``known`` has what was said before, by UID: it goes before what is stored, which may not have it yet.
    """
    faults: dict[Fault, None] = {}
    statuses: dict[str, DeviceFaultStatus] = {}
    times: list[float] = []
    for obj in objects:
        if obj.spec.node != site.node or obj.metadata.deletion_timestamp:
            continue
        verdict = judge(obj, site, now)
        status = next_status(obj, verdict, now, known.get(key_of(obj)))
        faults.update(dict.fromkeys(verdict.faults))
        statuses[key_of(obj)] = status
        times.extend(_times(verdict, status))
    ordered = sorted(faults, key=lambda fault: (fault.device, fault.kind, fault.code))
    return Outcome(faults=tuple(ordered), statuses=statuses, look_again=min(times, default=None))


def judge(obj: DeviceFault, site: Site, now: float) -> Verdict:
    """Return what one object means at ``now``."""
    try:
        faults, devices = _resolved(obj.spec, site)
        begin, end = _span(obj, now)
    except FaultRefused as refusal:
        return Verdict(phase="Refused", reason=str(refusal))
    names = tuple(device_name(device) for device in devices)
    if now < begin:
        return Verdict(phase="Pending", reason=f"begins at {stamp(begin)}", devices=names, changes=begin)
    if end is None:
        return Verdict(phase="Active", faults=faults, devices=names)
    if now < end:
        return Verdict(phase="Active", reason=f"ends at {stamp(end)}", faults=faults, devices=names, changes=end)
    return Verdict(phase="Cleared", reason=f"ended at {stamp(end)}", devices=names, end=end)


def next_status(
    obj: DeviceFault, verdict: Verdict, now: float, known: DeviceFaultStatus | None = None
) -> DeviceFaultStatus:
    """Return the status that an object is to have, given what was said of it before: ``known``, else the stored one."""
    old = known or obj.status or DeviceFaultStatus()
    if old.observed_generation != obj.metadata.generation:
        old = DeviceFaultStatus()  # it was another fault then
    first, last = old.first_seen, old.last_seen
    if verdict.phase == "Active":
        first = first or stamp(now)
        last = last if abs(now - (moment(last) or 0.0)) < SEEN_PERIOD else stamp(now)  # a clock may be set back
    elif old.phase == "Active" and verdict.end is not None:
        last = stamp(min(now, verdict.end))
    reason = verdict.reason
    if verdict.phase == "Cleared" and first is None:
        reason += ", before this node's driver knew of it"
    return DeviceFaultStatus(
        phase=verdict.phase,
        reason=reason[:_LONGEST_REASON] or None,
        first_seen=first,
        last_seen=last,
        devices=verdict.devices or None,
        observed_generation=obj.metadata.generation,
    )


def refused(obj: DeviceFault, reason: str) -> DeviceFaultStatus:
    """Return the status of an object that nobody will do; what was seen of it before stays said."""
    return next_status(obj, Verdict(phase="Refused", reason=reason), now=0.0)  # a refusal knows no time


def seconds_of(field: str, text: str | None) -> float | None:
    """Return a duration of a ``spec`` in seconds; None where none is given. Raises FaultRefused."""
    if text is None:
        return None
    form, least = (Delay, "0s") if field == "after" else (Seconds, "1ms")
    try:
        return float(form.parse(text))
    except ValueError:
        problem = f'"{text}" is not allowed; allowed: {least} to 24h, such as 30s, 500ms, 2m'
        raise FaultRefused(field, problem) from None


def key_of(obj: DeviceFault) -> str:
    """Return what tells an object from all others, in ``Outcome.statuses``."""
    return obj.metadata.uid or obj.metadata.name or ""


def stamp(at: float) -> str:
    """Return a Unix time as the API writes it: RFC 3339 in whole seconds, UTC; from 1970 to the end of 9999."""
    return datetime.fromtimestamp(min(max(int(at), 0), _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> float | None:
    """Return the Unix time that an RFC 3339 text says; None when it says none."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def _resolved(spec: DeviceFaultSpec, site: Site) -> tuple[tuple[Fault, ...], tuple[Gpu | Nic, ...]]:
    """Return what the machine would be told, and the devices that are published and that it befalls."""
    faults = resolve(site.machine, spec.kind, spec.code or "", device=spec.device or "", every=spec.all or "")
    hit = struck(site.machine, faults)
    served = tuple(device for device in hit if _kind(device) in site.running)
    if not served:
        field = "all" if spec.all else "device"
        off = ", ".join(f"{kind}.hardware" for kind in dict.fromkeys(map(_kind, hit)))
        raise FaultRefused(field, f"the driver of such devices does not run on this node ({off} is off)")
    return faults, served


def _span(obj: DeviceFault, now: float) -> tuple[float, float | None]:
    """Return when the fault begins and ends. One without ``after`` has begun, whatever the clocks say."""
    after, duration = seconds_of("after", obj.spec.after), seconds_of("duration", obj.spec.duration)
    created = moment(obj.metadata.creation_timestamp)
    begin = (now if created is None else created + _GRAIN) + (after or 0.0)
    return (begin if after else float("-inf")), (None if duration is None else begin + duration)


def _times(verdict: Verdict, status: DeviceFaultStatus) -> Iterator[float]:
    """Yield the Unix times at which something else is to be said of an object."""
    if verdict.changes is not None:
        yield verdict.changes
    if verdict.phase == "Active" and (seen := moment(status.last_seen)) is not None:
        yield seen + SEEN_PERIOD


def _kind(device: Gpu | Nic) -> Kind:
    return "gpu" if isinstance(device, Gpu) else "nic"
