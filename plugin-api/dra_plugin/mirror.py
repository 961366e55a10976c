"""Mirror: the objects of one kind that a selector matches, kept current by list and watch.

``objects`` lags behind the server a little. Own writes are folded in with ``learn`` and ``forget``, so that who just
wrote never reads the state before: the higher resource version wins, and what was deleted leaves a tombstone that no
late answer can undo. Resource versions are compared as numbers (KEP-5504; true of every etcd before it).
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from dra_plugin.backoff import backoff
from dra_plugin.cluster import EVERYTHING, Change, Cluster, HasMetadata, Selector
from dra_plugin.errors import ClusterError, Expired, Rejected, Retryable
from dra_plugin.latest import Latest
from dra_plugin.resources import Kind

__all__ = ["Mirror"]

_FIRST_DELAY = 0.1  # seconds; doubles with each failure in a row
_LONGEST_DELAY = 15.0
_LONGEST_UNANSWERED = 5.0  # where nobody answers nobody is hammered, and a server that is back is to be found soon
_STEADY = 1.0  # a watch that lived shorter than this counts as a failure: no hot loop whatever the server does
_TOMBSTONES = 1024  # the newest that are kept
_FOREVER = 1 << 63


T = TypeVar("T", bound=HasMetadata)


class Mirror(Generic[T]):
    """A view of one kind. ``run`` keeps it current until cancelled and never gives up.

    Attributes:
        objects: by ``namespace/name``, or ``name`` where the kind has no namespaces. Empty until ``synced``.
        synced: how often everything was listed; 0 means that ``objects`` says nothing yet.
        error: what keeps the view from being current, or None while the watch stands.
    """

    def __init__(self, cluster: Cluster, kind: Kind[T], selector: Selector = EVERYTHING) -> None:
        """Look at what ``selector`` matches; nothing happens before ``run``."""
        self.objects: Latest[Mapping[str, T]] = Latest({})
        self.synced: Latest[int] = Latest(0)
        self.error: Latest[str | None] = Latest(None)
        self._cluster, self._kind, self._selector = cluster, kind, selector
        self._tombstones: dict[str, int] = {}  # UID -> resource version of its deletion
        self._since: str | None = None
        self._failures: Counter[bool] = Counter()  # in a row; True: the server has answered
        self._standing = float("inf")  # the time from which the watch stands

    def learn(self, obj: T) -> None:
        """Fold in an object that the server returned, unless something newer is known of it."""
        key, version = _key(obj), _version(obj)
        if version <= self._tombstones.get(_uid(obj), -1):
            return
        known = self.objects.value.get(key)
        if known is None or _version(known) < version:
            self.objects.set({**self.objects.value, key: obj})

    def forget(self, obj: T) -> None:
        """Fold in that this very object (by UID) was deleted; nothing brings it back."""
        self._bury(obj, _FOREVER)

    async def reread(self) -> None:
        """List everything now, however far the watch is behind. Raises ClusterError."""
        listing = await self._cluster.list(self._kind, self._selector)
        for obj in listing.items:
            self.learn(obj)
        at, there = int(listing.resource_version), {_uid(obj) for obj in listing.items}
        for known in tuple(self.objects.value.values()):
            if _uid(known) not in there and _version(known) <= at:  # what is newer than the list is not gone
                self._bury(known, at)

    async def run(self) -> None:
        """List, then watch; again and again, with back-off, until cancelled."""
        while True:
            self._standing = float("inf")
            try:
                await self._pass()
                delay = 0.0 if self._was_steady() else self._backoff(answered=True)
            except ClusterError as error:
                delay = self._failed(error)
            await asyncio.sleep(delay)

    async def _pass(self) -> None:
        """List if nothing is known to watch from, then one watch until it ends."""
        if self._since is None:
            self._since = await self._list()
        try:
            async with aclosing(self._cluster.watch(self._kind, self._since, self._selector)) as changes:
                async for change in changes:
                    self._standing = min(self._standing, _now())
                    self.error.set(None)
                    self._fold(change)
        finally:
            if self._was_steady():
                self._failures.clear()

    def _was_steady(self) -> bool:
        """Tell whether the watch stood for a while; a request that took long to fail did not."""
        return _now() - self._standing >= _STEADY

    async def _list(self) -> str:
        listing = await self._cluster.list(self._kind, self._selector)
        at = int(listing.resource_version)
        found = {_key(obj): obj for obj in listing.items if _version(obj) > self._tombstones.get(_uid(obj), -1)}
        newer = {key: obj for key, obj in self.objects.value.items() if _version(obj) > at}
        self.objects.set({**found, **newer})
        self.synced.set(self.synced.value + 1)
        self.error.set(None)
        return listing.resource_version

    def _fold(self, change: Change[T]) -> None:
        if change.object is not None and change.type == "DELETED":
            self._bury(change.object, int(change.resource_version))
        elif change.object is not None:
            self.learn(change.object)
        self._since = change.resource_version

    def _bury(self, obj: T, version: int) -> None:
        key, uid = _key(obj), _uid(obj)
        self._tombstones[uid] = max(version, self._tombstones.pop(uid, -1))
        while len(self._tombstones) > _TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        known = self.objects.value.get(key)
        if known is not None and _uid(known) == uid and _version(known) <= version:
            self.objects.set({other: obj for other, obj in self.objects.value.items() if other != key})

    def _failed(self, error: ClusterError) -> float:
        """Note the error; return the seconds to wait."""
        if isinstance(error, Expired | Rejected):
            self._since = None  # what the watch started from, or the request itself, is no good: list again
        if not isinstance(error, Expired):
            self.error.set(str(error))
        if not isinstance(error, Retryable):
            return self._backoff(answered=True)
        answered = error.code is not None or self._standing < float("inf")
        return max(error.retry_after or 0.0, self._backoff(answered=answered))

    def _backoff(self, *, answered: bool) -> float:
        """Return the seconds to wait after one more failure.

        Failures without an answer are a row of their own: a server that has just come back refuses some things for a
        moment, and the time when it was away makes that no longer.
        """
        self._failures[answered] += 1
        longest = _LONGEST_DELAY if answered else _LONGEST_UNANSWERED
        return backoff(_FIRST_DELAY, self._failures[answered], longest)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _key(obj: HasMetadata) -> str:
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name or ""


def _uid(obj: HasMetadata) -> str:
    return obj.metadata.uid or ""


def _version(obj: HasMetadata) -> int:
    return int(obj.metadata.resource_version or 0)
