"""One start of a driver: its process, its sockets and its slices, and nothing left afterwards."""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.bench.api import Api, Object, Watch
from hack.bench.contestants import CDI, PLUGINS, REGISTRY, SMALL, Contestant
from hack.bench.objects import SLICES, published

POLL = 0.001
FORGET = 1.2
"""Seconds after which the kubelet has noticed that a socket is gone: it looks once a second."""


@dataclass(frozen=True)
class Place:
    """What all starts share: the API, a watch on slices, the drivers' environment and where their logs go."""

    api: Api
    slices: Watch
    environment: Mapping[str, str]
    logs: Path


@dataclass(frozen=True)
class Instance:
    """A running driver. `started` is when its program was executed, in seconds since the epoch."""

    contestant: Contestant
    process: subprocess.Popen[bytes]
    started: float
    registry: Path
    place: Place

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self.process.pid

    @property
    def socket(self) -> Path:
        """Return the socket of the driver whose claims are measured."""
        return next(sockets(PLUGINS / self.contestant.driver, ""))

    def wait_sockets(self, timeout: float = 20) -> float:
        """Wait until every driver listens on both its sockets; return when."""
        pending = list(self.contestant.drivers)
        while pending:
            pending = [driver for driver in pending if not self._listens(driver)]
            self._still("its sockets listened", timeout)
            time.sleep(POLL if pending else 0)
        return time.time()

    def _listens(self, driver: str) -> bool:
        places = (self.registry, driver), (PLUGINS / driver, "")
        return all(any(map(connects, sockets(*place))) for place in places)

    def wait_slices(self, gpus: int | None = None, timeout: float = 60) -> float:
        """Wait until every driver's slices show all its devices (the first one's: `gpus`); return when."""
        wanted = dict(self.contestant.drivers)
        if gpus is not None:
            wanted[self.contestant.driver] = gpus

        def complete(items: Mapping[str, Object]) -> bool:
            return all(published(dict(items), driver) == count for driver, count in wanted.items())

        return self.place.slices.until(complete, timeout)

    def _still(self, what: str, timeout: float) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.contestant.name} ended with {self.process.returncode} before {what}")
        if time.time() > self.started + timeout:
            raise TimeoutError(f"{self.contestant.name}: not after {timeout:g} s: {what}")


def sockets(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield the sockets of a folder whose name begins so; none while it is not there."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(prefix) and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                yield Path(entry.path)


def connects(path: Path) -> bool:
    """Tell whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def started(
    place: Place, contestant: Contestant, machine: str = SMALL, registry: Path = REGISTRY
) -> Iterator[Instance]:
    """Start a driver; at the end it is gone, and so are its slices, sockets and specs."""
    command = contestant.start(machine, registry)
    CDI.mkdir(parents=True, exist_ok=True)
    with (place.logs / f"{contestant.name}.log").open("ab") as log:
        begin = time.time()
        process = subprocess.Popen(
            command, env=dict(place.environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield Instance(contestant, process, begin, registry, place)
    finally:
        end(process)
        _clean(place, contestant, registry)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and wait for that."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _clean(place: Place, contestant: Contestant, registry: Path) -> None:
    """Leave nothing that the next start or another contestant would notice; containerd reads every CDI spec."""
    for driver in contestant.drivers:
        place.api.delete(SLICES, fieldSelector=f"spec.driver={driver}")
        for path in sockets(registry, driver):
            path.unlink(missing_ok=True)
        shutil.rmtree(PLUGINS / driver, ignore_errors=True)
        for spec in CDI.glob(f"*{driver}*"):
            spec.unlink(missing_ok=True)
    place.slices.until(lambda items: all(published(dict(items), driver) is None for driver in contestant.drivers))
    time.sleep(FORGET)


def wait_for(check: Callable[[], bool], what: str, timeout: float = 30) -> None:
    """Wait until the check is true. Raises TimeoutError."""
    end = time.monotonic() + timeout
    while not check():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(0.05)
