"""The simulated machine. What was changed in it is a file with the boot id, so that all processes see one machine.

The file is the hardware's own memory, not the claims' record: another boot id voids it, as a reboot resets a GPU. It
is therefore not synced to the disk; killing the process loses nothing, and a power cut is a reboot.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.files import read_boot_id, write_atomically
from dra_plugin.locks import FileLock
from drasim.hardware import DeviceLost, Gpu, HardwareError, Kind, Looked, Nic, NotSupported, Setting, Step
from drasim.hardware.simulated.profile import Machine

__all__ = ["MachineState", "SimulatedHardware", "SimulatedMachine", "opened", "state_files"]

_FILE = "machine.json"
_LOCK_TIMEOUT = 10.0
_POLL = 1.0
"""Seconds between two looks at the file's time stamp."""

_KNOWN = {"gpu": frozenset({"powerLimitWatts", "computeMode"}), "nic": frozenset({"mtu", "interfaceName"})}


class MachineState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"boot_id": "bootID"}):
    """What differs from a machine that was just switched on.

    Attributes:
        boot_id: the boot that this belongs to.
        settings: what is set, by hardware identity, then by the UID of the claim that set it.
        absent: identities of devices that were taken out.
    """

    boot_id: str
    settings: dict[str, dict[str, dict[str, Setting]]] = {}
    absent: tuple[str, ...] = ()


class SimulatedMachine:
    """The machine of one node; any number of objects and processes may work on one folder."""

    def __init__(self, machine: Machine, folder: Path, boot_id_file: Path) -> None:
        """Use ``folder`` (it must exist) for the state file and its lock."""
        self.machine = machine
        self._file = folder / _FILE
        self._boot_id_file = boot_id_file
        self._lock = FileLock(folder / f".{_FILE}.lock")
        devices: tuple[Gpu | Nic, ...] = (*machine.gpus, *machine.nics)
        self._ids = frozenset(device.id for device in devices)

    def state(self) -> MachineState:
        """Return the state now. Raises HardwareError when it cannot be read.

        No file, one of another boot or one that holds no state (after a power cut) is a machine just switched on.
        """
        try:
            fresh = MachineState(boot_id=read_boot_id(self._boot_id_file))
        except SetupError as error:
            raise HardwareError(f"the simulated machine cannot be looked at: {error}") from error
        try:
            stored = msgspec.json.decode(self._file.read_bytes(), type=MachineState)
        except (FileNotFoundError, msgspec.MsgspecError):
            return fresh
        except OSError as error:
            raise HardwareError(f"the simulated machine cannot be looked at: {error}") from error
        return stored if stored.boot_id == fresh.boot_id else fresh

    def present(self, kind: Kind) -> tuple[Gpu | Nic, ...]:
        """Return the devices of that kind that are in the machine, by index."""
        absent = frozenset(self.state().absent)
        devices: tuple[Gpu | Nic, ...] = self.machine.gpus if kind == "gpu" else self.machine.nics
        return tuple(device for device in devices if device.id not in absent)

    def stamp(self) -> tuple[int, int] | None:
        """Return a value that differs when the file was replaced."""
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_ino

    async def put(self, step: Step, claim: str) -> None:
        """Make the step's settings hold for the claim. Raises DeviceLost."""
        if self.machine.step_seconds:
            await asyncio.sleep(self.machine.step_seconds)
        async with self._changing() as state:
            if step.device not in self._ids or step.device in state.absent:
                raise DeviceLost(f"device {step.device} is gone")
            claims = {**state.settings.get(step.device, {}), claim: step.settings}
            self._replace(state, msgspec.structs.replace(state, settings={**state.settings, step.device: claims}))

    async def drop(self, device: str, claim: str) -> None:
        """Take back what holds on the device for the claim, if there is any."""
        async with self._changing() as state:
            claims = {uid: given for uid, given in state.settings.get(device, {}).items() if uid != claim}
            settings = {name: given for name, given in state.settings.items() if name != device}
            if claims:
                settings[device] = claims
            self._replace(state, msgspec.structs.replace(state, settings=settings))

    async def take_out(self, device: str) -> None:
        """Remove a device, as if it fell off the bus; what was set on it is gone."""
        async with self._changing() as state:
            settings = {name: given for name, given in state.settings.items() if name != device}
            absent = tuple(sorted({*state.absent, device}))
            self._replace(state, msgspec.structs.replace(state, settings=settings, absent=absent))

    async def put_back(self, device: str) -> None:
        """Put a device in again."""
        async with self._changing() as state:
            absent = tuple(name for name in state.absent if name != device)
            self._replace(state, msgspec.structs.replace(state, absent=absent))

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[MachineState]:
        """Give the state while nobody else, in any process, changes it. Raises HardwareError."""
        try:
            async with self._lock.hold(_LOCK_TIMEOUT):
                yield self.state()
        except (OSError, ClaimError, TimeoutError) as error:
            raise HardwareError(f"the simulated machine cannot be changed ({self._file}): {error}") from error

    def _replace(self, old: MachineState, new: MachineState) -> None:
        """Write the file if anything is new. Everybody reads it anew each time, so no one needs telling."""
        if new != old:
            write_atomically(self._file, msgspec.json.encode(new), sync=False)


class SimulatedHardware:
    """The devices of one kind in a simulated machine: an implementation of ``Hardware``."""

    def __init__(self, machine: SimulatedMachine, kind: Kind, period: float) -> None:
        """Look every ``period`` seconds, and when the machine's file has changed."""
        self._machine = machine
        self._kind: Kind = kind
        self._period = period

    @property
    def kind(self) -> Kind:
        """The kind of all its devices."""
        return self._kind

    async def watch(self) -> AsyncIterator[Looked]:
        """Yield a look at once, then another each period and when the machine has changed."""
        while True:
            stamp = self._machine.stamp()
            yield Looked(at=time.time(), devices=self._machine.present(self._kind))
            await self._until_changed(stamp)

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

    async def _until_changed(self, stamp: tuple[int, int] | None) -> None:
        """Return after a period, or earlier when the file is another one than at ``stamp``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._period
        while (left := end - loop.time()) > 0 and self._machine.stamp() == stamp:  # noqa: ASYNC110 - other processes write it
            await asyncio.sleep(min(_POLL, left))


def state_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a machine whose state is in ``folder``; others there belong to somebody else."""
    return folder / _FILE, *sorted(folder.glob(f".{_FILE}.*"))  # its lock, and what a killed process was writing


@asynccontextmanager
async def opened(machine: Machine, folder: Path, boot_id_file: Path) -> AsyncIterator[SimulatedMachine]:
    """Give the machine whose state is in ``folder``, which is made when it is missing. Raises HardwareError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HardwareError(f"the state folder cannot be made: {error}") from error
    yield SimulatedMachine(machine, folder, boot_id_file)
