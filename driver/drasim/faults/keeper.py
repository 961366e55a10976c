"""FaultKeeper: the machine fails as the DeviceFaults of its node, and those of a file, say.

Two sources, each a whole state that the machine keeps by itself: as long as one was not read, or cannot be read any
more, what it said last holds. So a restart, a lost watch or a broken file changes nothing.

    DeviceFaults of the node (mirror) ─▶ outcome ─▶ the machine's source "api" ─▶ status of each object
    the file of simulation.faults     ─▶ outcome ─▶ the machine's source "file"
"""

import asyncio
import math
import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

from dra_plugin.cluster import Cluster, Selector
from dra_plugin.latest import Latest, follow
from dra_plugin.mirror import Mirror
from drasim.config import ConfigError
from drasim.faults.objects import DEVICE_FAULT, DeviceFault
from drasim.faults.status import StatusWriter
from drasim.faults.wanted import Outcome, Site, key_of, outcome_of
from drasim.hardware import HardwareError
from drasim.hardware.simulated import SimulatedMachine

__all__ = ["FaultKeeper"]

_POLL = 1.0  # seconds between two looks at the file
_AGAIN = 1.0  # seconds until a machine that could not be told is told again
_REMIND = 5.0  # seconds until it is told again in any case, which costs nothing: its file may have been lost


class FaultKeeper:
    """Keeps the faults of one node's machine.

    Attributes:
        problems: what keeps faults from being done or their status from being written, by what it is about; for people.
    """

    def __init__(self, machine: SimulatedMachine, site: Site, file: Path | None) -> None:
        """Tell ``machine``, which is that of ``site``; ``file`` is that of ``simulation.faults``, if there is one."""
        self.problems: Latest[Mapping[str, str]] = Latest({})
        self._machine, self._site, self._file = machine, site, file

    async def run(self, cluster: Cluster, newest: Latest[bool]) -> None:
        """Work until cancelled, while ``newest`` holds: two instances never tell the machine different things."""
        while True:
            await newest.wait(bool)
            async with asyncio.TaskGroup() as group:
                work = [group.create_task(self._keep_objects(cluster)), group.create_task(self._keep_file())]
                await newest.wait(lambda value: not value)
                for task in work:
                    task.cancel()

    async def _keep_objects(self, cluster: Cluster) -> None:
        mirror = Mirror(cluster, DEVICE_FAULT, Selector(fields={"spec.node": self._site.node}))
        writer = StatusWriter(cluster, mirror)
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run())
            group.create_task(writer.run())
            group.create_task(self._tell_of(mirror, writer))
            await self._follow_objects(mirror, writer)

    async def _follow_objects(self, mirror: Mirror[DeviceFault], writer: StatusWriter) -> None:
        """Tell the machine what the objects say whenever they, or the time, change it; then what is said of them.

        A status, ours above all, changes nothing: else a thousand new faults would be judged a thousand times each.
        """
        until: float | None = None
        judged: frozenset[object] = frozenset()
        async with aclosing(follow(mirror.objects, mirror.synced, until=lambda: until)) as changes:
            async for objects, synced in changes:
                asked = frozenset(map(_asked, objects.values()))
                if not synced or (asked == judged and until and asyncio.get_running_loop().time() < until):
                    continue
                judged, now = asked, time.time()
                outcome = outcome_of(objects.values(), self._site, now, known=writer.wanted.value)
                if await self._told("api", outcome):
                    writer.wanted.set(outcome.statuses)
                    until = _loop_time(min(outcome.look_again or math.inf, now + _REMIND), now)
                else:
                    until = _loop_time(now + _AGAIN, now)

    async def _tell_of(self, mirror: Mirror[DeviceFault], writer: StatusWriter) -> None:
        async with aclosing(follow(mirror.error, writer.problem)) as problems:
            async for reading, writing in problems:
                self._note("reading DeviceFaults", reading)
                self._note("writing DeviceFaults", writing)

    async def _keep_file(self) -> None:
        """Look at the file each second, and tell the machine what it says when it, or the time, changes it.

        Without a file nothing is wanted from it: an earlier process may have had one.
        """
        objects: tuple[DeviceFault, ...] | None = None if self._file else ()
        seen: tuple[int, ...] | None = None
        told = False
        while self._file or not told:
            if self._file and (stamp := _stamp(self._file)) != seen:
                objects, seen = self._read(self._file, objects), stamp
            if objects is not None:
                told = await self._done_by_file(objects)
            await asyncio.sleep(_POLL)

    def _read(self, file: Path, before: tuple[DeviceFault, ...] | None) -> tuple[DeviceFault, ...] | None:
        """Return what the file says, or what it said ``before`` when it cannot be used."""
        from drasim.faults.manifests import read_manifests  # most nodes have no such file

        try:
            found = read_manifests(file)
        except ConfigError as error:
            self._note("faults file", str(error))
            return before
        self._note("faults file", None)
        return found

    async def _done_by_file(self, objects: tuple[DeviceFault, ...]) -> bool:
        """Tell the machine what these say now; return whether it took it."""
        outcome = outcome_of(objects, self._site, time.time())
        refusals = [f"{key}: {status.reason}" for key, status in outcome.statuses.items() if status.phase == "Refused"]
        self._note("faults of the file", "; ".join(refusals) or None)
        return await self._told("file", outcome)

    async def _told(self, source: str, outcome: Outcome) -> bool:
        """Tell the machine; return whether it took it."""
        try:
            await self._machine.set_faults(source, outcome.faults)
        except HardwareError as error:
            self._note(f"telling the machine ({source})", str(error))
            return False
        self._note(f"telling the machine ({source})", None)
        return True

    def _note(self, about: str, problem: str | None) -> None:
        others = {name: text for name, text in self.problems.value.items() if name != about}
        self.problems.set(others if problem is None else {**others, about: problem})


def _asked(obj: DeviceFault) -> object:
    """Return a value that differs when something else is asked for by the object; its status is not."""
    meta = obj.metadata
    return key_of(obj), meta.generation, meta.deletion_timestamp


def _loop_time(at: float, now: float) -> float:
    """Return the time of the event loop at that Unix time."""
    return asyncio.get_running_loop().time() + max(0.0, at - now)


def _stamp(file: Path) -> tuple[int, ...]:
    """Return a value that differs when the file was written or replaced."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
