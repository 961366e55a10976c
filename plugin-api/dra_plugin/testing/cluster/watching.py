"""Watches of the fake API server: history first, then what comes; bookmarks; ended or broken on order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from math import inf
from typing import Any, Literal

from dra_plugin.cluster import Selector
from dra_plugin.latest import Latest, follow
from dra_plugin.testing.cluster.catalog import Resource
from dra_plugin.testing.cluster.refusal import Refusal
from dra_plugin.testing.cluster.selection import Matcher, event_for, matcher
from dra_plugin.testing.cluster.store import Store, shown

__all__ = ["BOOKMARKS", "Event", "Watching"]

_Json = dict[str, Any]
_Type = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
Event = tuple[_Type, _Json | None, int]
BOOKMARKS = 60.0  # seconds, as on the real server
_LAST_BOOKMARK = 2.0  # seconds before a watch ends, as on the real server


class Watching:
    """All running watches.

    Attributes:
        count: how many run.
    """

    def __init__(self, store: Store, bookmarks: float) -> None:
        """Watch ``store``; a bookmark comes every ``bookmarks`` seconds."""
        self.count = 0
        self._store, self._bookmarks = store, bookmarks
        self._generation = Latest(0)
        self._end: Refusal | None = None

    def end(self, code: int | None = None) -> None:
        """End all running watches: cleanly, or with an error (0 = reset, 410 = expired, 500 ...)."""
        self._end = None if code is None else Refusal(code, "", "ordered fault in the watch")
        self._generation.set(self._generation.value + 1)

    async def watch(
        self, resource: Resource, since: int, selector: Selector, lasts: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield events after ``since``, the first a BOOKMARK at ``since``; ends after ``lasts`` seconds."""
        matches = matcher(resource, selector)
        clock = _Clock(self._bookmarks, lasts)
        started, begun_at = self._generation.value, self._store.version.value
        async with self._changes(clock) as changes:
            yield "BOOKMARK", None, since
            async for version, generation in changes:
                if generation != started:
                    break
                for event in self._events(resource, since, matches):
                    yield event
                since = max(since, version)
                if clock.bookmark_is_due() and since > begun_at:  # as on the real server
                    yield "BOOKMARK", None, since
                if clock.is_over():
                    return
        if self._end is not None:
            raise self._end

    @asynccontextmanager
    async def _changes(self, clock: "_Clock") -> AsyncIterator[AsyncGenerator[tuple[int, int], None]]:
        """Give what a watch follows, and count it meanwhile."""
        self.count += 1
        try:
            async with aclosing(follow(self._store.version, self._generation, until=clock.next)) as changes:
                yield changes
        finally:
            self.count -= 1

    def _events(self, resource: Resource, since: int, matches: Matcher) -> list[Event]:
        ours = [entry for entry in self._store.since(since) if entry.resource == resource.qualified]
        found = [(event_for(matches, entry.before, entry.after), entry.version) for entry in ours]
        return [(event[0], shown(resource, event[1]), version) for event, version in found if event is not None]


class _Clock:
    """When a watch sends its bookmarks and when it ends, in the time of the event loop."""

    def __init__(self, period: float, lasts: float | None) -> None:
        self._now = asyncio.get_running_loop().time
        self._period = period
        self._end = inf if lasts is None else self._now() + lasts
        self._bookmark = min(self._now() + period, self._end - _LAST_BOOKMARK)

    def next(self) -> float:
        return min(self._bookmark, self._end)

    def bookmark_is_due(self) -> bool:
        due = self._now() >= self._bookmark
        if due:
            self._bookmark = self._now() + self._period
        return due

    def is_over(self) -> bool:
        return self._now() >= self._end
