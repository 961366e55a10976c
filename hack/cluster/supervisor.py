"""Starts, watches, stops and restarts the components; lives in process 1 of the box, which also reaps for everybody."""

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import probes
from hack.cluster.errors import ClusterError
from hack.cluster.plan import BOX, Component, Plan

WAITING, STARTING, READY, STOPPED, FAILED = "waiting", "starting", "ready", "stopped", "failed"
RESTART_AFTER = 1.0
STOP_WITHIN = 10.0


@dataclass
class Child:
    """A component and its process, if it has one."""

    component: Component
    state: str = WAITING
    pid: int = 0
    restarts: int = 0
    ever_ready: bool = False
    exit: int | None = None
    not_before: float = 0.0

    def row(self) -> dict[str, object]:
        """Return what the status of the cluster says of it."""
        part = self.component
        known = {"state": self.state, "pid": self.pid, "restarts": self.restarts, "exit": self.exit}
        return {"component": part.name, "node": part.node, "log": part.log, **known}


def _spawned(part: Component, argv: list[str]) -> int:
    """Start a program as the leader of a session, with its output in its log."""
    return os.posix_spawn(
        shutil.which(argv[0]) or argv[0],
        argv,
        part.env,  # and nothing of the user's, such as a proxy
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, part.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE],  # Python ignores it, and that would be inherited
    )


class Supervisor:
    """All components of a box; `holders` are the processes whose namespaces are the nodes."""

    def __init__(self, plan: Plan, holders: Mapping[int, int]) -> None:
        """Start nothing yet: `advance` does."""
        self._children = {part.identity: Child(part) for part in plan.components}
        self._holders = holders

    @property
    def restless(self) -> bool:
        """Tell whether something is on its way, so that `advance` has to be called again soon."""
        return any(child.state in (WAITING, STARTING) for child in self._children.values())

    def rows(self) -> list[dict[str, object]]:
        """Return the state of every component, asked now."""
        for child in self._children.values():
            if child.state == READY and not self._answers(child):
                child.state = STARTING
        return [child.row() for child in self._children.values()]

    def advance(self) -> None:
        """Start what may start, and see what has become ready."""
        for child in self._children.values():
            if child.state == WAITING and self._may_start(child):
                self._spawn(child)
            elif child.state == STARTING and self._answers(child):
                child.state, child.ever_ready = READY, True

    def reap(self) -> None:
        """Take note of every process that ended, ours and those that were left to process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def start(self, identities: Sequence[str]) -> None:
        """Start stopped or failed components."""
        for child in self._named(identities):
            if child.pid == 0:
                child.state, child.not_before, child.ever_ready = WAITING, 0.0, False

    def stop(self, identities: Sequence[str], number: int) -> None:
        """Stop components with a signal, then with force, and keep them stopped."""
        chosen = self._named(identities)
        for child in chosen:
            child.state = STOPPED
            self._signal(child, number)
        if not self._wait(chosen, STOP_WITHIN):
            for child in chosen:
                self._signal(child, signal.SIGKILL)
            self._wait(chosen, STOP_WITHIN)

    def restart(self, identities: Sequence[str], number: int) -> None:
        """Stop components and start them again."""
        self.stop(identities, number)
        for child in self._named(identities):
            child.restarts += 1
        self.start(identities)

    def _named(self, identities: Sequence[str]) -> list[Child]:
        unknown = [name for name in identities if name not in self._children]
        if unknown:
            msg = f"no component {', '.join(unknown)}; there are {', '.join(self._children)}"
            raise ClusterError(msg)
        return [self._children[name] for name in identities]

    def _may_start(self, child: Child) -> bool:
        ready = all(self._children[name].state == READY for name in child.component.after)
        # Only the first start waits for others: a component that is restarted has to cope, as everywhere.
        return time.monotonic() >= child.not_before and (ready or child.restarts > 0 or child.exit is not None)

    def _answers(self, child: Child) -> bool:
        part = child.component
        root = "/" if part.node == BOX else f"/proc/{self._holders[part.node]}/root"
        return probes.answers(part.probe, root)

    def _spawn(self, child: Child) -> None:
        part = child.component
        try:
            child.pid = _spawned(part, [*self._entering(part.node), *part.argv])
            child.state, child.exit = STARTING, None
        except OSError as error:  # its program is gone, for example; that must not end process 1
            Path(part.log).write_text(f"cannot be started: {error}\n")
            child.state = FAILED

    def _entering(self, node: int) -> list[str]:
        if node == BOX:
            return []
        spaces = f"/proc/{self._holders[node]}/ns"
        return ["nsenter", f"--mount={spaces}/mnt", f"--net={spaces}/net", f"--uts={spaces}/uts", "--"]

    def _ended(self, pid: int, code: int) -> None:
        child = next((child for child in self._children.values() if child.pid == pid), None)
        if child is None:
            return
        child.pid, child.exit = 0, code
        if child.state == STOPPED:
            return
        if not child.ever_ready:
            child.state = FAILED
            return
        child.state, child.not_before = WAITING, time.monotonic() + RESTART_AFTER
        child.restarts += 1

    @staticmethod
    def _signal(child: Child, number: int) -> None:
        # Not yet reaped, so the number cannot belong to another process.
        if child.pid:
            os.kill(child.pid, number)

    def _wait(self, children: Sequence[Child], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while any(child.pid for child in children) and time.monotonic() < end:
            self.reap()
            signal.sigtimedwait([signal.SIGCHLD], 0.02)
        return not any(child.pid for child in children)
