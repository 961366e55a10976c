"""The status of DeviceFaults, brought to the API server: one writer at a time, only what differs."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import msgspec

from dra_plugin.backoff import backoff
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError, Conflict, Rejected, Retryable
from dra_plugin.latest import Latest, follow
from dra_plugin.mirror import Mirror
from drasim.faults.objects import DEVICE_FAULT, DeviceFault, DeviceFaultStatus
from drasim.faults.wanted import key_of

__all__ = ["MANAGER", "StatusWriter", "apply_status"]

MANAGER = "drasim-faults"
"""Field manager of every writer of a status: what the controller refused, the node may take back."""

_TIMEOUT = 10.0  # seconds for one write
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_LONGEST_UNANSWERED = 5.0  # a server that is back is to be found soon
_NO_RIGHTS = (401, 403)  # what is true of one object is true of all
_GONE = 404


async def apply_status(cluster: Cluster, fault: DeviceFault, status: DeviceFaultStatus) -> DeviceFault | None:
    """Write the status of the object as it was read, and return what is stored; None when it is gone or changed.

    The version is the lock (a status subresource looks at no UID): what was decided for an object never gets onto
    another one of its name. Raises ClusterError.
    """
    meta = {"name": fault.metadata.name, "resourceVersion": fault.metadata.resource_version}
    fields = {"metadata": meta, "status": msgspec.to_builtins(status)}
    try:
        return await cluster.apply(DEVICE_FAULT, fields, MANAGER, subresource="status")
    except Conflict:
        return None
    except Rejected as error:
        if error.code == _GONE:
            return None
        raise


class _Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A status that the server did not take: why, how often in a row, and when (loop time) it is tried again."""

    status: DeviceFaultStatus
    error: Rejected
    times: int
    again: float


class StatusWriter:
    """Writes what was decided to the API server until the stored statuses equal it.

    Attributes:
        wanted: by UID, what each object's status is to be.
        problem: what keeps a status from being written; None while nothing does.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror[DeviceFault]) -> None:
        """Write the statuses of the objects in ``mirror``, which learns what was stored."""
        self.wanted: Latest[Mapping[str, DeviceFaultStatus]] = Latest({})
        self.problem: Latest[str | None] = Latest(None)
        self._cluster, self._mirror = cluster, mirror
        self._rejections: dict[str, _Rejection] = {}  # by UID
        self._failures = 0
        self._ready = 0.0  # loop time before which nothing is written, after a failure that is of no object alone
        self._again: float | None = None

    async def run(self) -> None:
        """Write until cancelled; what fails is tried again, later each time."""
        async with aclosing(follow(self.wanted, self._mirror.objects, until=lambda: self._again)) as changes:
            async for _ in changes:
                if self._ready <= _now():
                    await self._round()

    async def _round(self) -> None:
        """Write each status that differs, the newest that is wanted by then. One that is rejected holds up no other."""
        try:
            for name in tuple(self._mirror.objects.value):
                await self._settle(name)
        except ClusterError as error:
            self._failed(error)
        except TimeoutError:
            self._failed(Retryable(f"no answer within {_TIMEOUT:g} s"))
        else:
            self._done()

    async def _settle(self, name: str) -> None:
        """Write the status of one object if it differs, unless the server did not take that one a moment ago."""
        fault = self._mirror.objects.value.get(name)
        status = self.wanted.value.get(key_of(fault)) if fault else None
        if fault is None or status is None or status == fault.status:
            return
        key, now = key_of(fault), _now()
        before = self._rejections.get(key)
        if before and before.status == status and now < before.again:
            return
        try:
            async with asyncio.timeout(_TIMEOUT):
                stored = await apply_status(self._cluster, fault, status)
        except Rejected as error:
            if error.code in _NO_RIGHTS:
                raise
            times = before.times + 1 if before else 1
            again = now + backoff(_FIRST_DELAY, times, _LONGEST_DELAY)
            self._rejections[key] = _Rejection(status=status, error=error, times=times, again=again)
            return
        self._rejections.pop(key, None)
        if stored is not None:
            self._mirror.learn(stored)

    def _done(self) -> None:
        """The server takes statuses; those that it does not are tried again, each in its time."""
        wanted, stored = self.wanted.value, {key_of(each): each.status for each in self._mirror.objects.value.values()}
        is_open = {key for key, status in stored.items() if key in wanted and wanted[key] != status}
        self._rejections = {key: each for key, each in self._rejections.items() if key in is_open}
        rejections = self._rejections.values()
        self._failures = 0
        self._again = min((each.again for each in rejections), default=None)
        self.problem.set(next((_text(each.error) for each in rejections), None))

    def _failed(self, error: ClusterError) -> None:
        self.problem.set(_text(error))
        self._failures += 1
        longest, asked = _LONGEST_DELAY, None
        if isinstance(error, Retryable):
            longest, asked = _LONGEST_UNANSWERED, error.retry_after
        delay = backoff(_FIRST_DELAY, self._failures, longest)
        self._again = self._ready = _now() + max(asked or 0.0, delay)


def _text(error: ClusterError) -> str:
    return f"a status cannot be written: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()
