"""What each command does; returns its exit code."""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from hack.cluster import box as boxes
from hack.cluster import builder, launch, machine
from hack.cluster.box import Box
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.folders import State
from hack.cluster.plan import BOX, identity
from hack.cluster.progress import Progress
from hack.cluster.settings import PER_NODE
from hack.cluster.topology import nodes

READY_WITHIN = 60.0


def build(_asked: argparse.Namespace) -> int:
    """Build everything and print where it lies."""
    for name, folder in builder.build(_progress()).items():
        print(f"{name}\t{folder}")
    return 0


def up(asked: argparse.Namespace) -> int:
    """Start the cluster."""
    # A terminal that goes away or a polite kill ends a half-started cluster like Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    options = launch.Options(asked.nodes, asked.gates, tuple(asked.feature_gate), tuple(asked.set), asked.memory)
    launch.up(State.of(asked.name), options, _progress())
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def down(asked: argparse.Namespace) -> int:
    """End the cluster, or what is left of one."""
    machine.require_root()
    state = State.of(asked.name)
    box = Box.find(state)
    if box is None:
        boxes.clean(state)
        print(f"cluster {state.name} is not up")
    else:
        box.end()
        print(f"cluster {state.name} has ended")
    return 0


def status(asked: argparse.Namespace) -> int:
    """Show what runs."""
    machine.require_root()
    box = Box.find(State.of(asked.name))
    if box is None:
        print(json.dumps({"name": asked.name, "up": False}) if asked.json else f"cluster {asked.name} is not up")
        return 1
    rows, ready = box.rows(), launch.ready_nodes(box)  # none when the API server does not answer: its row says so
    wanted = [node.name for node in nodes(box.plan.nodes)]
    fine = all(row["state"] == "ready" for row in rows) and ready.issuperset(wanted)
    if asked.json:
        print(json.dumps(_report(box, rows, {name: name in ready for name in wanted}, fine=fine), indent=1))
    else:
        print(_table(rows, {name: name in ready for name in wanted}))
        print(f"kubeconfig {box.state.kubeconfig}\nlogs       {box.state.logs}")
    return 0 if fine else 1


def _report(box: Box, rows: list[dict[str, Any]], ready: dict[str, bool], *, fine: bool) -> dict[str, Any]:
    state = box.state
    places = {"kubeconfig": str(state.kubeconfig), "state": str(state.root)}
    pids = {"init": box.init.pid, "keeper": box.keeper.pid if box.keeper.alive else None}
    return {"name": state.name, "up": True, "ready": fine, "nodes": ready, "components": rows, **places, **pids}


def _table(rows: Sequence[dict[str, Any]], ready: dict[str, bool]) -> str:
    head = ("COMPONENT", "NODE", "STATE", "PID", "RESTARTS")
    lines = [
        (
            row["component"],
            f"node{row['node']}" if row["node"] else "-",
            row["state"],
            row["pid"] or "-",
            row["restarts"],
        )
        for row in rows
    ]
    lines += [("node", name, "Ready" if on else "NotReady", "-", "-") for name, on in ready.items()]
    return "\n".join("{:<24} {:<6} {:<9} {:>6} {:>8}".format(*line) for line in (head, *lines))


def change(asked: argparse.Namespace) -> int:
    """Stop, start or restart a component; what was started is waited for."""
    box = _box(asked)
    names = box.identities(asked.component, asked.node)
    box.ask(asked.word, names, signal.SIGKILL if asked.kill else signal.SIGTERM)
    if asked.word != "stop":
        _wait_ready(box, names)
    return 0


def _wait_ready(box: Box, names: Sequence[str]) -> None:
    end = time.monotonic() + READY_WITHIN
    while True:
        behind = [
            row for row in box.rows() if identity(row["component"], row["node"]) in names and row["state"] != "ready"
        ]
        failed = [row for row in behind if row["state"] == "failed"]
        if not behind:
            return
        if failed or time.monotonic() > end:
            raise ClusterError("\n".join(launch.why(row) for row in failed or behind))
        time.sleep(0.1)


def load(asked: argparse.Namespace) -> int:
    """Import an image on every node."""
    box = _box(asked)
    archive = Path(asked.archive)
    if not archive.is_file():
        msg = f"no file {archive}"
        raise UsageError(msg)
    for node in nodes(box.plan.nodes):
        print(f"{node.name}: {boxes.load(box, archive, node.index)}")
    return 0


def inside(asked: argparse.Namespace) -> int:
    """Become a command in a node."""
    box = _box(asked)
    return _become(box.in_node(asked.node, _command(asked.command)), box)


def beside(asked: argparse.Namespace) -> int:
    """Become a command in the cluster's network."""
    box = _box(asked)
    return _become(box.in_network(_command(asked.command)), box)


def _command(words: Sequence[str]) -> list[str]:
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        msg = "name the command to run, for example: -- kubectl get nodes"
        raise UsageError(msg)
    return command


def _become(command: list[str], box: Box) -> NoReturn:
    sys.stdout.flush()
    os.execvpe(command[0], command, box.environment())  # noqa: S606  no shell is wanted


def kubeconfig(asked: argparse.Namespace) -> int:
    """Print where the kubeconfig is."""
    print(_box(asked).state.kubeconfig)
    return 0


def logs(asked: argparse.Namespace) -> int:
    """Print a log; it is there as long as the cluster, and after a failed start."""
    node = (asked.node or 1) if asked.component in PER_NODE else BOX
    log = State.of(asked.name).log(identity(asked.component, node))
    if not log.is_file():
        msg = f"no log {log}"
        raise ClusterError(msg)
    if asked.follow:
        sys.stdout.flush()
        os.execvp("tail", ["tail", "-n", "+1", "-F", str(log)])  # noqa: S606  no shell is wanted
    with log.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    return 0


def _box(asked: argparse.Namespace) -> Box:
    machine.require_root()
    return Box.get(State.of(asked.name))


def _progress() -> Progress:
    return Progress(sys.stderr)
