"""What a simulated machine can be told to fail with: the kinds of faults, and the devices that one of them means. Pure.

A fault names its device as people do: by the published name (``gpu-3``), by hardware identity, by PCI address, or by
PCIe root. What comes out is keyed by hardware identity, as everything below the published names is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dra_plugin.errors import PluginError
from drasim.config.problems import PROBLEM_KINDS
from drasim.config.strict import Seconds, suggestion
from drasim.hardware import Fault, Gpu, Kind, Nic, device_name
from drasim.hardware.simulated.profile import Machine

__all__ = [
    "FAULT_KINDS",
    "ROOT",
    "Code",
    "FaultKind",
    "FaultRefused",
    "checked_code",
    "checked_kind",
    "resolve",
    "struck",
]

ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
"""The name of a PCIe root."""

_MOST_LISTED = 16
_BOTH: tuple[Kind, ...] = ("gpu", "nic")
_PLURAL = {"gpu": "GPUs", "nic": "NICs"}


class FaultRefused(PluginError):
    """A fault cannot be done. ``field`` is the field of the fault's ``spec``, ``problem`` is for people."""

    def __init__(self, field: str, problem: str) -> None:
        """Keep the field and the problem."""
        super().__init__(f"spec.{field}: {problem}")
        self.field = field
        self.problem = problem


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What the code of a kind of fault is.

    Attributes:
        allowed: that, for people.
        form: a regular expression that is the same to Python and to RE2 (CEL in the CRD).
        seconds: whether it is a duration, which becomes a number of seconds.
        default: the code where none is given; None: one must be given.
    """

    allowed: str
    form: str
    seconds: bool = False
    default: str | None = None


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault.

    Attributes:
        devices: the kinds of devices that it befalls.
        root: whether it is done to a PCIe root, and so to everything below, instead of to a device.
        code: what its code is; None: it has none.
    """

    devices: tuple[Kind, ...]
    root: bool = False
    code: Code | None = None


def _seconds(default: str) -> Code:
    return Code(
        allowed=f"seconds, such as {default} or 500ms, from 1ms to 24h",
        form=r"^[0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h)?$",
        seconds=True,
        default=default,
    )


_CODES: Mapping[str, Code] = {
    "xid": Code(allowed="the number of an XID, 1 to 999", form=r"^[1-9][0-9]{0,2}$"),
    "link-flap": _seconds("2"),  # the period: up for one half of it, down for the other
    "prepare-slow": _seconds("5"),
    "unprepare-slow": _seconds("5"),
}
_BEHAVIOUR = ("prepare-fails", "prepare-slow", "unprepare-slow")

FAULT_KINDS: Mapping[str, FaultKind] = {
    name: FaultKind(devices=devices, root=name == "down", code=_CODES.get(name))
    for name, devices in {**PROBLEM_KINDS, **dict.fromkeys(_BEHAVIOUR, _BOTH)}.items()
}
"""By name: all problems of devices, and what only changes how a device behaves. The CRD allows the same."""


def checked_kind(kind: str) -> FaultKind:
    """Return the kind of that name. Raises FaultRefused."""
    if kind not in FAULT_KINDS:
        allowed = ", ".join(FAULT_KINDS)
        raise FaultRefused("kind", f'"{kind}" is no kind of fault{suggestion(kind, FAULT_KINDS)}; allowed: {allowed}')
    return FAULT_KINDS[kind]


def checked_code(kind: str, code: str) -> str:
    """Return the code of a fault of that kind as hardware takes it; empty is the default. Raises FaultRefused."""
    rule = checked_kind(kind).code
    if rule is None:
        if code:
            raise FaultRefused("code", f'"{code}" is not allowed: {kind} has no code; allowed: none')
        return ""
    if not code and rule.default is None:
        raise FaultRefused("code", f"missing; {kind} needs {rule.allowed}")
    given = code or rule.default or ""
    if not re.fullmatch(rule.form, given):
        raise _bad_code(kind, given, rule)
    return _in_seconds(kind, given, rule) if rule.seconds else given


