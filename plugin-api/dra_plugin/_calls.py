"""One running task per claim UID: a call waits for work, it does not own it.

The kubelet gives up after 45 seconds and asks again later; the work of the first call goes on meanwhile, and the second
call joins it. An Unprepare that meets a running Prepare begins when that one has ended, and the other way round.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from dra_plugin.errors import PluginError

__all__ = ["Calls", "Outcome", "outcome"]

T = TypeVar("T")
LOG = logging.getLogger(__name__)
STOPPING = "the driver is stopping"


class Outcome(msgspec.Struct, Generic[T], frozen=True):
    """How one claim went: a value, or the one line that the kubelet is told."""

    value: T | None = None
    error: str = ""


class Begun(msgspec.Struct, frozen=True, eq=False):
    """The last work that was begun for a UID."""

    operation: str
    task: asyncio.Task[Outcome[Any]]


class Calls:
    """The work in flight, in a task group of the server."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        """Run work in ``group``."""
        self._group = group
        self._last: dict[str, Begun] = {}
        self._tasks: set[asyncio.Task[Outcome[Any]]] = set()
        self._cancelled = False

    @property
    def in_flight(self) -> int:
        """How many prepares and unprepares of single claims run or wait for their turn."""
        return len(self._tasks)

    def begin(self, operation: str, uid: str, work: Callable[[], Awaitable[T]]) -> asyncio.Task[Outcome[T]]:
        """Return the task that does ``operation`` for the claim: the running one, or a new one.

        Its result is an Outcome whatever happens. Wait for it with ``outcome``, which leaves it running.
        """
        last = self._last.get(uid)
        if last is not None and last.operation == operation:
            return last.task
        task = self._group.create_task(_ordered(last, work), name=f"{operation} {uid}")
        if self._cancelled:  # a call that slipped in while the server closes
            task.cancel()
        mine = self._last[uid] = Begun(operation, task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(uid, mine))
        return task

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109 - the deadline is what is asked for
        """Wait until nothing runs, at most ``timeout`` seconds; False when something still does."""
        try:
            async with asyncio.timeout(timeout):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                    await asyncio.sleep(0)  # the tasks' own callbacks
        except TimeoutError:
            return False
        return True

    def cancel(self) -> None:
        """Cancel what still runs, and what is asked for from now on; whoever waits is told that the driver stops."""
        self._cancelled = True
        for task in self._tasks:
            task.cancel()

    def _ended(self, uid: str, mine: Begun) -> None:
        self._tasks.discard(mine.task)
        if self._last.get(uid) is mine:
            del self._last[uid]


async def outcome(task: asyncio.Task[Outcome[T]], until: float | None = None) -> Outcome[T]:
    """Return the task's outcome, or at the loop's time ``until`` an error that says that the work goes on.

    Cancelling this does not cancel the task.
    """
    loop = asyncio.get_running_loop()
    left = None if until is None else max(0.0, until - loop.time())
    await asyncio.wait([task], timeout=left)
    if not task.done():
        return Outcome(error="still being worked on when the call's time was over; the next call takes it up")
    return Outcome(error=STOPPING) if task.cancelled() else task.result()


async def _ordered(before: Begun | None, work: Callable[[], Awaitable[T]]) -> Outcome[T]:
    if before is not None:
        await asyncio.wait([before.task])
    try:
        return Outcome(value=await work())
    except PluginError as error:
        return Outcome(error=_one_line(str(error)) or type(error).__name__)
    except Exception as error:
        LOG.exception("bug in a plugin's prepare or unprepare")
        return Outcome(error=_one_line(f"internal error: {type(error).__name__}: {error}"))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]
