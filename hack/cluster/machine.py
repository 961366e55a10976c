"""Can this machine hold a cluster: every answer is one line, before anything is started."""

import os
import subprocess
from pathlib import Path

from hack.cluster import cgroups, control, disk
from hack.cluster.errors import UnableError
from hack.cluster.folders import State

STATE_SIZE = 2 * 2**30
UNFIT = ("overlay", "tmpfs", "ramfs", "nfs", "nfs4", "9p", "squashfs", "virtiofs")
"""File systems on which the snapshots of containerd or the volumes of a kubelet do not work, or end with the power."""

# Each step is named before it is tried, in namespaces that end with it.
TRIAL = """set -e
echo an overlay file system; mount -t tmpfs tmpfs /mnt; cd /mnt; mkdir lower upper work all
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work all
echo network bridges; ip link add kcbr type bridge
echo veth network links; ip link add kcv type veth peer name kcw; ip link set kcv master kcbr
echo the nat table of iptables; iptables -t nat -L >/dev/null
echo everything
"""
UNSHARE = ("unshare", "--mount", "--propagation", "private", "--net", "--uts", "--pid", "--fork", "--mount-proc")


def check(state: State) -> None:
    """Refuse a machine or a place that cannot hold this cluster."""
    require_root()
    cgroups.check()
    _check_place(state)
    _check_kernel()


def require_root() -> None:
    """Refuse a user who may not enter or make namespaces."""
    if os.geteuid() != 0:
        msg = "the cluster needs root: it makes namespaces, mounts and control groups of its own"
        raise UnableError(msg)


def _check_place(state: State) -> None:
    if len(str(state.socket).encode()) > control.LIMIT:
        msg = f"the path {state.socket} is longer than a socket's may be ({control.LIMIT} bytes); set DRASIM_STATE"
        raise UnableError(msg)
    need = disk.Need(state.root, STATE_SIZE)
    kind = file_system(need.existing, Path("/proc/self/mountinfo").read_text())
    if kind in UNFIT or kind.startswith("fuse"):
        msg = (
            f"{state.root} lies on {kind}, where containers do not work: set DRASIM_STATE to a folder on a disk (ext4)"
        )
        raise UnableError(msg)
    disk.check([need])


def file_system(path: Path, mountinfo: str) -> str:
    """Return the type of the file system that holds an existing path, from the text of /proc/self/mountinfo."""
    path = path.resolve()
    best, kind = -1, "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        # The last of several mounts at one place is the visible one.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    return kind


def _check_kernel() -> None:
    done = subprocess.run([*UNSHARE, "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    if done.returncode:
        steps = done.stdout.splitlines()
        what = steps[-1] if steps else "private namespaces"
        msg = f"this kernel, or the rights given here, lack {what}: {done.stderr.strip().splitlines()[-1:]}"
        raise UnableError(msg)
