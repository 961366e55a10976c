"""The simulated machine: its devices, what was changed in them, and the faults that stand on them."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec

from dra_plugin.latest import Latest, follow
from drasim.hardware import DeviceLost, Fault, Gpu, HardwareError, Kind, Nic, Step
from drasim.hardware.simulated.conditions import Condition, PlacedFault, conditions_of
from drasim.hardware.simulated.memory import MachineState, Memory
from drasim.hardware.simulated.profile import Machine

__all__ = ["POLL", "SimulatedMachine", "opened"]

POLL = 1.0
"""Seconds between two glances at what other processes changed."""

_SOUND = Condition()


class SimulatedMachine:
    """The machine of one node; any number of objects and processes may work on one folder.

    Attributes:
        machine: the devices that it was made with.
        changed: another number whenever this object has noticed that other faults stand than before.
    """

    def __init__(self, machine: Machine, folder: Path, boot_id_file: Path) -> None:
        """Use ``folder`` (it must exist) for the state file and its lock."""
        self.machine = machine
        self.changed: Latest[int] = Latest(0)
        self._memory = Memory(folder, boot_id_file)
        self._ids = frozenset(device.id for device in machine.devices)
        self._faults: Mapping[str, tuple[PlacedFault, ...]] = {}
        self._conditions: Mapping[str, Condition] = {}

    def state(self) -> MachineState:
        """Return the state now. Raises HardwareError when it cannot be read."""
        return self._memory.read()

    def present(self, kind: Kind) -> tuple[Gpu | Nic, ...]:
        """Return the devices of that kind that are in the machine, by index. Raises HardwareError."""
        conditions = self._noticed(self.state())
        devices: tuple[Gpu | Nic, ...] = self.machine.gpus if kind == "gpu" else self.machine.nics
        return tuple(device for device in devices if not conditions.get(device.id, _SOUND).absent)

    def faults(self) -> Mapping[str, tuple[Fault, ...]]:
        """Return the faults that stand, by source; a source without any is not in it. Raises HardwareError."""
        return {source: tuple(each.fault for each in placed) for source, placed in self.state().faults.items()}

    async def set_faults(self, source: str, faults: Iterable[Fault]) -> None:
        """Make exactly these faults of ``source`` stand; those of other sources stay. One write, if any is new.

        A fault that stood already goes on; one that is left out is repaired. Raises HardwareError.
        """
        async with self._memory.changing() as state:
            stood = {each.fault: each for each in state.faults.get(source, ())}
            now = time.time()
            placed = tuple(stood.get(fault) or PlacedFault(fault=fault, since=now) for fault in dict.fromkeys(faults))
            others = {name: given for name, given in state.faults.items() if name != source}
            self._memory.replace(state, self._with(state, {**others, source: placed} if placed else others))
        self.conditions()

    def conditions(self) -> Mapping[str, Condition]:
        """Return the condition of every device that is not as it should be. Raises HardwareError."""
        return self._noticed(self._memory.glance())

    def condition(self, device: str) -> Condition:
        """Return the condition of one device that can be reached. Raises DeviceLost, HardwareError."""
        conditions = self.conditions()
        self._refuse_gone(device, conditions)
        return conditions.get(device, _SOUND)

    async def until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Return as soon as ``holds``, which may depend on ``conditions``, or after so many seconds."""
        loop = asyncio.get_running_loop()
        end = math.inf if seconds is None else loop.time() + seconds
        async with aclosing(follow(self.changed, until=lambda: min(loop.time() + POLL, end))) as wakes:
            async for _ in wakes:
                if holds() or loop.time() >= end:
                    return

    async def put(self, step: Step, claim: str) -> None:
        """Make the step's settings hold for the claim. Raises DeviceLost, HardwareError."""
        if self.machine.step_seconds:
            await asyncio.sleep(self.machine.step_seconds)
        async with self._memory.changing() as state:
            self._refuse_gone(step.device, self._noticed(state))
            claims = {**state.settings.get(step.device, {}), claim: step.settings}
            new = msgspec.structs.replace(state, settings={**state.settings, step.device: claims})
            self._memory.replace(state, new)

    async def drop(self, device: str, claim: str) -> None:
        """Take back what holds on the device for the claim, if there is any. Raises HardwareError."""
        async with self._memory.changing() as state:
            claims = {uid: given for uid, given in state.settings.get(device, {}).items() if uid != claim}
            settings = {name: given for name, given in state.settings.items() if name != device}
            if claims:
                settings[device] = claims
            self._memory.replace(state, msgspec.structs.replace(state, settings=settings))

    def _noticed(self, state: MachineState) -> Mapping[str, Condition]:
        """Return the conditions in a state that was read now, and tell whoever waits for others."""
        if state.faults is not self._faults and state.faults != self._faults:
            self._faults, self._conditions = state.faults, conditions_of(self.machine, _all(state.faults))
            self.changed.set(self.changed.value + 1)
        return self._conditions

    def _refuse_gone(self, device: str, conditions: Mapping[str, Condition]) -> None:
        if device not in self._ids:
            raise DeviceLost(f"device {device} is gone: this machine never had it")
        if reason := conditions.get(device, _SOUND).gone:
            raise DeviceLost(f"device {device} is gone: {reason}")

    def _with(self, state: MachineState, faults: dict[str, tuple[PlacedFault, ...]]) -> MachineState:
        """Return the state with these faults; a device that is out of the machine loses what was set on it."""
        conditions = conditions_of(self.machine, _all(faults)) if state.settings else {}
        kept = {name: given for name, given in state.settings.items() if not conditions.get(name, _SOUND).absent}
        return msgspec.structs.replace(state, faults=faults, settings=kept)


def _all(faults: Mapping[str, tuple[PlacedFault, ...]]) -> list[PlacedFault]:
    return [each for placed in faults.values() for each in placed]


@asynccontextmanager
async def opened(machine: Machine, folder: Path, boot_id_file: Path) -> AsyncIterator[SimulatedMachine]:
    """Give the machine whose state is in ``folder``, which is made when it is missing. Raises HardwareError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HardwareError(f"the state folder cannot be made: {error}") from error
    yield SimulatedMachine(machine, folder, boot_id_file)