def resolve(machine: Machine, kind: str, code: str = "", *, device: str = "", every: str = "") -> tuple[Fault, ...]:
    """Return what the machine has to be told, given exactly one of ``device`` and ``every`` (``gpu`` or ``nic``).

    A default code is filled in. Raises FaultRefused, which names the field and what is allowed.
    """
    rule, code = checked_kind(kind), checked_code(kind, code)
    if bool(device) == bool(every):
        raise FaultRefused("device", "exactly one of device and all must be given")
    places = _all_of(machine, kind, rule, every) if every else _place(machine, kind, rule, device)
    return tuple(Fault(device=place, kind=kind, code=code) for place in places)


def struck(machine: Machine, faults: Iterable[Fault]) -> tuple[Gpu | Nic, ...]:
    """Return the devices that these faults befall: GPUs first, then by index."""
    places = {fault.device for fault in faults}
    return tuple(device for device in _devices(machine) if device.id in places or device.pci.root in places)


def _all_of(machine: Machine, kind: str, rule: FaultKind, every: str) -> Iterator[str]:
    if every not in _BOTH:
        raise FaultRefused("all", f'"{every}" is not allowed; allowed: {", ".join(_BOTH)}')
    if rule.root:
        raise FaultRefused("all", f'"{every}" is not allowed: {kind} is done to a PCIe root; give one as device')
    if every not in rule.devices:
        raise _misfit(kind, _PLURAL[every], every)
    found = [device.id for device in _devices(machine) if _kind(device) == every]
    if not found:
        raise FaultRefused("all", f"the machine has no {_PLURAL[every]}")
    yield from found


def _place(machine: Machine, kind: str, rule: FaultKind, name: str) -> Iterator[str]:
    """Yield where the fault of a single device or root is done."""
    roots = dict.fromkeys(device.pci.root for device in _devices(machine))
    if rule.root:
        if name not in roots:
            raise FaultRefused("device", f'"{name}" is no PCIe root of this machine; allowed: {_listed(roots)}')
        yield name
        return
    device = next((each for each in _devices(machine) if name in _names(each)), None)
    if device is None:
        raise _unknown(machine, kind, name, is_root=name in roots)
    if _kind(device) not in rule.devices:
        raise _misfit(kind, name, _kind(device))
    yield device.id


def _unknown(machine: Machine, kind: str, name: str, *, is_root: bool) -> FaultRefused:
    known = [device_name(device) for device in _devices(machine)]
    problem = f"is a PCIe root: {kind} is done to a device" if is_root else "is no device of this machine"
    return FaultRefused("device", f'"{name}" {problem}; allowed: {_listed(known)}, a GPU\'s UUID, a PCI address')


def _misfit(kind: str, what: str, device_kind: str) -> FaultRefused:
    allowed = ", ".join(name for name, rule in FAULT_KINDS.items() if device_kind in rule.devices and not rule.root)
    return FaultRefused("kind", f'"{kind}" cannot befall {what}; allowed for {_PLURAL[device_kind]}: {allowed}')


def _bad_code(kind: str, code: str, rule: Code) -> FaultRefused:
    return FaultRefused("code", f'"{code}" is not allowed; {kind} takes {rule.allowed}')


def _in_seconds(kind: str, code: str, rule: Code) -> str:
    try:
        return str(Seconds.parse(code)).removesuffix("s")
    except ValueError:
        raise _bad_code(kind, code, rule) from None


def _devices(machine: Machine) -> tuple[Gpu | Nic, ...]:
    return (*machine.gpus, *machine.nics)


def _kind(device: Gpu | Nic) -> Kind:
    return "gpu" if isinstance(device, Gpu) else "nic"


def _names(device: Gpu | Nic) -> tuple[str, ...]:
    return device_name(device), device.id, device.pci.bus_id


def _listed(names: Iterable[str]) -> str:
    """Return the names for people; of many the first ones, and how many there are."""
    found = list(names)
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return ", ".join(found[:_MOST_LISTED]) + more
