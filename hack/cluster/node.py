"""A node's own world: mounts, network and name, so that every path and port in it is the standard one.

Runs as a child of the box's first process, sets everything up and then only holds the namespaces for those who join.
"""

import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from hack.cluster import kernel, network
from hack.cluster.folders import State
from hack.cluster.topology import API_ADDRESS, Node

CGROUPS = "/sys/fs/cgroup"
OVERLAID = ("etc", "var", "opt")
KEPT_ON_DISK = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "pods": "/var/log/pods",
    "cdi": "/etc/cdi",
}
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "kmsg": (1, 11),
    "net/tun": (10, 200),
    "fuse": (10, 229),
}
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""The kubelet insists on these values and would set them for the whole machine."""


def enter(node: Node, nodes: Sequence[Node], state: State, kept: Sequence[Path]) -> None:
    """Turn this process into the node; `kept` are folders that stay visible at their own path."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS)
    kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    folder = state.node(node.index)
    held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in (state.root, *kept)]
    _mount_sys(folder / "cg")
    _mount_dev(folder / "dev")
    _mount_system_folders(folder / "ov")
    for path, descriptor in held:
        path.mkdir(parents=True, exist_ok=True)
        kernel.bind(f"/proc/self/fd/{descriptor}", path)
        os.close(descriptor)
    _mount_disk(folder)
    _mount_sysctls(folder / "sysctl")
    # A peer group of its own, so that mounts pass between the node and its containers (mountPropagation).
    kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_SHARED)
    _connect(node, nodes)
    _introduce(node)


def hold() -> None:
    """Keep the namespaces until the box ends."""
    while True:
        signal.pause()


def _mount_sys(carried: Path) -> None:
    """Show this network namespace's interfaces in /sys; the mounts of the control groups move over."""
    carried.mkdir(parents=True)
    kernel.bind(CGROUPS, carried, recursive=True)
    kernel.mount("sysfs", "/sys", "sysfs")
    kernel.mount(str(carried), CGROUPS, flags=kernel.MS_MOVE)


def _mount_dev(dev: Path) -> None:
    """Mount a /dev of its own: a container or a mistake of the kubelet then changes nobody else's devices."""
    dev.mkdir()
    kernel.mount("tmpfs", dev, "tmpfs", options="mode=755,size=64m")
    for name in ("net", "pts", "shm", "mqueue"):
        (dev / name).mkdir()
    for name, (major, minor) in DEVICES.items():
        os.mknod(dev / name, 0o020666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name, to in DEVICE_LINKS.items():
        (dev / name).symlink_to(to)
    kernel.mount("devpts", dev / "pts", "devpts", options="newinstance,ptmxmode=0666,mode=620,gid=5")
    kernel.mount("tmpfs", dev / "shm", "tmpfs", options="mode=1777")
    kernel.mount("mqueue", dev / "mqueue", "mqueue")
    kernel.bind(dev, "/dev", recursive=True)


def _mount_system_folders(scratch: Path) -> None:
    """Make system folders writable for this node only; the layers lie in memory, as they hold a few small files."""
    scratch.mkdir()
    kernel.mount("tmpfs", scratch, "tmpfs", options="mode=700")
    # By descriptor: its path may lie below one of the folders, which hide it one after the other.
    held = os.open(scratch, os.O_PATH)
    layers = Path(f"/proc/self/fd/{held}")
    for name in OVERLAID:
        upper, work = layers / f"{name}-upper", layers / f"{name}-work"
        upper.mkdir(mode=0o755)
        work.mkdir()
        kernel.mount("overlay", f"/{name}", "overlay", options=f"lowerdir=/{name},upperdir={upper},workdir={work}")
    os.close(held)
    kernel.mount("tmpfs", "/run", "tmpfs", options="mode=755")
    _stand_in_for_var_run()


def _stand_in_for_var_run() -> None:
    run = Path("/var/run")
    if not run.is_symlink():
        run.mkdir(exist_ok=True)
        kernel.bind("/run", run)


def _mount_disk(folder: Path) -> None:
    """Bind what may not lie on an overlay (snapshots, volumes) or may grow."""
    for name, place in KEPT_ON_DISK.items():
        (folder / name).mkdir()
        Path(place).mkdir(parents=True, exist_ok=True)
        kernel.bind(folder / name, place)


def _mount_sysctls(folder: Path) -> None:
    folder.mkdir()
    for name, value in SYSCTLS.items():
        if (real := Path("/proc/sys") / name).exists():
            shown = folder / name.replace("/", ".")
            shown.write_text(f"{value}\n")
            kernel.bind(shown, real)


def _connect(node: Node, nodes: Sequence[Node]) -> None:
    network.apply(network.node_batch(node, nodes), network.service_rules())
    network.forward()


def _introduce(node: Node) -> None:
    """Give the machine its name; names of other machines do not resolve, as nothing but the cluster can be reached."""
    socket.sethostname(node.name)
    hosts = f"127.0.0.1 localhost\n{node.address} {node.name}\n{API_ADDRESS} box\n"
    for name, content in {"hosts": hosts, "resolv.conf": "", "hostname": f"{node.name}\n"}.items():
        file = Path("/etc") / name
        file.unlink(missing_ok=True)
        file.write_text(content)
