"""The real cluster of the tests: two nodes, the image loaded, the chart installed; brought up once and left up."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hack.cluster.folders import CHECKOUT, State, state_root
from hack.cluster.progress import Progress
from hack.image.build import Image, build
from hack.tour import chart, pods
from hack.tour.clients import Clients, Failed, Object, wait_for
from hack.tour.settings import Settings
from tests.cluster.door import door

NAME = os.environ.get("DRASIM_TEST_CLUSTER", "test")
NODES = 2
VALUES = "tests/cluster/values.yaml"
UNABLE = 3  # the launcher's exit code where the machine cannot run a cluster
BUSYBOX = "localhost/busybox:test"
PATIENCE = 120.0  # seconds for anything that is waited for: it takes a few, and a loaded machine is many times slower
T = TypeVar("T")


@dataclass(frozen=True)
class RealCluster:
    """A running cluster with the driver in it.

    Attributes:
        settings: what the tour needs to know of it: clients, image, names.
        kubeconfig: an administrator's, for this process: its server is a port of this machine.
        image: the driver's image; loaded unless this is a cluster of a test's own.
        name: what the launcher calls it.
        count: how many nodes it has.
    """

    settings: Settings
    kubeconfig: Path
    image: Image
    name: str = NAME
    count: int = NODES

    @property
    def clients(self) -> Clients:
        """The commands kubectl and Helm, with JSON access."""
        return self.settings.clients

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, in order."""
        return [f"node{number}" for number in range(1, self.count + 1)]

    def launcher(self, *words: str, check: bool = True) -> str:
        """Run a command of the launcher (`restart`, `stop`, `start` COMPONENT --node N) and return its output."""
        return launcher(words[0], "--name", self.name, *words[1:], check=check)

    def on_node(self, node: int, *words: str, check: bool = True) -> str:
        """Run a command on a node (1, 2), with the node's own files, network and processes."""
        return launcher("exec", "--name", self.name, "--node", str(node), "--", *words, check=check)

    def wait_for(self, what: str, condition: Callable[[], T | None], within: float = PATIENCE) -> T:
        """Return the first true result of `condition`; its Failed, or the last result, goes into the error."""
        return wait_for(what, condition, within)

    @contextmanager
    def namespace(self, purpose: str, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """A namespace of one test's own; the Pods in it are gone after that, the rest of it soon."""
        stem = re.sub(r"[^a-z0-9]+", "-", purpose.lower()).strip("-")[:40]
        name = f"{stem}-{os.getpid()}-{time.monotonic_ns() % 100000}"
        meta = {"name": name, "labels": dict(labels or {})}
        self.clients.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}), name)
        # A Deployment goes with what it made; otherwise that would make another Pod in the place of each.
        everything = ["deployments,pods", "--all", "--cascade=foreground", "--wait", "--timeout", "120s"]
        try:
            pods.wait_account(self.clients, name)
            yield name
        finally:
            try:
                self.clients.run("delete", *everything, "--namespace", name)
            finally:
                self.clients.run("delete", "namespace", name, "--wait=false")

    def example(self, name: str) -> str:
        """Return an example with an image that the nodes have."""
        return pods.manifest(name, BUSYBOX)

    def start(self, example: str, namespace: str) -> Object:
        """Apply an example and return its Pod, running."""
        self.clients.apply(self.example(example), namespace)
        return pods.running(self.clients, example, namespace)

    def driver_pod(self, node: str) -> Object:
        """Return the driver's Pod on a node, once there is one and no other."""

        def only() -> tuple[Object]:
            found = [pod for pod in chart.pods(self.settings) if pod["spec"].get("nodeName") == node]
            if len(found) != 1:
                raise Failed(f"{len(found)} Pods")
            return (found[0],)

        return self.wait_for(f"one Pod of the driver on {node}", only)[0]

    def well(self) -> None:
        """Wait until nodes, driver and controller are as they should be, after something that all of them notice."""
        self.clients.run("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=120s")
        for workload in (f"daemonset/{chart.DRIVER}", f"deployment/{chart.CONTROLLER}"):
            where = ["--namespace", self.settings.namespace, "--timeout=120s"]
            self.clients.run("rollout", "status", workload, *where)

    def slices(self, driver: str | None = None, node: str | None = None) -> list[Object]:
        """Return the ResourceSlices as they are now, of one driver or node if named."""
        wanted = {"driver": driver, "nodeName": node}
        found = self.clients.items("resourceslices")
        return [s for s in found if all(value in {None, s["spec"].get(key)} for key, value in wanted.items())]

    def install(self, values: Object | None = None) -> None:
        """Install the chart again with these values over the defaults of the tests; `{}` undoes what a test changed."""
        chart.install(self.settings, values)


