"""The one process of a cluster outside its namespaces: starts the box, waits for its end, and cleans up behind it.

The kernel ends processes, mounts and links of the box; control groups and the state folder are left for somebody to
remove, however the box ended. The launcher talks to it over its standard input: `go` starts the box, `ready` lets go of
the launcher, `keep` ends a start that failed and keeps the logs. An end of input before `ready` means that the launcher
died or was interrupted, and ends the box.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import time
from pathlib import Path

from hack.cluster import cgroups, kernel
from hack.cluster.folders import State
from hack.cluster.processes import Process

CLEAN_WITHIN = 10.0


def main(name: str) -> None:
    """Keep the box of this cluster until it ends."""
    state = State.of(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keep_logs = False
    try:
        words = _line().split()
        if words[:1] == ["go"]:
            keep_logs = _keep(state, nodes=int(words[1]), memory=int(words[2]))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        clean(state, keep_logs=keep_logs)


def _line() -> str:
    # Unbuffered: what comes later is read with a selector.
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return ""
        line += byte
    return line.decode()


def _keep(state: State, *, nodes: int, memory: int) -> bool:
    """Run the box to its end; tell whether its logs are wanted."""
    cgroups.create(state.name, nodes, cgroups.Limits(memory))
    pid = _start(state)
    try:
        _write_record(state, pid)
        return _wait(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _start(state: State) -> int:
    """Start process 1 of the box in namespaces and groups of its own."""
    kernel.unshare(kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        return pid
    try:
        cgroups.enter(state.name)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS)
        kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc")
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.execv(sys.executable, [sys.executable, "-m", "hack.cluster.init", state.name])  # noqa: S606  no shell
    except BaseException as error:  # noqa: BLE001  this is a copy of the keeper, which goes on elsewhere
        print(f"the box could not be started: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def _write_record(state: State, pid: int) -> None:
    processes = {"init": Process.of(pid), "keeper": Process.of(os.getpid())}
    fresh = state.record.with_suffix(".new")
    fresh.write_text(json.dumps({name: [process.pid, process.started] for name, process in processes.items()}))
    fresh.rename(state.record)


def _wait(pid: int) -> bool:
    """Wait until the box has ended or shall end; tell whether to keep its logs."""
    box = os.pidfd_open(pid)
    ready = False
    with selectors.DefaultSelector() as selector:
        selector.register(box, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            events = {key.fd for key, _ in selector.select()}
            if box in events:
                return not ready
            said = _line().strip()
            if said != "ready":
                return said == "keep"
            ready = True
            selector.unregister(0)


def clean(state: State, *, keep_logs: bool = False) -> bool:
    """Remove what the kernel does not remove by itself; tell whether nothing is left."""
    end = time.monotonic() + CLEAN_WITHIN
    while not (gone := cgroups.remove(state.name)) and time.monotonic() < end:
        time.sleep(0.05)
    _remove_state(state, keep_logs=keep_logs)
    return gone


def _remove_state(state: State, *, keep_logs: bool) -> None:
    for path in _children(state.root):
        if keep_logs and path == state.logs:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        state.root.rmdir()
        if "DRASIM_STATE" not in os.environ:  # the default folder is ours, another one somebody has made
            state.root.parent.rmdir()


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


if __name__ == "__main__":
    os.chdir("/")  # holds no folder of anybody
    # The right to this cluster, held until this process ends; nobody else inherits it.
    os.set_inheritable(int(sys.argv[2]), False)  # noqa: FBT003  the name says it
    main(sys.argv[1])
