"""Locks that hold between the tasks of a process and between processes, and never block the event loop.

A rolling update runs two instances of a driver at once. Within a process an ``asyncio.Lock`` orders the tasks (first
come, first served); between processes a ``flock``, polled until the deadline. A process that dies frees its locks.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from dra_plugin.errors import ClaimError

__all__ = ["DeviceLocks", "FileLock"]

_FIRST_POLL = 0.001  # seconds between tries, doubled up to the longest
_LONGEST_POLL = 0.02
_COUNTER_BYTES = 8


class FileLock:
    """An exclusive lock with a change counter in its file.

    The counter tells a holder whether another object (another process, usually) changed the protected state since it
    held the lock last: what it knows in memory is then out of date.
    """

    def __init__(self, path: Path) -> None:
        """Lock the file at ``path``; it and its folder are created at the first ``hold``."""
        self._path = path
        self._tasks = asyncio.Lock()
        self._descriptor: int | None = None
        self._seen: int | None = None

    @asynccontextmanager
    async def hold(self, timeout: float) -> AsyncIterator[bool]:  # noqa: ASYNC109 - the deadline is part of a lock's contract
        """Hold the lock; yields True when the state is unchanged since this very object held it last.

        ``timeout`` is in seconds, for tasks and processes together. Raises ClaimError when it passes.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._tasks.acquire()
        except TimeoutError:
            raise ClaimError(f"another call holds {self._path} for more than {timeout:g} s") from None
        try:
            self._descriptor = await self._locked(deadline, timeout)
            counter = self._counter(self._descriptor)
            unchanged, self._seen = counter == self._seen, counter
            yield unchanged
        finally:
            self._release()

    def changed(self) -> None:
        """Tell every other holder that the state is another one. Call it while holding, **before** changing.

        In this order a process that is killed between the two costs the others a needless look, never a missed change.
        """
        if self._descriptor is None:
            raise RuntimeError(f"{self._path} is not held")
        self._seen = (self._counter(self._descriptor) + 1) % 2 ** (8 * _COUNTER_BYTES)
        try:
            os.pwrite(self._descriptor, self._seen.to_bytes(_COUNTER_BYTES), 0)
        except OSError as error:  # a full disk, perhaps
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ClaimError:
        return ClaimError(f"lock file {self._path} cannot be used: {error.strerror or error}")

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # frees the flock
            self._descriptor = None
        self._tasks.release()

    async def _locked(self, deadline: float, timeout: float) -> int:  # noqa: ASYNC109 - only named in the error
        pause = _FIRST_POLL
        while (descriptor := self._try()) is None:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise ClaimError(f"another instance of the driver holds {self._path} for more than {timeout:g} s")
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_POLL)
        return descriptor

    def _try(self) -> int | None:
        """Return a locked descriptor of the file that stands at the path now, or None."""
        try:
            descriptor = self._open()
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:  # else somebody removed the file: others will lock a new one
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, 0o600)

    def _counter(self, descriptor: int) -> int:
        return int.from_bytes(os.pread(descriptor, _COUNTER_BYTES, 0))


class DeviceLocks:
    """One lock file for each physical device, taken in the order of their names so that no two calls wait in a ring."""

    def __init__(self, folder: Path) -> None:
        """Keep the lock files in ``folder``, created at the first ``hold``."""
        self._folder = folder
        self._locks: dict[str, FileLock] = {}

    @asynccontextmanager
    async def hold(self, ids: Iterable[str], timeout: float) -> AsyncIterator[None]:  # noqa: ASYNC109 - the deadline is part of a lock's contract
        """Hold the locks of these hardware ids; ``timeout`` in seconds for all. Raises ClaimError when it passes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        async with contextlib.AsyncExitStack() as stack:
            for device in sorted(set(ids)):
                await stack.enter_async_context(self._lock(device).hold(max(0.0, deadline - loop.time())))
            yield

    def _lock(self, device: str) -> FileLock:
        if device not in self._locks:
            self._locks[device] = FileLock(self._folder / f"{quote(device, safe=':')}.lock")
        return self._locks[device]
