"""The newest value of something, and following it: the only concurrency primitive of the library.

State, not events: a follower always reads the whole newest value; a change only wakes it. Values that nobody had
time to look at are skipped, never queued. Everything here belongs to one event loop and is not thread-safe.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

__all__ = ["Latest", "follow"]

T = TypeVar("T")
_GRAIN = 0.001  # seconds; timers may fire a little early, and whoever looks at the clock must find the time past


class Latest(Generic[T]):
    """One value that changes, with any number of followers."""

    __slots__ = ("_value", "_wakers")

    def __init__(self, value: T) -> None:
        """Start with ``value``."""
        self._value = value
        self._wakers: set[asyncio.Event] = set()

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    def set(self, value: T) -> None:
        """Replace the value and wake the followers; an equal value wakes nobody."""
        if value is self._value or value == self._value:
            return
        self._value = value
        for waker in self._wakers:
            waker.set()

    async def wait(self, condition: Callable[[T], bool]) -> T:
        """Return the newest value as soon as ``condition`` holds for it."""
        async with aclosing(follow(self)) as values:
            async for _ in values:
                if condition(self._value):
                    return self._value
        raise AssertionError  # pragma: no cover - follow never ends by itself


async def follow(
    *latests: Latest[Any], until: Callable[[], float | None] = lambda: None
) -> AsyncGenerator[tuple[Any, ...], None]:
    """Yield the newest values at once, then again whenever one of them has changed.

    ``until`` is asked before each wait: the time of the event loop (``loop.time()``) at which to yield again though
    nothing changed, or None to wait for a change. Whoever leaves the loop early closes it (``contextlib.aclosing``).
    """
    waker = asyncio.Event()
    for latest in latests:
        latest._wakers.add(waker)  # noqa: SLF001 - one module, one primitive
    try:
        while True:
            waker.clear()
            yield tuple(latest.value for latest in latests)
            await _sleep(waker, until())
    finally:
        for latest in latests:
            latest._wakers.discard(waker)  # noqa: SLF001 - one module, one primitive


async def _sleep(waker: asyncio.Event, until: float | None) -> None:
    """Wait for the waker, at most until that time of the loop has passed."""
    try:
        async with asyncio.timeout_at(None if until is None else until + _GRAIN):
            await waker.wait()
    except TimeoutError:
        return
