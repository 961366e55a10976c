"""A running cluster seen from outside: which processes it is, what it says, how to join it and how to end it."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hack.cluster import control, keeper
from hack.cluster.errors import ClusterError
from hack.cluster.folders import State
from hack.cluster.ownership import own
from hack.cluster.plan import BOX, Plan, identity
from hack.cluster.processes import Process
from hack.cluster.settings import COMPONENTS, PER_NODE

END_WITHIN = 30.0


@dataclass(frozen=True)
class Box:
    """The processes of a cluster that carry everything else."""

    state: State
    init: Process
    keeper: Process

    @classmethod
    def find(cls, state: State) -> Self | None:
        """Return the running cluster, or nothing."""
        try:
            read = json.loads(state.record.read_text())
        except FileNotFoundError:
            return None
        box = cls(state, Process(*read["init"]), Process(*read["keeper"]))
        return box if box.init.alive else None

    @classmethod
    def get(cls, state: State) -> Self:
        """Return the running cluster."""
        box = cls.find(state)
        if box is None:
            msg = f"cluster {state.name} is not up; start it with: python3 -m hack.cluster up --name {state.name}"
            raise ClusterError(msg)
        return box

    @property
    def plan(self) -> Plan:
        """Return what the box runs."""
        return Plan.load(text(self.state, self.state.plan))

    def rows(self) -> list[dict[str, Any]]:
        """Return the state of every component."""
        rows: list[dict[str, Any]] = control.request(self.state.socket, do="status")["components"]
        return rows

    def ask(self, what: str, names: Sequence[str], number: int = signal.SIGTERM) -> None:
        """Start, stop or restart components."""
        control.request(self.state.socket, do=what, components=list(names), signal=number)

    def read(self, path: str) -> tuple[int, Any]:
        """Read an object of the API server."""
        answer = control.request(self.state.socket, do="read", path=path)
        return answer["status"], answer["body"]

    def identities(self, name: str, node: int | None) -> list[str]:
        """Return the components that a name on the command line means: without a node, those of every node."""
        if name not in COMPONENTS:
            msg = f"no component {name}; there are {', '.join(COMPONENTS)}"
            raise ClusterError(msg)
        if name not in PER_NODE:
            return [identity(name, BOX)]
        chosen = range(1, self.plan.nodes + 1) if node is None else [self._checked(node)]
        return [identity(name, index) for index in chosen]

    def _checked(self, node: int) -> int:
        count = self.plan.nodes
        if not 1 <= node <= count:
            msg = f"no node {node}; this cluster has {count}"
            raise ClusterError(msg)
        return node

    def environment(self) -> dict[str, str]:
        """Return the environment for a command that talks to the cluster."""
        client = self.state.root / "client"
        own = {
            "PATH": self.plan.components[0].env["PATH"].split(":/usr/local/sbin:", 1)[0]
            + ":"
            + os.environ.get("PATH", ""),
            "KUBECONFIG": str(self.state.kubeconfig),
            # Caches of the clients end with the cluster.
            "KUBECACHEDIR": str(client / "kube"),
            "HELM_CACHE_HOME": str(client / "helm/cache"),
            "HELM_CONFIG_HOME": str(client / "helm/config"),
            "HELM_DATA_HOME": str(client / "helm/data"),
            "DRASIM_CLUSTER": self.state.name,
        }
        # A proxy of the user's cannot be reached from the cluster's network.
        return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")} | own

    def in_network(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs in the cluster's network, with the files of this machine."""
        return ["nsenter", f"--net=/proc/{self.init.pid}/ns/net", "--", *command]

    def in_node(self, node: int, command: Sequence[str]) -> list[str]:
        """Return a command that runs in everything a node has of its own; it ends with the cluster."""
        spaces = f"/proc/{self.init.pid}/root/proc/{self._holder(node)}/ns"
        own = [f"--{kind}={spaces}/{file}" for kind, file in (("mount", "mnt"), ("net", "net"), ("uts", "uts"))]
        return ["nsenter", *own, f"--pid={spaces}/pid", "--", *command]

    def _holder(self, node: int) -> int:
        answer = control.request(self.state.socket, do="holders")
        return int(answer["holders"][str(self._checked(node))])

    def end(self) -> None:
        """End the cluster and wait until nothing of it is left."""
        if self.keeper.alive:
            self.keeper.kill(signal.SIGTERM)
            if self.keeper.ended(END_WITHIN):
                return
        # The keeper was killed: do its work.
        self.init.kill()
        self.init.ended(END_WITHIN)
        clean(self.state)


def text(state: State, file: Path) -> str:
    """Return a file of a running cluster, which may be ending meanwhile."""
    try:
        return file.read_text()
    except FileNotFoundError:
        msg = f"cluster {state.name} is just being ended by another process"
        raise ClusterError(msg) from None


def clean(state: State) -> None:
    """Remove what a cluster that is not up any more has left."""
    with own(state):
        remove_leftovers(state)


def remove_leftovers(state: State) -> None:
    """Do the same, as the one who owns the cluster already."""
    if not keeper.clean(state):
        msg = f"control groups of cluster {state.name} could not be removed: a process that joined it still runs"
        raise ClusterError(msg)


def load(box: Box, archive: Path, node: int) -> str:
    """Import an image archive on a node and return what was said; the file is passed on, so any path will do."""
    with archive.open("rb") as file:
        done = subprocess.run(
            box.in_node(node, ["ctr", "-n", "k8s.io", "images", "import", "-"]),
            stdin=file,
            env=box.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        msg = f"node{node} did not take {archive}: {done.stderr.strip()}"
        raise ClusterError(msg)
    return done.stdout.strip()