def launcher(*words: str, check: bool = True) -> str:
    """Run a command of hack.cluster; skip the test where this machine cannot."""
    done = subprocess.run(
        [sys.executable, "-m", "hack.cluster", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode == UNABLE:
        pytest.skip(done.stderr.strip())
    if check and done.returncode:
        pytest.fail(f"hack.cluster {' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def up(name: str = NAME, nodes: int = NODES, *options: str) -> None:
    """Bring the cluster up if it is not; progress goes to the terminal, since the first time takes long."""
    command = [sys.executable, "-m", "hack.cluster"]
    status = subprocess.run(
        [*command, "status", "--name", name, "--json"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(status.stdout) if status.stdout.strip() else {}
    if report.get("ready") and len(report["nodes"]) == nodes:
        return
    if report.get("up"):
        launcher("down", "--name", name)
    done = subprocess.run([*command, "up", "--name", name, "--nodes", str(nodes), *options], cwd=CHECKOUT, check=False)
    if done.returncode == UNABLE:
        pytest.skip("this machine cannot run the cluster; the reason stands above")
    assert done.returncode == 0, "the cluster did not come up; the reason stands above"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Workers of one run, and several runs, prepare the cluster one after the other."""
    state_root().mkdir(parents=True, exist_ok=True)
    with (state_root() / f"{NAME}.tests.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepared() -> tuple[Settings, Image]:
    """Return the settings of a cluster that is up, has the image, and runs the chart."""
    with one_at_a_time():
        up()
        image = build(Progress(sys.stderr))
        settings = settings_of(NAME, image)
        loaded = State.of(NAME).root / "drasim-image"
        if not loaded.exists() or loaded.read_text() != image.key:
            launcher("load", "--name", NAME, str(image.archive))
            loaded.write_text(image.key)
        chart.install(settings)
        return settings, image


def settings_of(name: str, image: Image) -> Settings:
    """Return how to reach a cluster."""
    environment = {**os.environ, "DRASIM_CLUSTER": name}
    clients = Clients((str(CHECKOUT / "hack/kubectl"),), (str(CHECKOUT / "hack/helm"),), environment)
    return Settings(clients, image.reference, image.key, BUSYBOX, (VALUES,), pods="test-tour")


def quick(settings: Settings, name: str, kubeconfig: Path) -> Settings:
    """Return settings with kubectl itself, through the door: hack/kubectl starts a Python for each of thousands."""
    kubectl = launcher("run", "--name", name, "--", "sh", "-c", "command -v kubectl").strip()
    more = {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(kubeconfig.with_name("kube"))}
    environment = {**settings.clients.environment, **more}
    return replace(settings, clients=replace(settings.clients, kubectl=(kubectl,), environment=environment))


@contextmanager
def own_cluster(purpose: str, folder: Path, *options: str) -> Iterator[RealCluster]:
    """A cluster of a test's own, with options of the launcher: one node, neither chart nor image; gone in the end."""
    if os.geteuid() != 0:
        pytest.skip("the real cluster needs root")
    name, outside, image = f"{NAME}-{purpose}", folder / "kubeconfig", build(Progress(sys.stderr))
    try:
        up(name, 1, *options)
        with door(name, State.of(name).kubeconfig, outside):
            yield RealCluster(quick(settings_of(name, image), name, outside), outside, image, name, count=1)
    finally:
        launcher("down", "--name", name)


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A real Kubernetes with two nodes and the driver; it stays up for the next run (`make down` does not end it)."""
    if os.geteuid() != 0:
        pytest.skip("the real cluster needs root")
    settings, image = prepared()
    outside = tmp_path_factory.mktemp("kubeconfig") / "kubeconfig"
    with ExitStack() as stack:
        stack.enter_context(door(NAME, State.of(NAME).kubeconfig, outside))
        yield RealCluster(quick(settings, NAME, outside), outside, image)
