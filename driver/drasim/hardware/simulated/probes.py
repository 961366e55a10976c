"""Probes: one for each device, all at the same time, so that one that hangs keeps nobody waiting."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec

from dra_plugin.latest import Latest
from drasim.hardware import HardwareError, Sign

__all__ = ["Probes", "probing"]

Probe = Callable[[str], Awaitable[tuple[Sign, ...]]]
Glance = Callable[[str], tuple[Sign, ...] | None]
"""Returns what is found without waiting, None where the probe has to be waited for."""


class _Asked(msgspec.Struct, frozen=True):
    """A device that owes an answer: since when (Unix time), and the loop's time from which it is silent."""

    since: float
    deadline: float


class _Answer(msgspec.Struct, frozen=True):
    """What a probe found, and when (Unix time)."""

    at: float
    signs: tuple[Sign, ...]


class Probes:
    """The probes of some devices and their last answers, by hardware identity.

    A device has one probe at a time: one that hangs is not started again, and when it answers at last, it counts.

    Attributes:
        answered: another number after each answer.
    """

    def __init__(self, glance: Glance, probe: Probe, patience: float, group: asyncio.TaskGroup) -> None:
        """Ask by ``glance``, and where that finds nothing out by ``probe``, in a task of ``group``.

        After ``patience`` seconds without answer a device is silent.
        """
        self.answered: Latest[int] = Latest(0)
        self._glance, self._probe, self._patience, self._group = glance, probe, patience, group
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, _Asked] = {}
        self._answers: dict[str, _Answer] = {}

    async def ask(self, devices: Iterable[str], grace: float) -> None:
        """Start the probes that do not run, and return when these have answered, at latest after ``grace`` seconds.

        All other devices are forgotten.
        """
        wanted = tuple(devices)
        self._forget({*self._asked, *self._answers}.difference(wanted))
        started = [task for device in wanted if (task := self._start(device))]
        if started:
            await asyncio.wait(started, timeout=grace)

    def signs(self) -> Mapping[str, tuple[Sign, ...]]:
        """Return what the last answers found, without devices on which they found nothing."""
        return {device: answer.signs for device, answer in self._answers.items() if answer.signs}

    def silent(self) -> Mapping[str, float]:
        """Return the devices that owe an answer for too long, or never gave one, and the Unix time of their last."""
        now = asyncio.get_running_loop().time()
        late = {device: asked for device, asked in self._asked.items() if self._is_late(device, asked, now)}
        return {
            device: self._answers[device].at if device in self._answers else asked.since
            for device, asked in late.items()
        }

    def next_silence(self) -> float | None:
        """Return the loop's time at which the next device will be silent if it does not answer."""
        now = asyncio.get_running_loop().time()
        waiting = (asked.deadline for device, asked in self._asked.items() if not self._is_late(device, asked, now))
        return min(waiting, default=None)

    def stop(self) -> None:
        """End all probes."""
        self._forget(tuple(self._asked))

    def _is_late(self, device: str, asked: _Asked, now: float) -> bool:
        return device not in self._answers or asked.deadline <= now

    def _start(self, device: str) -> asyncio.Task[None] | None:
        """Ask a device; return its new probe if it has to be waited for. One that fails has not answered."""
        deadline = asyncio.get_running_loop().time() + self._patience
        self._asked.setdefault(device, _Asked(time.time(), deadline))
        with suppress(HardwareError):
            signs = self._glance(device)
            if signs is not None:
                self._end(device)
                self._take(device, signs)
                return None
        if device in self._running:
            return None
        self._running[device] = self._group.create_task(self._run(device), name=f"probe {device}")
        return self._running[device]

    async def _run(self, device: str) -> None:
        try:
            signs = await self._probe(device)
        except HardwareError:
            del self._running[device]
            return
        del self._running[device]
        self._take(device, signs)

    def _take(self, device: str, signs: tuple[Sign, ...]) -> None:
        del self._asked[device]
        self._answers[device] = _Answer(time.time(), signs)
        self.answered.set(self.answered.value + 1)

    def _forget(self, devices: Iterable[str]) -> None:
        for device in tuple(devices):
            self._end(device)
            self._asked.pop(device, None)
            self._answers.pop(device, None)

    def _end(self, device: str) -> None:
        if task := self._running.pop(device, None):
            task.cancel()


@asynccontextmanager
async def probing(probe: Probe, patience: float, glance: Glance = lambda _: None) -> AsyncIterator[Probes]:
    """Give probes that run until this is left; see ``Probes``."""
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        probes = Probes(glance, probe, patience, group)
        try:
            yield probes
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - raised below: the group would wrap it in its own
            failure = error
        finally:
            probes.stop()
    if failure is not None:
        raise failure
