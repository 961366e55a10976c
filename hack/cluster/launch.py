"""Bringing a cluster up: from an empty folder to nodes that are Ready and a namespace in which pods can be made."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from hack.cluster import box as boxes
from hack.cluster import certificates, components, gates, machine, manifests, packages, settings
from hack.cluster.box import Box
from hack.cluster.builder import build
from hack.cluster.components import Layout
from hack.cluster.errors import ClusterError
from hack.cluster.folders import CHECKOUT, State
from hack.cluster.ownership import own
from hack.cluster.progress import Progress
from hack.cluster.topology import nodes

START_WITHIN = 120.0
LOG_LINES = 15
OPTIONS = "options.json"


@dataclass(frozen=True)
class Options:
    """What the user asks a cluster to be; memory in bytes."""

    nodes: int = 1
    gates: str = gates.STOCK
    feature_gates: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    memory: int = 8 * 2**30

    def dump(self) -> str:
        """Return the options as text that is equal for equal options."""
        return json.dumps(asdict(self), sort_keys=True)


def up(state: State, options: Options, progress: Progress) -> None:
    """Start a cluster, or find it running with the same options."""
    parsed = settings.parse(options.settings)
    machine.require_root()
    if _already_up(state, options, progress):
        return
    packages.require(packages.RUN, progress.say)
    machine.check(state)
    binaries = build(progress)
    choice = _choice(binaries, options)
    for note in choice.notes:
        progress.say(f"feature gate {note}")
    layout = Layout(state, binaries, choice, parsed, options.nodes)
    started = time.monotonic()
    progress.say(
        f"starting cluster {state.name} ({options.nodes} node(s), gates {options.gates}) in {state.root}: about 10 s"
    )
    with _keeping(state) as keeper:
        _prepare(layout, options)
        keeper.say(f"go {options.nodes} {options.memory}")
        keeper.follow(Start(state, layout, progress, started))
        keeper.say("ready")
    progress.say(f"cluster {state.name} is up after {time.monotonic() - started:.1f} s; look around with hack/kubectl")


def _already_up(state: State, options: Options, progress: Progress) -> bool:
    if Box.find(state) is None:
        return False
    if boxes.text(state, state.root / OPTIONS) != options.dump():
        end = f"python3 -m hack.cluster down --name {state.name}"
        msg = f"cluster {state.name} is up with other options; end it first: {end}"
        raise ClusterError(msg)
    _await_usable(state)
    progress.say(f"cluster {state.name} is up already")
    return True


def _await_usable(state: State) -> None:
    """Wait for a cluster that somebody else has started, perhaps a moment ago."""
    end = time.monotonic() + START_WITHIN
    while True:
        box = Box.get(state)
        rows = box.rows() if state.socket.exists() else []
        if rows and all_ready(rows) and usable(box, ready_nodes(box)):
            return
        lost = [row for row in rows if row["state"] in ("failed", "stopped")]
        if lost or time.monotonic() > end:
            said = [f"{row['component']} {row['state']}" for row in lost]
            msg = "; ".join([f"cluster {state.name} is up, but not ready", *said])
            raise ClusterError(msg)
        time.sleep(0.2)


def all_ready(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether every component is ready."""
    return all(row["state"] == "ready" for row in rows)


def usable(box: Box, ready: set[str]) -> bool:
    """Tell whether every node is among the Ready ones, and pods can be made."""
    return len(ready) == box.plan.nodes and _has_account(box)


def _choice(binaries: Mapping[str, Path], options: Options) -> gates.Choice:
    if options.gates == gates.STOCK and not options.feature_gates:
        return gates.Choice({}, ())
    told = subprocess.run([binaries["kube"] / "kube-catalog"], capture_output=True, text=True, check=True)
    return gates.choose(gates.Catalog.parse(told.stdout), options.gates, options.feature_gates)


def _prepare(layout: Layout, options: Options) -> None:
    """Write everything that the components read."""
    state, everyone = layout.state, nodes(layout.nodes)
    state.logs.mkdir(exist_ok=True)
    certificates.make(state.pki, everyone)
    manifests.write(state.kubeconfig, manifests.kubeconfig(state.pki, "admin"))
    users = ["kube-controller-manager", "kube-scheduler", *(f"kubelet-{node.index}" for node in everyone)]
    for user in users:
        manifests.write(state.config / f"{user}.kubeconfig", manifests.kubeconfig(state.pki, user))
    fields = {name: layout.settings[name].fields for name in settings.CONFIGURED}
    manifests.write(state.config / "kube-scheduler.json", manifests.scheduler(state, fields["kube-scheduler"]))
    runc = layout.binaries["runc"] / "runc"
    for node in everyone:
        kubelet = manifests.kubelet(state, node, layout.gates.gates, fields["kubelet"])
        manifests.write(state.config / f"kubelet-{node.index}.json", kubelet)
        cni = state.config / f"cni-{node.index}"
        manifests.write(cni / "10-box.conflist", manifests.network(node))
        containerd = manifests.containerd(layout.binaries["cni"], cni, runc)
        manifests.write(state.config / f"containerd-{node.index}.toml", containerd)
    manifests.write(state.plan, components.plan(layout).dump())
    manifests.write(state.root / OPTIONS, options.dump())


