"""Events: what users should read in ``kubectl describe``, written best effort.

Events are hints, not state: equal ones within a minute are written once, a flood about one object for one reason is cut
off, and an API server that is away loses them. Equal ones of several instances have the same name within a minute, so
the server keeps one: a rolling update, or another leader, repeats little.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import takewhile
from typing import TypeVar

from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError, Conflict
from dra_plugin.resources import EVENT, Event, ObjectMeta, ObjectReference

__all__ = ["Events"]

_QUIET = 60.0  # seconds in which an equal Event is not written again
_BURST = 20.0  # Events at once about one object, for one reason ...
_REFILL = 5.0  # ... and then one in so many seconds
_TIMEOUT = 10.0  # seconds for one write
_NOTE = 1024  # bytes of a note (events.k8s.io/v1)
_CUT = "…".encode()
_INSTANCE = 128  # characters of a reporting instance
_PREFIX = 50  # characters of an object's name that the names of its Events begin with ...
_MARK = 12  # ... and of what tells them apart: 63 with the dash, which fits any rule for names

K = TypeVar("K")
V = TypeVar("V")
_Subject = tuple[str, str, str, str]
"""Kind, namespace and name of an object, and a reason."""


class Events:
    """Writes Events of one reporter.

    Attributes:
        dropped: how many were not written because of the rate or the API server.
    """

    def __init__(self, cluster: Cluster, reporter: str, instance: str) -> None:
        """``reporter`` is the controller's name (a driver's name will do), ``instance`` a Pod or node."""
        self.dropped = 0
        self._cluster, self._reporter, self._instance = cluster, reporter, instance[:_INSTANCE]
        self._written: dict[tuple[_Subject, str, str], float] = {}  # when, by UID and note; the oldest first, as below
        self._left: dict[_Subject, tuple[float, float]] = {}  # Events that may still be written, and since when

    async def emit(self, regarding: ObjectReference, *, reason: str, note: str, warning: bool = True) -> None:
        """Write an Event; returns without one when it is a repetition, comes too fast, or the write fails.

        ``reason`` is one word in CamelCase, ``note`` one line for people (cut at 1 kB). Events of objects without
        namespace go to ``default``.
        """
        subject = regarding.kind, regarding.namespace or "", regarding.name, reason
        key = subject, regarding.uid or "", note  # a Pod that is made anew has its name, and has been told nothing
        if self._is_repetition(key):
            return
        if not self._may_write(subject) or not await self._write(self._event(regarding, reason, note, warning=warning)):
            self.dropped += 1
            self._written.pop(key, None)

    def _is_repetition(self, key: tuple[_Subject, str, str]) -> bool:
        now = asyncio.get_running_loop().time()
        _forget(self._written, lambda at: now - at >= _QUIET)
        known = key in self._written
        self._written.setdefault(key, now)
        return known

    def _may_write(self, subject: _Subject) -> bool:
        """Take one from what is left for the subject; what nothing was written about for long has all of it again."""
        now = asyncio.get_running_loop().time()
        _forget(self._left, lambda left: now - left[1] >= _BURST * _REFILL)
        before, since = self._left.pop(subject, (_BURST, now))
        left = min(_BURST, before + (now - since) / _REFILL)
        self._left[subject] = (left - 1.0 if left >= 1.0 else left), now
        return left >= 1.0

    async def _write(self, event: Event) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._cluster.create(EVENT, event)
        except Conflict:
            return True  # it is there: another instance has written it
        except (ClusterError, TimeoutError):
            return False
        return True

    def _name(self, regarding: ObjectReference, reason: str, note: str) -> str:
        """Return a name that equal Events of all instances have within the same minute, and no others."""
        minute = str(int(_unix_time() // _QUIET))
        about = regarding.kind, regarding.namespace or "", regarding.name, regarding.uid or ""
        told = "\n".join((self._reporter, *about, reason, note, minute))
        return f"{regarding.name[:_PREFIX].rstrip('-.')}-{hashlib.sha256(told.encode()).hexdigest()[:_MARK]}"

    def _event(self, regarding: ObjectReference, reason: str, note: str, *, warning: bool) -> Event:
        namespace = regarding.namespace or "default"
        return Event(
            metadata=ObjectMeta(name=self._name(regarding, reason, note), namespace=namespace),
            event_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            reporting_controller=self._reporter,
            reporting_instance=self._instance,
            action=reason,
            reason=reason,
            type="Warning" if warning else "Normal",
            note=_fitting(note),
            regarding=regarding,
        )


def _unix_time() -> float:
    """Return the time of day; it goes with the loop's clock where a test drives that."""
    return time.time() + asyncio.get_running_loop().time() - time.monotonic()


def _forget(entries: dict[K, V], is_old: Callable[[V], bool]) -> None:
    """Remove the old entries, which come first."""
    for key, _ in tuple(takewhile(lambda entry: is_old(entry[1]), entries.items())):
        del entries[key]


def _fitting(note: str) -> str:
    """Return the note, cut where the API would refuse more; that it was cut shows."""
    data = note.encode()
    if len(data) > _NOTE:
        data = data[: _NOTE - len(_CUT)].decode(errors="ignore").encode() + _CUT
    return data.decode()
