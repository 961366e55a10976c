"""Every change of ResourceSlices, or of other objects, while a test does something, with the time of it."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from hack.tour.clients import Object
from tests.cluster.real import RealCluster

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
STREAM = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
READ = "k8s.io/initial-events-end"

Pool = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """One event of the watch: when (monotonic seconds), what (ADDED, MODIFIED, DELETED), and the object."""

    at: float
    what: str
    object: Object

    @property
    def pool(self) -> Pool:
        """The driver and the pool of the slice."""
        return self.object["spec"]["driver"], self.object["spec"]["pool"]["name"]


@dataclass
class Watching:
    """The objects as they were at first, and all changes since."""

    first: list[Object] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    synced: threading.Event = field(default_factory=threading.Event)

    def read(self, lines: IO[str]) -> None:
        """Take events until the stream ends."""
        for line in lines:
            event: dict[str, Any] = json.loads(line)
            if event["type"] == "BOOKMARK":
                if READ in event["object"]["metadata"].get("annotations", {}):
                    self.synced.set()
            elif self.synced.is_set():
                self.changes.append(Change(time.monotonic(), event["type"], event["object"]))
            else:
                self.first.append(event["object"])

    def of(self, pool: Pool) -> list[Change]:
        """Return the changes of one pool."""
        return [change for change in list(self.changes) if change.pool == pool]

    def states(self, pool: Pool) -> Iterator[tuple[float, list[Object]]]:
        """Yield the slices of a pool at first and after every change, with the time of that."""
        now = {entry["metadata"]["name"]: entry for entry in self.first if self._is_of(entry, pool)}
        yield 0.0, list(now.values())
        for change in self.of(pool):
            name = change.object["metadata"]["name"]
            now.pop(name, None)
            if change.what != "DELETED":
                now[name] = change.object
            yield change.at, list(now.values())

    @staticmethod
    def _is_of(entry: Object, pool: Pool) -> bool:
        return (entry["spec"]["driver"], entry["spec"]["pool"]["name"]) == pool


@contextmanager
def watching(cluster: RealCluster, path: str = SLICES) -> Iterator[Watching]:
    """Watch all objects of a kind, slices if none is named, as long as the context lasts."""
    clients = cluster.clients
    command = [*clients.kubectl, "get", "--raw", f"{path}?{STREAM}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(clients.environment)) as process:
        assert process.stdout is not None
        seen = Watching()
        reader = threading.Thread(target=seen.read, args=[process.stdout])
        reader.start()
        try:
            assert seen.synced.wait(30), f"the watch of {path} did not begin"
            yield seen
        finally:
            process.terminate()
            reader.join()


def complete(slices: list[Object]) -> bool:
    """Tell whether a pool can be allocated from: all slices of its newest generation are there."""
    pools = [entry["spec"]["pool"] for entry in slices]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [pool for pool in pools if pool["generation"] == newest]
    return bool(current) and len(current) == current[0]["resourceSliceCount"]
