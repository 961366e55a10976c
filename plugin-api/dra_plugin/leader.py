"""Leader election on a Lease: of several processes one leads, and for a moment perhaps none, but never two.

The rules are those of client-go's leader election, so both may share a Lease. Clocks of different machines are never
compared: a candidate takes over when it has seen the record stand still, by its own clock, for the duration that the
record names. The leader in turn stops earlier than that when it cannot renew, counted from the moment in which it sent
the last renewal that went through. All writes carry the resource version that was read, so one of two wins.
"""

import asyncio
import contextlib
import math
import random
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError, Conflict, Rejected, Retryable
from dra_plugin.latest import Latest
from dra_plugin.resources import LEASE, Lease, LeaseSpec, ObjectMeta

__all__ = ["Election", "Times"]

_JITTER = 1.2  # candidates wait up to so much longer than ``retry``, so that they do not come all at once
_GRAIN = 0.001  # seconds; the shortest sleep
_RELEASE = 5.0  # seconds at most for giving the Lease back: whoever stops must not hang


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long what takes, in seconds. Raises ValueError unless lease > renew > 1.2 retry > 0.

    Attributes:
        lease: how long a record must have stood still before another candidate takes over.
        renew: how long the leader goes on without having renewed; then it leads no more.
        retry: between two tries.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times with which two could lead, or nobody for long."""
        if not self.lease > self.renew > _JITTER * self.retry > 0:
            times = f"lease {self.lease:g}, renew {self.renew:g}, retry {self.retry:g}"
            raise ValueError(f"{times}: lease must be longer than renew, and renew longer than {_JITTER:g} retry")


class Election:
    """One candidate. What leads must have ended before ``run`` is cancelled: that gives the Lease to the next one.

    Attributes:
        leading: this candidate leads.
        term: how often this candidate has come to lead; what was known in an earlier term may be out of date.
        holder: the identity of the leader as last seen; empty when there is none.
        error: why the Lease could not be read or written at the last try.
    """

    def __init__(
        self, cluster: Cluster, *, name: str, namespace: str, identity: str, times: Times | None = None
    ) -> None:
        """Stand for the Lease ``namespace/name``; ``identity`` is unique among all processes, earlier ones included."""
        self.leading: Latest[bool] = Latest(False)  # noqa: FBT003 - the value of a Latest
        self.term = 0
        self.holder: Latest[str] = Latest("")
        self.error: Latest[str | None] = Latest(None)
        self._cluster, self._identity, self._times = cluster, identity, times or Times()
        self._meta = ObjectMeta(name=name, namespace=namespace)
        self._known: Lease | None = None
        self._seen_at = 0.0  # when the record was first seen as it is known
        self._until = 0.0  # the end of our term, unless it is renewed
        self._ready = 0.0  # before that nothing is tried
        self._written = False

    @property
    def holds(self) -> bool:
        """We lead, and the clock agrees: a process that was stopped for a while wakes up with ``leading`` still true.

        Ask it right before a write.
        """
        return _now() < self.until

    @property
    def until(self) -> float:
        """The time of the event loop at which our term ends unless it is renewed; the past while we do not lead.

        What is not written by then must not be written any more.
        """
        return self._until if self.leading.value else 0.0

    async def run(self) -> None:
        """Stand, lead, and stand again, until cancelled."""
        try:
            while True:
                self._lapse()
                if _now() >= self._ready:
                    await self._turn()
                wake = min(self._ready, self._until) if self.leading.value else self._ready
                await asyncio.sleep(max(_GRAIN, wake - _now()))
        finally:
            self.leading.set(False)
            with contextlib.suppress(ClusterError, TimeoutError):
                async with asyncio.timeout(min(_RELEASE, self._times.renew)):
                    await self._release()

    async def _turn(self) -> None:
        """Try once to get or to keep the Lease; note what came of it and when to try again."""
        sent, patience = _now(), 0.0
        limit = sent + self._times.renew / 2
        try:
            async with asyncio.timeout_at(min(limit, self._until) if self.leading.value else limit):
                ours = await self._try()
        except Conflict:  # somebody was faster
            self._lapse()
        except (ClusterError, TimeoutError) as error:
            self.error.set(str(error) or "the API server does not answer")
            patience = (error.retry_after or 0.0) if isinstance(error, Retryable) else 0.0
            self._lapse()
        else:
            self.error.set(None)
            self._until = sent + self._times.renew if ours else 0.0
            leads = _now() < self._until
            self.term += leads and not self.leading.value
            self.leading.set(leads)
        self._ready = _now() + max(patience, self._pause())

    async def _try(self) -> bool:
        """Renew the Lease, or take it if it is free; tell whether it is ours now."""
        if self.leading.value and self._known is not None:
            with contextlib.suppress(Conflict, Rejected):  # changed or deleted by somebody: look at it
                await self._write(self._known)
                return True
        stored = await self._cluster.get(LEASE, self._meta.name or "", self._meta.namespace)
        self._observe(stored)
        if stored is not None and self._remaining(stored) > 0:
            return False
        await self._write(stored)
        return True

    async def _write(self, stored: Lease | None) -> None:
        self._written = True
        if stored is None:
            wanted = Lease(metadata=self._meta, spec=self._record(LeaseSpec()))
            self._observe(await self._cluster.create(LEASE, wanted))
        else:
            wanted = replace(stored, spec=self._record(stored.spec))
            self._observe(await self._cluster.replace(LEASE, wanted))

    def _record(self, before: LeaseSpec) -> LeaseSpec:
        """Return our record; a leader that goes on keeps the time since which it leads."""
        now, ours = _timestamp(), before.holder_identity == self._identity
        changes = before.lease_transitions or 0
        taken_over = not ours and before != LeaseSpec()
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._times.lease),
            acquire_time=(before.acquire_time if ours else None) or now,
            renew_time=now,
            lease_transitions=changes + 1 if taken_over else changes,
        )

    def _observe(self, stored: Lease | None) -> None:
        """Note what the server has, and since when it stands like that."""
        if stored is None or self._known is None or stored.spec != self._known.spec:
            self._seen_at = _now()
        self._known = stored
        self.holder.set((stored and stored.spec.holder_identity) or "")

    def _remaining(self, stored: Lease) -> float:
        """Return the seconds for which somebody else still holds the Lease, as far as we have seen."""
        if stored.spec.holder_identity in (None, "", self._identity):
            return 0.0
        return self._seen_at + (stored.spec.lease_duration_seconds or self._times.lease) - _now()

    def _lapse(self) -> None:
        """Lead no more when the term is over."""
        self.leading.set(self.holds)

    def _pause(self) -> float:
        """Return the seconds until the next try; a candidate comes when the Lease may be free, if that is sooner."""
        if self.leading.value:
            return self._times.retry
        wait = self._times.retry * random.uniform(1.0, 1.0 + _JITTER)
        remaining = self._remaining(self._known) if self._known else 0.0
        return min(wait, remaining + random.uniform(0.0, self._times.retry / 4)) if remaining > 0 else wait

    async def _release(self) -> None:
        """Give back the Lease if it may be ours: a write that was cut off may have reached the server."""
        while self._written:
            stored = await self._cluster.get(LEASE, self._meta.name or "", self._meta.namespace)
            if stored is None or stored.spec.holder_identity != self._identity:
                return
            now = _timestamp()
            empty = LeaseSpec(
                lease_duration_seconds=1,
                acquire_time=now,
                renew_time=now,
                lease_transitions=stored.spec.lease_transitions,
            )
            with contextlib.suppress(Conflict):
                self._observe(await self._cluster.replace(LEASE, replace(stored, spec=empty)))
                return


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now() -> float:
    return asyncio.get_running_loop().time()
