"""Events: what users should read in ``kubectl describe``, written best effort.

Events are hints, not state: equal ones within a minute are written once, a flood is cut off, and an API server that is
away loses them.
"""

import asyncio
from datetime import UTC, datetime

from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError
from dra_plugin.resources import EVENT, Event, ObjectMeta, ObjectReference

__all__ = ["Events"]

_QUIET = 60.0  # seconds in which an equal Event is not written again
_BURST = 20  # Events at once ...
_REFILL = 5.0  # ... and then one in so many seconds
_TIMEOUT = 10.0  # seconds for one write
_NOTE = 1024  # bytes of a note (events.k8s.io/v1)
_INSTANCE = 128  # characters of a reporting instance
_PREFIX = 57  # characters of a generateName that the server keeps, without the dash

_Key = tuple[str, str, str, str, str]


class Events:
    """Writes Events of one reporter.

    Attributes:
        dropped: how many were not written because of the rate or the API server.
    """

    def __init__(self, cluster: Cluster, reporter: str, instance: str) -> None:
        """``reporter`` is the controller's name (a driver's name will do), ``instance`` a Pod or node."""
        self.dropped = 0
        self._cluster, self._reporter, self._instance = cluster, reporter, instance[:_INSTANCE]
        self._written: dict[_Key, float] = {}
        self._tokens = float(_BURST)
        self._counted_at = 0.0

    async def emit(self, regarding: ObjectReference, *, reason: str, note: str, warning: bool = True) -> None:
        """Write an Event; returns without one when it is a repetition, comes too fast, or the write fails.

        ``reason`` is one word in CamelCase, ``note`` one line for people (cut at 1 kB). Events of objects without
        namespace go to ``default``.
        """
        key = (regarding.kind, regarding.namespace or "", regarding.name, reason, note)
        if self._is_repetition(key):
            return
        if not self._take_token() or not await self._write(self._event(regarding, reason, note, warning=warning)):
            self.dropped += 1
            del self._written[key]

    def _is_repetition(self, key: _Key) -> bool:
        now = asyncio.get_running_loop().time()
        self._written = {known: at for known, at in self._written.items() if now - at < _QUIET}
        known = key in self._written
        self._written.setdefault(key, now)
        return known

    def _take_token(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._tokens = min(float(_BURST), self._tokens + (now - self._counted_at) / _REFILL)
        self._counted_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    async def _write(self, event: Event) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._cluster.create(EVENT, event)
        except (ClusterError, TimeoutError):
            return False
        return True

    def _event(self, regarding: ObjectReference, reason: str, note: str, *, warning: bool) -> Event:
        namespace = regarding.namespace or "default"
        return Event(
            metadata=ObjectMeta(generate_name=f"{regarding.name[:_PREFIX]}-", namespace=namespace),
            event_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            reporting_controller=self._reporter,
            reporting_instance=self._instance,
            action=reason,
            reason=reason,
            type="Warning" if warning else "Normal",
            note=note.encode()[:_NOTE].decode(errors="ignore"),
            regarding=regarding,
        )
