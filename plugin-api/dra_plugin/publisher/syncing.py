"""One pool: decide what to write, and when; write it; learn from the answers."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing, suppress

import msgspec

from dra_plugin.errors import ClusterError, Conflict, Rejected
from dra_plugin.latest import follow
from dra_plugin.naming import Checked
from dra_plugin.observe import FieldsDropped, PoolSynced, SliceWritten
from dra_plugin.publisher.pace import FOREIGN, LOST, VANISHED, Pace, lost
from dra_plugin.publisher.refused import Refused, gates_for
from dra_plugin.publisher.scope import PoolState, Scope
from dra_plugin.resources import RESOURCE_SLICE, OwnerReference, Pool, ResourceSlice
from dra_plugin.slices import Writes, plan

__all__ = ["PoolSync"]


class _Settled(msgspec.Struct, frozen=True):
    """The last time that stored and wanted were equal: what was wanted, and the versions that were stored."""

    pool: Pool | None
    reference: OwnerReference | None
    versions: frozenset[tuple[str | None, str | None]]


class PoolSync:
    """Keeps the slices of one pool equal to what is wanted."""

    def __init__(self, name: str, scope: Scope) -> None:
        """Look after the pool ``name``."""
        self._name, self._scope = name, scope
        self._pace = Pace()
        self._refused = Refused()
        self._settled: _Settled | None = None
        self._since: float | None = None  # when somebody else was first seen to have changed something
        self._patience = 0.0
        self._lists = 0
        self._wake: float | None = None
        self._error: str | None = None
        self._told: tuple[str, ...] = ()
        self._published = False
        self._away = False

    async def run(self) -> None:
        """Write whenever stored and wanted differ; return when the pool is neither wanted nor stored."""
        async with aclosing(follow(*self._scope.inputs, until=lambda: self._wake)) as changes:
            async for _ in changes:
                self._look_whether_it_is_back()
                wanted, stored = self._scope.wanted().get(self._name), self._stored()
                if not wanted and not stored:
                    self._scope.report(self._name, None)
                    return
                writes = self._decide(wanted, stored)
                if writes:
                    await self._write(writes)

    def _stored(self) -> tuple[ResourceSlice, ...]:
        """Return the stored slices, as if the server had kept all that was sent; after a new list it is tried again."""
        lists = self._scope.mirror.synced.value
        if lists != self._lists:
            self._lists = lists
            if self._refused.forget():
                self._settled = None
        return self._refused.hide(self._scope.stored().get(self._name, ()))

    def _look_whether_it_is_back(self) -> None:
        away = self._scope.mirror.error.value is not None
        if self._away and not away:
            self._pace.back(_now())
            if self._scope.node.reference.value is None:
                self._scope.node.read_again()
        self._away = away

    def _decide(self, wanted: Checked | None, stored: Sequence[ResourceSlice]) -> Writes:
        """Return what to write now; nothing while it is not the time, with the time to look again in ``_wake``."""
        scope, self._wake = self._scope, None
        if scope.pools.value is None:
            return Writes()
        pool = wanted.pool if wanted else None
        writes = plan(pool, stored, scope.owner)
        known = scope.mirror.synced.value > 0 and scope.node.reference.value is not None
        self._report(wanted, stored, synced=known and not writes)
        if not writes or not known or not scope.writable:
            self._rest(pool, stored, equal=known and not writes)
            return Writes()
        now = _now()
        ready = now if self._pace.allows(now, (pool, stored)) else self._pace.ready
        self._wake = max(ready, self._until(pool, stored))
        return Writes() if self._wake > now else writes

    def _rest(self, pool: Pool | None, stored: Sequence[ResourceSlice], *, equal: bool) -> None:
        """Note that there is nothing to write: all is equal, or writing is not ours."""
        scope, self._since = self._scope, None
        if not equal or not scope.writable:
            self._settled = None
            return
        if self._settled is None:
            scope.observer(PoolSynced(driver=scope.driver, pool=self._name, error=None))
        self._settled = _Settled(pool, scope.node.reference.value, _versions(stored))

    def _until(self, pool: Pool | None, stored: Sequence[ResourceSlice]) -> float:
        """Return until when to leave alone what somebody else did; the past when the difference is our own wish."""
        settled = self._settled
        if not settled or (settled.pool, settled.reference) != (pool, self._scope.node.reference.value):
            return 0.0
        if self._since is None:
            self._since, self._patience = _now(), random.uniform(*LOST)
            self._scope.node.read_again()
        if not self._scope.mirror.objects.value:
            return self._since + VANISHED
        return self._since + (self._patience if _versions(stored) < settled.versions else FOREIGN)

    async def _write(self, writes: Writes) -> None:
        """Carry out ``writes`` in order, as long as that is ours to do."""
        self._settled = self._since = None
        try:
            await self._carry_out(writes)
        except ClusterError as error:
            self._failed(error)
        else:
            self._error = None
            self._pace.done(_now())
        self._tell_dropped()

    async def _carry_out(self, writes: Writes) -> None:
        verbs = (("delete", writes.delete), ("update", writes.update), ("create", writes.create))
        for verb, each in [(verb, each) for verb, slices in verbs for each in slices]:
            if not self._scope.writable:
                return
            try:
                await self._write_one(verb, each)
            except (Conflict, Rejected):
                await self._read(each)
                raise
            generation = each.spec.pool.generation
            observed = SliceWritten(driver=self._scope.driver, pool=self._name, verb=verb, generation=generation)
            self._scope.observer(observed)

    async def _write_one(self, verb: str, each: ResourceSlice) -> None:
        cluster, mirror = self._scope.cluster, self._scope.mirror
        if verb == "delete":
            if await cluster.delete(RESOURCE_SLICE, each):
                mirror.forget(each)
            else:
                await self._read(each)
            return
        write = cluster.create if verb == "create" else cluster.replace
        answer = await write(RESOURCE_SLICE, each)
        self._refused.note(each, answer)
        mirror.learn(answer)

    async def _read(self, each: ResourceSlice) -> None:
        """Learn what the server has in place of ``each``; failing that, the watch will tell."""
        if not each.metadata.name:
            return
        with suppress(ClusterError):
            answer = await self._scope.cluster.get(RESOURCE_SLICE, each.metadata.name)
            if answer is None or answer.metadata.uid != each.metadata.uid:
                self._scope.mirror.forget(each)
            if answer is not None:
                self._scope.mirror.learn(answer)

    def _failed(self, error: ClusterError) -> None:
        scope = self._scope
        wanted = scope.wanted().get(self._name)
        self._pace.failed(_now(), error, (wanted.pool if wanted else None, self._stored()))
        if isinstance(error, Rejected):
            scope.node.read_again()
        if not isinstance(error, Conflict) and not lost(error):
            self._error = str(error)
            scope.observer(PoolSynced(driver=scope.driver, pool=self._name, error=self._error))
        self._report(wanted, self._stored(), synced=False)

    def _tell_dropped(self) -> None:
        fields = self._refused.fields
        if fields != self._told:
            scope = self._scope
            dropped = FieldsDropped(driver=scope.driver, pool=self._name, fields=fields, gates=gates_for(fields))
            scope.observer(dropped)
        self._told = fields

    def _report(self, wanted: Checked | None, stored: Sequence[ResourceSlice], *, synced: bool) -> None:
        if synced:
            self._error = None
        self._published = bool(stored) and (synced or self._published)
        scope = self._scope
        state = PoolState(
            generation=max((each.spec.pool.generation for each in stored), default=0),
            slices=len(stored),
            synced=synced,
            published=self._published,
            error=self._error or (None if synced else scope.node.error.value or scope.mirror.error.value),
            dropped=self._refused.fields,
            problems=tuple(map(str, wanted.problems)) if wanted else (),
        )
        scope.report(self._name, state)


def _versions(stored: Sequence[ResourceSlice]) -> frozenset[tuple[str | None, str | None]]:
    return frozenset((each.metadata.name, each.metadata.resource_version) for each in stored)


def _now() -> float:
    return asyncio.get_running_loop().time()
