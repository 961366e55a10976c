"""Processes known by number and start time, so that a reused number is never mistaken for the old process."""

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of this machine; `started` is in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Return the living process of this number."""
        return cls(pid, _started(pid))

    @property
    def alive(self) -> bool:
        """Tell whether it still runs; a zombie does not."""
        try:
            return _started(self.pid) == self.started and _state(self.pid) not in "ZX"
        except OSError:
            return False

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to this process and never to another that got its number."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)

    def ended(self, timeout: float) -> bool:
        """Wait for the end and tell whether it came in time."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return not self.alive or bool(select.select([descriptor], [], [], timeout)[0])
        finally:
            os.close(descriptor)


def _stat(pid: int) -> list[str]:
    # The second field is the program's name in brackets and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _started(pid: int) -> int:
    return int(_stat(pid)[19])


def _state(pid: int) -> str:
    return _stat(pid)[0]
