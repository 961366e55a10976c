"""What faults do to the devices of a simulated machine: what a look finds, and how a device behaves. Pure."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from drasim.config.problems import PROBLEM_KINDS
from drasim.hardware import Fault, Gpu, Nic, Sign
from drasim.hardware.simulated.profile import Machine

__all__ = ["Condition", "Flap", "PlacedFault", "conditions_of", "next_toggle", "signs_at"]

_XIDS: Mapping[str, str] = {
    "8": "GPU stopped processing",
    "13": "graphics engine exception",
    "31": "GPU memory page fault",
    "32": "corrupted push buffer stream",
    "38": "driver firmware error",
    "43": "GPU stopped processing for a fault of the application",
    "45": "channel cleaned up after an earlier error",
    "48": "double bit ECC error",
    "61": "breakpoint of an internal microcontroller",
    "62": "internal microcontroller halted",
    "63": "row remapping or page retirement recorded",
    "64": "row remapping or page retirement could not be recorded",
    "68": "video decoder exception",
    "69": "graphics engine class error",
    "74": "NVLink error",
    "79": "GPU has fallen off the bus",
    "92": "high rate of single bit ECC errors",
    "94": "contained ECC error",
    "95": "uncontained ECC error",
    "109": "context switch timed out",
    "119": "timeout of a call to the GPU's system processor",
    "120": "error of the GPU's system processor",
    "121": "error of a chip-to-chip link",
    "140": "unrecovered ECC error",
    "143": "GPU could not be initialised",
}
_MESSAGES: Mapping[str, str] = {
    "lost": "device does not answer any more",
    "ecc-uncorrectable": "uncorrectable ECC errors in memory",
    "nvlink": "NVLink is down",
    "thermal": "clocks are slowed down, the device is too hot",
    "link-down": "port has no link",
    "link-flap": "link goes up and down",
    "crc-errors": "frames with a wrong checksum",
}
_UNSEEN = frozenset({"unplugged", "probe-hangs"})
"""Problems that no look finds on a device: it is not there, or nobody can tell."""

_FLAP_SECONDS, _SLOW_SECONDS = 2.0, 5.0


class PlacedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault and the Unix time in seconds from which it stands."""

    fault: Fault
    since: float


class Flap(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is down in the first half of each ``period`` (seconds) from ``since`` (Unix time), then up."""

    since: float
    period: float

    def is_down(self, now: float) -> bool:
        """Tell whether the link is down at that Unix time."""
        return self._halves(now) % 2 == 0

    def toggles(self, now: float) -> float:
        """Return the Unix time after ``now`` at which the link changes."""
        return self.since + (self._halves(now) + 1) * self.period / 2

    def _halves(self, now: float) -> int:
        return math.floor((now - self.since) / (self.period / 2))


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """The condition of a device on which faults stand.

    Attributes:
        signs: what each look finds.
        flaps: what only some looks find.
        hangs: whether its probe does not answer.
        absent: whether it is out of the machine.
        gone: why it cannot be reached; empty when it can.
        fails: whether nothing can be prepared on it.
        prepare_seconds: how long it takes until a claim may have it.
        unprepare_seconds: how long it takes until it can be taken from a claim.
    """

    signs: tuple[Sign, ...] = ()
    flaps: tuple[Flap, ...] = ()
    hangs: bool = False
    absent: bool = False
    gone: str = ""
    fails: bool = False
    prepare_seconds: float = 0.0
    unprepare_seconds: float = 0.0


def conditions_of(machine: Machine, placed: Iterable[PlacedFault]) -> Mapping[str, Condition]:
    """Return the conditions by hardware identity; a device that is not in it is as it should be.

    A fault of a PCIe root is one of each device below it; one that cannot befall a device does nothing to it.
    """
    by_place: dict[str, list[PlacedFault]] = {}
    for each in placed:
        by_place.setdefault(each.fault.device, []).append(each)
    struck = (device for device in machine.devices if device.id in by_place or device.pci.root in by_place)
    found = {
        device.id: _condition(device, befalling) for device in struck if (befalling := _befalling(device, by_place))
    }
    return MappingProxyType(found)


def signs_at(condition: Condition, now: float) -> tuple[Sign, ...]:
    """Return what a look at that Unix time finds."""
    down = any(flap.is_down(now) for flap in condition.flaps)
    return (*condition.signs, *((_sign("link-flap", ""),) if down else ()))


def next_toggle(conditions: Iterable[Condition], now: float) -> float | None:
    """Return the Unix time at which looks find something else though nobody changed anything; None for never."""
    return min((flap.toggles(now) for condition in conditions for flap in condition.flaps), default=None)


def _befalling(device: Gpu | Nic, by_place: Mapping[str, list[PlacedFault]]) -> list[PlacedFault]:
    kind = "gpu" if isinstance(device, Gpu) else "nic"
    placed = [*by_place.get(device.id, ()), *by_place.get(device.pci.root, ())]
    return [each for each in placed if kind in PROBLEM_KINDS.get(each.fault.kind, (kind,))]


def _condition(device: Gpu | Nic, befalling: list[PlacedFault]) -> Condition:
    codes: dict[str, list[str]] = {}
    for each in befalling:
        codes.setdefault(each.fault.kind, []).append(each.fault.code)
    return Condition(
        signs=_signs(codes, device.pci.root),
        flaps=tuple(
            Flap(since=each.since, period=_seconds(each.fault.code, _FLAP_SECONDS))
            for each in befalling
            if each.fault.kind == "link-flap"
        ),
        hangs="probe-hangs" in codes,
        absent="unplugged" in codes,
        gone=_gone(codes, device.pci.root),
        fails="prepare-fails" in codes,
        prepare_seconds=_slowest(codes.get("prepare-slow", ())),
        unprepare_seconds=_slowest(codes.get("unprepare-slow", ())),
    )


def _signs(codes: Mapping[str, list[str]], root: str) -> tuple[Sign, ...]:
    """Return the signs that do not come and go, in the order of the kinds, then by code."""
    steady = [kind for kind in PROBLEM_KINDS if kind in codes and kind not in _UNSEEN and kind != "link-flap"]
    signs = []
    for kind in steady:
        if kind == "down":
            signs.append(Sign(kind=kind, code=root.replace(":", "-"), message=f"PCIe root {root} is down"))
        else:
            signs.extend(_sign(kind, code) for code in sorted(set(codes[kind])))
    return tuple(signs)


def _sign(kind: str, code: str) -> Sign:
    message = _XIDS.get(code, "error reported by the GPU") if kind == "xid" else _MESSAGES.get(kind, kind)
    return Sign(kind=kind, code=code, message=message)


def _gone(codes: Mapping[str, list[str]], root: str) -> str:
    reasons = {
        "unplugged": "it was unplugged",
        "down": f"PCIe root {root} is down",
        "lost": "it does not answer any more",
    }
    return next((reason for kind, reason in reasons.items() if kind in codes), "")


def _slowest(codes: Iterable[str]) -> float:
    return max((_seconds(code, _SLOW_SECONDS) for code in codes), default=0.0)


def _seconds(code: str, default: float) -> float:
    """Return a code that is a number of seconds. Faults are checked where they are given; here nothing may fail."""
    try:
        seconds = float(code)
    except ValueError:
        return default
    return seconds if 0 < seconds < math.inf else default
