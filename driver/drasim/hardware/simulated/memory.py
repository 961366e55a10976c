"""The memory of the simulated machine: a file with the boot id, so that all processes see one machine.

It is the hardware's own memory, not the claims' record: another boot id voids it, as a reboot resets a GPU. It is
therefore not synced to the disk; killing the process loses nothing, and a power cut is a reboot.
"""

import math
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.files import read_boot_id, write_atomically
from dra_plugin.locks import FileLock
from drasim.hardware import HardwareError, Setting
from drasim.hardware.simulated.conditions import PlacedFault

__all__ = ["MachineState", "Memory", "state_files"]

_FILE = "machine.json"
_LOCK_TIMEOUT = 10.0
_GOOD_FOR = 0.005  # seconds for which a file is believed that was written too recently to tell it by its stamp
_SETTLED_NS = 50_000_000
"""Age from which a file's time stamp tells it from the next one: the kernel's clock for files ticks each 1 to 10 ms."""


class MachineState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"boot_id": "bootID"}):
    """What differs from a machine that was just switched on.

    Attributes:
        boot_id: the boot that this belongs to.
        settings: what is set, by hardware identity, then by the UID of the claim that set it.
        faults: what stands, by who wants it; there is no source without faults.
    """

    boot_id: str
    settings: dict[str, dict[str, dict[str, Setting]]] = {}
    faults: dict[str, tuple[PlacedFault, ...]] = {}


class Memory:
    """The state of a machine in a folder; any number of objects and processes may use it."""

    def __init__(self, folder: Path, boot_id_file: Path) -> None:
        """Use ``folder`` (it must exist) for the file and its lock."""
        self._file = folder / _FILE
        self._boot_id_file = boot_id_file
        self._lock = FileLock(folder / f".{_FILE}.lock")
        self._boot_id = ""
        self._seen: MachineState | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._good_until = 0.0  # on the monotonic clock

    def read(self) -> MachineState:
        """Return the state now. Raises HardwareError when it cannot be read.

        No file, one of another boot or one that holds no state (after a power cut) is a machine just switched on.
        """
        try:
            self._boot_id = read_boot_id(self._boot_id_file)
            stored = msgspec.json.decode(self._file.read_bytes(), type=MachineState)
        except (FileNotFoundError, msgspec.MsgspecError):
            return MachineState(boot_id=self._boot_id)
        except (OSError, SetupError) as error:
            raise HardwareError(f"the simulated machine cannot be looked at: {error}") from error
        return stored if stored.boot_id == self._boot_id else MachineState(boot_id=self._boot_id)

    def glance(self) -> MachineState:
        """Return the state now, at the price of a ``stat`` while the file is the same. Raises HardwareError.

        A file that was just written may be another one with the same stamp: it is read again every few milliseconds,
        not for each of a round of probes. A new boot id, which no process outlives, is noticed by ``read`` alone.
        """
        stamp, now = self._stamp_now(), time.monotonic()
        if self._seen is None or stamp != self._stamp or self._seen.boot_id != self._boot_id or now > self._good_until:
            self._seen, self._stamp = self.read(), stamp
            settled = stamp is None or time.time_ns() - stamp[0] > _SETTLED_NS
            self._good_until = math.inf if settled else now + _GOOD_FOR
        return self._seen

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[MachineState]:
        """Give the state while nobody else, in any process, changes it. Raises HardwareError."""
        try:
            async with self._lock.hold(_LOCK_TIMEOUT):
                yield self.read()
        except (OSError, ClaimError, TimeoutError) as error:
            raise HardwareError(f"the simulated machine cannot be changed ({self._file}): {error}") from error

    def replace(self, old: MachineState, new: MachineState) -> None:
        """Write the file if anything is new; for whoever is ``changing`` it."""
        if new != old:
            self._seen = None
            write_atomically(self._file, msgspec.json.encode(new), sync=False)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        """Return a value that differs when the file was replaced; None for no file."""
        try:
            found = os.stat(self._file)  # noqa: PTH116 - half the price of Path.stat, on the way of each Prepare
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HardwareError(f"the simulated machine cannot be looked at: {error}") from error
        return found.st_mtime_ns, found.st_ino, found.st_size


def state_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a machine whose state is in ``folder``; others there belong to somebody else."""
    return folder / _FILE, *sorted(folder.glob(f".{_FILE}.*"))  # its lock, and what a killed process was writing