@dataclass(frozen=True)
class Keeper:
    """The process that starts, keeps and cleans up a cluster; it ends the cluster when its input ends too early."""

    process: "subprocess.Popen[str]"
    state: State

    def say(self, word: str) -> None:
        """Tell the keeper something; when it has ended, what it left in its log says why."""
        try:
            _input(self.process).write(word + "\n")
            _input(self.process).flush()
        except BrokenPipeError:
            raise ClusterError(self._last_words()) from None

    def follow(self, start: "Start") -> None:
        """Wait until the cluster is usable."""
        end = time.monotonic() + START_WITHIN
        while not start.done():
            if self.process.poll() is not None:
                raise ClusterError(self._last_words())
            if time.monotonic() > end:
                raise FailedStart(start.late())

    def _last_words(self) -> str:
        log = self.state.log("keeper")
        return f"the cluster ended while it started; {_tail(log)}"


class FailedStart(ClusterError):
    """The cluster did not come up; its logs are kept."""


@contextlib.contextmanager
def _keeping(state: State) -> Iterator[Keeper]:
    """Run a keeper for a new cluster; leaving early, in whatever way, ends the cluster and all of it."""
    with own(state) as right:
        boxes.remove_leftovers(state)
        keeper = Keeper(_start_keeper(state, right.fileno()), state)
    try:
        yield keeper
    except BaseException as error:
        if isinstance(error, FailedStart):
            keeper.say("keep")
        _input(keeper.process).close()
        keeper.process.wait()
        raise
    _input(keeper.process).close()


def _start_keeper(state: State, right: int) -> "subprocess.Popen[str]":
    """Start the keeper first of all, so that there is somebody to clean up whatever happens next."""
    state.root.mkdir(mode=0o700, parents=True)
    state.logs.mkdir()
    with state.log("keeper").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "hack.cluster.keeper", state.name, str(right)],
            pass_fds=[right],
            env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(CHECKOUT)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def _input(process: "subprocess.Popen[str]") -> IO[str]:
    if process.stdin is None:
        msg = "the keeper was started without an input"
        raise ClusterError(msg)
    return process.stdin


class Start:
    """A cluster that is starting: what is still missing, and what can be done meanwhile."""

    def __init__(self, state: State, layout: Layout, progress: Progress, started: float) -> None:
        """Begin to watch."""
        self._state = state
        self._layout = layout
        self._progress = progress
        self._started = started
        self._loaded: set[int] = set()
        self._ready: set[str] = set()
        self._rows: list[dict[str, Any]] = []

    def done(self) -> bool:
        """Look once, after a short wait; tell whether the cluster is usable."""
        time.sleep(0.1)
        box = Box.find(self._state)
        if box is None or not self._state.socket.exists():
            return False
        self._rows = box.rows()
        self._refuse_failed()
        self._load_images(box)
        self._tell_ready()
        if not all_ready(self._rows):
            return False
        ready = ready_nodes(box)
        self._tell_nodes(ready)
        return usable(box, ready)

    def late(self) -> str:
        """Return what to say when it took too long."""
        behind = [row for row in self._rows if row["state"] not in ("ready", "waiting")]
        if not behind:
            return f"the nodes did not become Ready within {START_WITHIN:.0f} s; {_tail(self._state.log('kubelet-1'))}"
        return "\n".join(why(row) for row in behind)

    def _refuse_failed(self) -> None:
        failed = [row for row in self._rows if row["state"] == "failed"]
        if failed:
            raise FailedStart("\n".join(why(row) for row in failed))

    def _load_images(self, box: Box) -> None:
        """Give the test images to every container runtime that is ready, while the others are still starting."""
        runtimes = {row["node"] for row in self._rows if row["component"] == "containerd" and row["state"] == "ready"}
        fresh = sorted(runtimes - self._loaded)
        folder = self._layout.binaries["images"]
        with ThreadPoolExecutor() as pool:
            wanted = [(folder / f"{name}.tar", node) for node in fresh for name in ("pause", "busybox")]
            for done in [pool.submit(boxes.load, box, archive, node) for archive, node in wanted]:
                done.result()
        self._loaded.update(fresh)

    def _tell_ready(self) -> None:
        for row in self._rows:
            name = f"{row['component']} on node{row['node']}" if row["node"] else str(row["component"])
            if row["state"] == "ready" and name not in self._ready:
                self._tell(name, "ready")

    def _tell_nodes(self, ready: set[str]) -> None:
        for name in sorted(ready - self._ready):
            self._tell(name, "Ready")

    def _tell(self, name: str, what: str) -> None:
        self._ready.add(name)
        self._progress.say(f"  {time.monotonic() - self._started:5.1f} s  {name} {what}")


def ready_nodes(box: Box) -> set[str]:
    """Return the names of the nodes whose kubelet says they are Ready; none while the API server does not answer."""
    status, body = _asked(box, "/api/v1/nodes")
    items: Sequence[Mapping[str, Any]] = body["items"] if status == HTTPStatus.OK else ()
    return {item["metadata"]["name"] for item in items if _is_ready(item)}


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _has_account(box: Box) -> bool:
    """Tell whether pods can be made: the controller manager makes the account they run as a while after its start."""
    return _asked(box, "/api/v1/namespaces/default/serviceaccounts/default")[0] == HTTPStatus.OK


def _asked(box: Box, path: str) -> tuple[int, Any]:
    try:
        return box.read(path)
    except ClusterError:
        return 0, None  # it does not answer at the moment, also a ready one on a machine that is busy


def why(row: Mapping[str, Any]) -> str:
    """Return what is known of a component that did not become ready."""
    what = f"ended with {row['exit']}" if row["state"] == "failed" else "did not become ready"
    return f"{row['component']} {what}; {_tail(Path(row['log']))}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
    return "\n".join([f"the end of {log}:", *(f"    {line}" for line in lines)])
