"""What the machine looks like from outside a cluster, to compare before and after."""

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from hack.cluster import cgroups
from hack.cluster.folders import state_root

FOLDERS = (
    "/",
    "/etc",
    "/opt",
    "/run",
    "/var",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/usr/libexec",
    "/usr/local",
    "/mnt",
    "/srv",
)
FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd", "/etc/fstab")
SYSCTLS = (
    "vm",
    "kernel/keys",
    "kernel/panic*",
    "kernel/hostname",
    "kernel/pid_max",
    "fs",
    "net/ipv4",
    "net/ipv4/conf/*",
)
BUSY = re.compile(r"fs/(dentry|inode|file-nr|aio-nr|.*inotify)|vm/(stat_refresh|drop_caches|compact)|nr_|random")
KINDS = ("mnt", "net", "pid", "uts")
LOOKS, PAUSE = 25, 0.2


@dataclass(frozen=True)
class Machine:
    """Everything that a cluster must not change; each part is a set of lines, without other clusters' things."""

    processes: frozenset[str]
    mounts: frozenset[str]
    links: frozenset[str]
    groups: frozenset[str]
    sysctls: frozenset[str]
    devices: frozenset[str]
    rules: frozenset[str]
    files: frozenset[str]

    @classmethod
    def now(cls, cluster: str) -> "Machine":
        """Look at the machine, with the eyes of somebody who cares for this cluster."""
        return cls(
            frozenset(_processes(cluster)),
            frozenset(Path("/proc/self/mounts").read_text().splitlines()),
            frozenset(line.split(":")[1].strip() for line in _lines("ip", "-o", "link")),
            frozenset(_groups(cluster)),
            frozenset(_sysctls()),
            frozenset(_devices()),
            # Rules only: a table without any appears when its module is loaded, by whomever.
            frozenset(line for line in _lines("iptables-save") if line.startswith("-")),
            frozenset([*_names(), *(f"{name} {_text(Path(name))}" for name in FILES)]),
        )

    @classmethod
    def at_rest(cls, cluster: str) -> "Machine":
        """Look until two looks are the same: what just goes away must not count as having been there."""
        last = cls.now(cluster)
        for _ in range(LOOKS):
            time.sleep(PAUSE)
            if (now := cls.now(cluster)) == last:
                break
            last = now
        return last

    def differences(self, before: "Machine") -> list[str]:
        """Return what came and what went since then."""
        found = []
        for part in fields(self):
            old, new = getattr(before, part.name), getattr(self, part.name)
            found += [f"{part.name}: + {line}" for line in sorted(new - old)]
            found += [f"{part.name}: - {line}" for line in sorted(old - new)]
        return found


@dataclass(frozen=True)
class Spaces:
    """The namespaces of a cluster, remembered while it runs, to find who is in them when it should be gone."""

    ours: frozenset[str]

    @classmethod
    @contextmanager
    def of(cls, init: int) -> Iterator["Spaces"]:
        """Hold the namespaces of process 1 of a box and of everything in its process namespace.

        Held open, since the kernel gives the number of a namespace that is gone to the next one that anybody makes.
        """
        space = _space(init, "pid")
        assert space, f"process {init} has ended"
        members = [pid for pid in _pids() if _space(pid, "pid") == space]
        with ExitStack() as held:
            descriptors = []
            for path in (f"/proc/{pid}/ns/{kind}" for pid in members for kind in KINDS):
                with suppress(OSError):  # it has just ended
                    descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                    held.callback(os.close, descriptors[-1])
            outside = {_space(os.getpid(), kind) for kind in KINDS}
            yield cls(frozenset(str(Path(f"/proc/self/fd/{number}").readlink()) for number in descriptors) - outside)

    def processes(self) -> list[int]:
        """Return the processes that are in one of the namespaces."""
        return [pid for pid in _pids() if any(_space(pid, kind) in self.ours for kind in KINDS)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _space(pid: int, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""  # it has just ended


def _processes(cluster: str) -> Iterable[str]:
    """Return the processes that belong to the cluster by their group, or that name its state folder or keeper."""
    signs = (f"/{cgroups.group(cluster)}/", f"{state_root() / cluster}/", f"hack.cluster.keeper {cluster} ")
    for pid in _pids():
        groups, line = (_text(Path(f"/proc/{pid}/{name}")).replace("\0", " ") for name in ("cgroup", "cmdline"))
        # One without a command line has ended; whoever started it has not asked yet how.
        if line and any(sign in groups + line for sign in signs):
            yield f"{pid} {(groups + line)[-200:]}"


def _groups(cluster: str) -> Iterable[str]:
    for hierarchy in cgroups.mounted():
        for path in _entries(hierarchy):
            if path.is_dir() and (path.name == cgroups.group(cluster) or not path.name.startswith("kcbox-")):
                yield str(path)


def _sysctls() -> Iterable[str]:
    for pattern in SYSCTLS:
        for path in Path("/proc/sys").glob(pattern):
            for file in _entries(path) if path.is_dir() else [path]:
                name = str(file.relative_to("/proc/sys"))
                if file.is_file() and not BUSY.search(name):
                    yield f"{name} {_text(file)}"


def _devices() -> Iterable[str]:
    for folder, _, names in os.walk("/dev"):
        if folder.startswith(("/dev/shm", "/dev/pts", "/dev/mqueue")):
            continue
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(f"{folder}/{name}")
                yield f"{folder}/{name} {found.st_mode:o} {found.st_rdev}"


def _names() -> Iterable[str]:
    own = state_root()
    for folder in FOLDERS:
        for path in _entries(Path(folder)):
            if path != own:  # other clusters come and go in it
                yield str(path)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []  # an interface of others, for example, that went while this was looking


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
