"""The devices of one kind in a simulated machine: looked at by probes, changed step by step."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from dra_plugin.latest import follow
from drasim.hardware import Gpu, HardwareError, Kind, Looked, Nic, NotSupported, Sign, Step
from drasim.hardware.simulated.conditions import Condition, next_toggle, signs_at
from drasim.hardware.simulated.machine import POLL, SimulatedMachine
from drasim.hardware.simulated.probes import Probes, probing

__all__ = ["SILENT_AFTER", "SimulatedHardware"]

SILENT_AFTER = 3.0
"""Seconds that a probe may take (``problems.silentAfter``)."""

_FIRST_GRACE = 0.25
"""Seconds that the first look waits for probes: a device that answers later begins as a silent one."""

_GRACE = 0.002
"""Seconds that other looks wait for probes; an answer that comes later gets a look of its own."""

_SHORTEST = 0.05
"""Seconds between two looks at a link that flaps faster than anybody would look."""

_KNOWN = {"gpu": frozenset({"powerLimitWatts", "computeMode"}), "nic": frozenset({"mtu", "interfaceName"})}
_SOUND = Condition()


class SimulatedHardware:
    """The devices of one kind in a simulated machine: an implementation of ``Hardware``."""

    def __init__(
        self, machine: SimulatedMachine, kind: Kind, period: float, silent_after: float = SILENT_AFTER
    ) -> None:
        """Look every ``period`` seconds; a device whose probe takes more than ``silent_after`` is silent."""
        self._machine = machine
        self._kind: Kind = kind
        self._period = period
        self._silent_after = silent_after

    @property
    def kind(self) -> Kind:
        """The kind of all its devices."""
        return self._kind

    async def watch(self) -> AsyncIterator[Looked]:
        """Yield a look at once, then another each period and when something has changed.

        A look does not wait for a probe that takes long: until the device is silent, its last answer stands.
        """
        async with probing(self._probe, self._silent_after, self._glance) as probes:
            asked = await self._ask(probes, min(_FIRST_GRACE, self._silent_after))
            while True:
                told = _Told(answers=probes.answered.value, silence=probes.next_silence())
                yield _look(asked, probes)
                if await self._until_due(probes, asked, told):
                    asked = await self._ask(probes, _GRACE)

    async def admit(self, device: str, claim: str) -> None:  # noqa: ARG002 - whose claim it is makes no difference here
        """Return when the claim may have the device; with ``prepare-slow`` that takes a while."""
        condition = self._machine.condition(device)
        if condition.prepare_seconds:
            await self._machine.until(
                lambda: not self._machine.condition(device).prepare_seconds, condition.prepare_seconds
            )
            condition = self._machine.condition(device)
        if condition.fails:
            raise HardwareError(f"device {device} fails to be prepared")

    async def dismiss(self, device: str, claim: str) -> None:  # noqa: ARG002 - as in admit
        """Return when the device can be taken from the claim; with ``unprepare-slow`` that takes a while."""
        if seconds := self._unprepare_seconds(device):
            await self._machine.until(lambda: not self._unprepare_seconds(device), seconds)

    async def apply(self, step: Step, claim: str) -> None:
        """Make the settings hold for the claim of that UID; a repeated call changes nothing."""
        unknown = sorted(step.settings.keys() - _KNOWN[self._kind])
        if unknown:
            known = ", ".join(sorted(_KNOWN[self._kind]))
            raise NotSupported(f"a simulated {self._kind} cannot set {', '.join(unknown)}; it can set {known}")
        await self._machine.put(step, claim)

    async def undo(self, step: Step, claim: str) -> None:
        """Take back what ``apply`` made for that claim, in this process or another."""
        await self._machine.drop(step.device, claim)

    async def _ask(self, probes: Probes, grace: float) -> "_Asked":
        """Have a round of probes; what changes from its begin on, by itself or not, is for the next one."""
        devices, changed = self._machine.present(self._kind), self._machine.changed.value
        due = asyncio.get_running_loop().time() + self._pause(devices)
        await probes.ask([device.id for device in devices], grace)
        return _Asked(devices=devices, changed=changed, due=due)

    def _pause(self, devices: tuple[Gpu | Nic, ...]) -> float:
        """Return the seconds until these devices have to be asked again though nobody changed anything."""
        now, conditions = time.time(), self._machine.conditions()
        toggle = next_toggle((conditions.get(device.id, _SOUND) for device in devices), now)
        return self._period if toggle is None else min(self._period, max(toggle - now, _SHORTEST))

    async def _until_due(self, probes: Probes, asked: "_Asked", told: "_Told") -> bool:
        """Return when the next look is due, and whether the devices have to be asked for it."""
        loop, silence = asyncio.get_running_loop(), math.inf if told.silence is None else told.silence
        news = follow(self._machine.changed, probes.answered, until=lambda: min(loop.time() + POLL, asked.due, silence))
        async with aclosing(news):
            async for _ in news:
                self._machine.conditions()  # a glance at what other processes changed
                if self._machine.changed.value != asked.changed or loop.time() >= asked.due:
                    return True
                if probes.answered.value != told.answers or loop.time() >= silence:
                    return False
        raise AssertionError  # pragma: no cover - follow never ends by itself

    def _glance(self, device: str) -> tuple[Sign, ...] | None:
        """Return what a device answers at once, None where it hangs."""
        condition = self._condition(device)
        return None if condition.hangs else signs_at(condition, time.time())

    async def _probe(self, device: str) -> tuple[Sign, ...]:
        """Answer for one device; with ``probe-hangs``, never while that stands."""
        await self._machine.until(lambda: not self._condition(device).hangs)
        return signs_at(self._condition(device), time.time())

    def _condition(self, device: str) -> Condition:
        return self._machine.conditions().get(device, _SOUND)

    def _unprepare_seconds(self, device: str) -> float:
        """Return how long the device takes to be taken from a claim; one that is gone takes no time."""
        condition = self._condition(device)
        return 0.0 if condition.gone else condition.unprepare_seconds


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A round of probes: what was there, the machine's number of changes, and the loop's time of the next round."""

    devices: tuple[Gpu | Nic, ...]
    changed: int
    due: float


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the last look told: the answers up to that number, and silence up to that time of the loop."""

    answers: int
    silence: float | None


def _look(asked: _Asked, probes: Probes) -> Looked:
    silent = probes.silent()
    signs = {device: found for device, found in probes.signs().items() if device not in silent}
    return Looked(at=time.time(), devices=asked.devices, signs=signs, silent=silent)
