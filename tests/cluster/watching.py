"""Every change of ResourceSlices, or of other objects, while a test does something, with the time of it."""

import json
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from hack.tour.clients import Failed, Object
from tests.cluster.real import PATIENCE, RealCluster

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
FAULTS = "/apis/dra.example.com/v1alpha1/devicefaults"
STREAM = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
READ = "k8s.io/initial-events-end"
CHANGES = {"ADDED", "MODIFIED", "DELETED"}

Pool = tuple[str, str]


def pool_of(node: int, driver: str) -> Pool:
    """Return the pool of a driver on a node."""
    return driver, f"node{node}-{driver[:3]}"


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
    """The objects as they were at first, and all changes since.

    A watch is a moment behind what kubectl reads. Who asserts what did not happen calls `catch_up` first; the end of
    the context does so, too.
    """

    cluster: RealCluster
    path: str
    first: list[Object] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    synced: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def read(self, lines: IO[str]) -> None:
        """Take events until the stream ends; a line may be cut off there."""
        for line in lines:
            if line.endswith("\n"):
                self._take(json.loads(line))
        self.ended.set()

    def _take(self, event: dict[str, Any]) -> None:
        what, entry = event["type"], event["object"]
        if what == "BOOKMARK" and READ in entry["metadata"].get("annotations", {}):
            self.synced.set()
        elif what in CHANGES and self.synced.is_set():
            self.changes.append(Change(time.monotonic(), what, entry))
        elif what in CHANGES:
            self.first.append(entry)

    def catch_up(self) -> None:
        """Wait until everything that is stored now was told. Raises Failed when the watch has ended before that."""
        self.cluster.wait_for(f"the watch of {self.path} tells what is stored", self._is_current)

    def _is_current(self) -> bool:
        listed = json.loads(self.cluster.clients.run("get", "--raw", self.path))
        stored, told = _versions(listed["items"]), _versions(self.objects())
        late = {uid for uid, version in stored.items() if told.get(uid, 0) < version}
        gone = {uid for uid in told.keys() - stored.keys() if told[uid] <= int(listed["metadata"]["resourceVersion"])}
        if self.ended.is_set():
            raise Failed(f"the watch of {self.path} ended by itself; what came later was not seen")
        return not late and not gone

    def objects(self) -> list[Object]:
        """Return the objects as the watch has told them so far."""
        now = {entry["metadata"]["uid"]: entry for entry in self.first}
        for change in list(self.changes):
            now[change.object["metadata"]["uid"]] = change.object
            if change.what == "DELETED":
                del now[change.object["metadata"]["uid"]]
        return list(now.values())

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

    def wait_wiped(self, *pools: Pool) -> None:
        """Wait until slices of each pool were deleted, as a kubelet does with all of its node when it starts."""

        def wiped() -> bool:
            left = [pool for pool in pools if all(change.what != "DELETED" for change in self.of(pool))]
            if left:
                raise Failed(f"not deleted: {left}")
            return True

        self.cluster.wait_for("the kubelet deletes the node's slices", wiped)

    def wait_complete(self, *pools: Pool) -> None:
        """Wait until each pool can be allocated from."""

        def back() -> bool:
            missing = [pool for pool in pools if not complete(list(self.states(pool))[-1][1])]
            if missing:
                raise Failed(f"not complete: {missing}")
            return True

        self.cluster.wait_for("complete pools", back)

    @staticmethod
    def _is_of(entry: Object, pool: Pool) -> bool:
        return (entry["spec"]["driver"], entry["spec"]["pool"]["name"]) == pool


def _versions(objects: Iterable[Object]) -> dict[str, int]:
    return {entry["metadata"]["uid"]: int(entry["metadata"]["resourceVersion"]) for entry in objects}


@contextmanager
def watching(cluster: RealCluster, path: str = SLICES) -> Iterator[Watching]:
    """Watch all objects of a kind, slices if none is named, as long as the context lasts."""
    clients = cluster.clients
    command = [*clients.kubectl, "get", "--raw", f"{path}?{STREAM}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(clients.environment)) as process:
        assert process.stdout is not None
        seen = Watching(cluster, path)
        reader = threading.Thread(target=seen.read, args=[process.stdout])
        reader.start()
        try:
            assert seen.synced.wait(PATIENCE), f"the watch of {path} did not begin"
            yield seen
            seen.catch_up()
        finally:
            process.terminate()
            reader.join()


def restart_kubelet(cluster: RealCluster, node: int, *drivers: str) -> None:
    """Restart the kubelet of a node and wait until the slices of these drivers were deleted and are back."""
    pools = [pool_of(node, driver) for driver in drivers]
    with watching(cluster) as seen:
        cluster.launcher("restart", "kubelet", "--node", str(node))
        seen.wait_wiped(*pools)
        seen.wait_complete(*pools)


def complete(slices: list[Object]) -> bool:
    """Tell whether a pool can be allocated from: all slices of its newest generation are there."""
    pools = [entry["spec"]["pool"] for entry in slices]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [pool for pool in pools if pool["generation"] == newest]
    return bool(current) and len(current) == current[0]["resourceSliceCount"]
