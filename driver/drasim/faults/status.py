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
        self._failures = 0
        self._again: float | None = None

    async def run(self) -> None:
        """Write until cancelled; what fails is tried again, later each time."""
        async with aclosing(follow(self.wanted, self._mirror.objects, until=lambda: self._again)) as changes:
            async for _ in changes:
                if self._again is None or self._again <= asyncio.get_running_loop().time():
                    await self._round()

    async def _round(self) -> None:
        """Write each status that differs, the newest that is wanted by then. One that is rejected holds up no other."""
        self._again = None
        rejected: Rejected | None = None
        try:
            for name in tuple(self._mirror.objects.value):
                rejected = await self._settle(name) or rejected
        except ClusterError as error:
            self._failed(error)
        except TimeoutError:
            self._failed(Retryable(f"no answer within {_TIMEOUT:g} s"))
        else:
            self._done(rejected)

    async def _settle(self, name: str) -> Rejected | None:
        """Write the status of one object if it differs; return why the server does not take it."""
        fault = self._mirror.objects.value.get(name)
        status = self.wanted.value.get(key_of(fault)) if fault else None
        if fault is None or status is None or status == fault.status:
            return None
        try:
            async with asyncio.timeout(_TIMEOUT):
                stored = await apply_status(self._cluster, fault, status)
        except Rejected as error:
            if error.code in _NO_RIGHTS:
                raise
            return error
        if stored is not None:
            self._mirror.learn(stored)
        return None

    def _done(self, rejected: Rejected | None) -> None:
        if rejected is not None:
            self._failed(rejected)
        else:
            self._failures = 0
            self.problem.set(None)

    def _failed(self, error: ClusterError) -> None:
        self.problem.set(f"a status cannot be written: {error}")
        self._failures += 1
        longest, asked = _LONGEST_DELAY, None
        if isinstance(error, Retryable):
            longest, asked = _LONGEST_UNANSWERED, error.retry_after
        delay = backoff(_FIRST_DELAY, self._failures, longest)
        self._again = asyncio.get_running_loop().time() + max(asked or 0.0, delay)
