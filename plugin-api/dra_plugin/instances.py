"""Which living instance of a driver on this node is the newest: only that one publishes (rolling update).

An instance holds a ``flock`` on a file of its own, ``<folder>/<instance>``, with its number in it: one more than any
it found when the kubelet registered it first. A file that nobody locks belonged to a dead process and is removed. The
right to publish is one more ``flock``, ``<folder>/.newest``: the older instance lets go of it as soon as it sees a
newer one, and only then the newer one is told so. So two never publish at once; a process that dies frees both. An
instance whose file vanished (somebody cleaned the folder) enters again, and takes the right anew.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from dra_plugin.errors import SetupError
from dra_plugin.latest import Latest

__all__ = ["Instance"]

_PERIOD = 1.0  # seconds between two looks at the folder


class Instance:
    """This process among the instances of its driver."""

    def __init__(self, folder: Path, name: str) -> None:
        """Meet the others in ``folder``; ``name`` is unique among the living (the Pod's UID)."""
        self._folder = folder
        self._name = quote(name, safe="")
        self._own: int | None = None  # descriptor of our file, locked
        self._right: int | None = None  # descriptor of the right to publish, locked
        self._number = 0
        self._closed = False
        self.newest: Latest[bool] = Latest(False)  # noqa: FBT003 - the value of a Latest
        """True from the moment that this instance may publish until a newer one is seen."""

    def announce(self) -> None:
        """Take a number: called whenever the kubelet says "registered", effective once. Raises SetupError."""
        if self._closed:
            return
        try:
            if not self._number:
                self._number = max((number for number, _ in self._others()), default=0) + 1
            self._look()
        except OSError as error:
            self._number = self._number if self._own is not None else 0  # no instance without a file
            raise SetupError(f"instance file in {self._folder} cannot be written: {error.strerror or error}") from error

    async def run(self) -> None:
        """Follow the others until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD)
            if self._number and not self._closed:
                with contextlib.suppress(OSError):  # a full disk, perhaps: keep what is known, look again
                    self._look()

    def close(self) -> None:
        """Withdraw for good: the next instance may publish."""
        self._closed = True
        if self._is_known():
            with contextlib.suppress(OSError):
                (self._folder / self._name).unlink()
        self._leave()

    def _look(self) -> None:
        if not self._is_known():  # for the first time, or somebody cleaned the folder
            self._leave()
            self._own = self._enter()
        if any(other > (self._number, self._name) for other in self._others()):
            self._let_go()
            return
        if self._right is None:
            self._right = _lock(self._folder / ".newest")
        self.newest.set(self._right is not None)

    def _enter(self) -> int:
        """Create our file, locked before it can be seen; returns its descriptor."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = self._folder / self._name
        dead = _lock(path, create=False)
        if dead is not None:
            os.close(dead)
        elif path.exists():
            raise BlockingIOError(f"another live instance has the same name {self._name}")
        hidden = self._folder / f".{secrets.token_hex(4)}"
        descriptor = _lock(hidden)
        if descriptor is None:
            raise BlockingIOError(f"{hidden} is locked")
        try:
            os.write(descriptor, b"%d\n" % self._number)
            hidden.replace(path)
        except OSError:
            os.close(descriptor)
            hidden.unlink(missing_ok=True)
            raise
        return descriptor

    def _others(self) -> Iterator[tuple[int, str]]:
        """Yield (number, name) of each other living instance; removes the files of dead ones."""
        for path in _files(self._folder):
            if path.name == self._name:
                continue
            descriptor = _lock(path, create=False)
            if descriptor is None:
                yield _number(path), path.name
                continue
            try:
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)

    def _is_known(self) -> bool:
        """Tell whether our file stands where the others look."""
        try:
            return self._own is not None and (self._folder / self._name).stat().st_ino == os.fstat(self._own).st_ino
        except OSError:
            return False

    def _leave(self) -> None:
        """Be no instance any more, as far as the others can see."""
        self._let_go()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _let_go(self) -> None:
        """Publish no more, then let another one."""
        self.newest.set(False)
        if self._right is not None:
            os.close(self._right)
            self._right = None


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []


def _number(path: Path) -> int:
    try:
        return int(path.read_bytes() or b"0")
    except (OSError, ValueError):
        return 0


def _lock(path: Path, *, create: bool = True) -> int | None:
    """Return a locked descriptor of the file, or None when somebody else holds it or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        if create:
            raise
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
