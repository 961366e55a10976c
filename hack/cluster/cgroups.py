"""The control groups of a cluster: one group in every hierarchy, with a group for the box and one for each node.

Seen to work with cgroup v1 and the hybrid layout. The pure v2 layout is written after its documentation and untested.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import UnableError

ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
NEEDED_V2 = ("cpu", "cpuset", "memory", "pids", "io")
PIDS = 8192


@dataclass(frozen=True)
class Limits:
    """What all processes of a cluster may use together; memory in bytes."""

    memory: int
    pids: int = PIDS


def hierarchies(mounts: str) -> tuple[Path, ...]:
    """Return the mount points of all hierarchies, from the text of /proc/self/mounts."""
    rows = [line.split() for line in mounts.splitlines()]
    found = [Path(row[1]) for row in rows if row[2] in ("cgroup", "cgroup2") and Path(row[1]).is_relative_to(ROOT)]
    return tuple(dict.fromkeys(found))


def mounted() -> tuple[Path, ...]:
    """Return the mount points of this machine's hierarchies."""
    return hierarchies(Path("/proc/self/mounts").read_text())


def unified(paths: tuple[Path, ...]) -> bool:
    """Tell whether there is the one v2 hierarchy only."""
    return paths == (ROOT,)


def check() -> None:
    """Refuse a machine whose controllers do not suffice for a kubelet."""
    paths = mounted()
    if unified(paths):
        there = set((ROOT / "cgroup.controllers").read_text().split())
        absent = [name for name in NEEDED_V2 if name not in there]
    else:
        there = {word for path in paths for word in path.name.split(",")}
        absent = [name for name in NEEDED if name not in there]
    if absent:
        msg = f"this kernel lacks the cgroup controllers {' '.join(absent)} (looked below {ROOT})"
        raise UnableError(msg)


def group(cluster: str) -> str:
    """Return the name of a cluster's group, below which all its processes are."""
    return f"kcbox-{cluster}"


def create(cluster: str, nodes: int, limits: Limits) -> None:
    """Make the groups of a cluster, in every hierarchy."""
    paths = mounted()
    for hierarchy in paths:
        top = hierarchy / group(cluster)
        for folder in (top, top / "box", *(top / f"n{index}" for index in range(1, nodes + 1))):
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(folder)
    if unified(paths):
        _delegate(ROOT)
        _delegate(ROOT / group(cluster))
    _limit(paths, group(cluster), limits)


def _inherit_cpuset(folder: Path) -> None:
    """Copy the processors and memory nodes of the parent: v1 starts a group with none, and nothing can run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file, above = folder / name, folder.parent / name
        if file.exists() and above.exists() and not file.read_text().strip():
            file.write_text(above.read_text().strip())


def _delegate(folder: Path) -> None:
    there = (folder / "cgroup.controllers").read_text().split()
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in there))


def _limit(paths: tuple[Path, ...], name: str, limits: Limits) -> None:
    values = {"memory.limit_in_bytes": limits.memory, "memory.max": limits.memory, "pids.max": limits.pids}
    for hierarchy in paths:
        for file, value in values.items():
            if (hierarchy / name / file).exists():
                (hierarchy / name / file).write_text(str(value))


def enter(cluster: str) -> None:
    """Move the calling process into the cluster's group for its own components."""
    for hierarchy in mounted():
        (hierarchy / group(cluster) / "box" / "cgroup.procs").write_text("0")


def remove(cluster: str) -> bool:
    """Remove the groups of a cluster whose processes have ended; tell whether none is left."""
    for folder in _depth_first(cluster):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not any(True for _ in _depth_first(cluster))


def _depth_first(cluster: str) -> Iterator[Path]:
    for hierarchy in mounted():
        for folder, _, _ in os.walk(hierarchy / group(cluster), topdown=False):
            yield Path(folder)
