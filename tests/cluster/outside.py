"""A driver that runs on a node of the real cluster, but outside of a Pod: with names, folders and a machine of its own.

It disturbs nobody, starts in half a second, and can be killed, given another boot id, or another machine.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from hack.cluster.folders import CHECKOUT
from hack.tour.clients import Failed, Object
from tests.cluster.objects import Space, device_class, plain
from tests.cluster.onnode import PLUGINS, REGISTRY, OnNode
from tests.cluster.real import RealCluster

GRACE = 40.0


@dataclass
class Outside:
    """`drasim node` on a node.

    Attributes:
        purpose: a word that tells it from others; part of its drivers' names.
        log: what it printed, of all its processes.
        settings: configuration keys beyond those that every such driver gets.
    """

    cluster: RealCluster
    node: int
    purpose: str
    log: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    @property
    def gpu(self) -> OnNode:
        """The GPU driver's things."""
        return OnNode(self.cluster, self.node, f"gpu.{self.purpose}.example.com")

    @property
    def nic(self) -> OnNode:
        """The NIC driver's things."""
        return OnNode(self.cluster, self.node, f"nic.{self.purpose}.example.com")

    @property
    def state(self) -> str:
        """The folder of its simulated machine, on the node."""
        return f"{PLUGINS}/{self.purpose}"

    @property
    def boot_id(self) -> str:
        """The file that names the boot, on the node."""
        return f"{self.state}/boot_id"

    def command(self, **more: str) -> list[str]:
        """Return the command that serves this node; keyword arguments are further configuration keys."""
        keys = {
            "nodeName": f"node{self.node}",
            "paths.state": self.state,
            "paths.bootID": self.boot_id,
            "gpu.driver": self.gpu.driver,
            "nic.driver": self.nic.driver,
            "simulation.profile": "small",
            "probes.address": "",
            "log.format": "json",
            **self.settings,
            **more,
        }
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "drasim", "node", *sets]

    def start(self) -> None:
        """Start the process and wait until it serves: slices may be there of one before it."""
        before = len(self.entries("ready"))
        self.launch()
        self.cluster.wait_for(f"slices of {self.purpose}", self.published)
        self.cluster.wait_for(f"both drivers of {self.purpose} are ready", lambda: self._is_ready(before))

    def boot(self, boot_id: str) -> None:
        """Give the node another boot id, as far as this driver knows."""
        self.gpu.run("sh", "-c", f"mkdir -p {self.state} && echo {boot_id} > {self.boot_id}")

    def launch(self) -> None:
        """Start the process."""
        script = f'mkdir -p {self.state}; echo $$ > {self.state}/pid; exec "$@"'
        place = ["--name", self.cluster.name, "--node", str(self.node)]
        words = ["exec", *place, "--", "sh", "-c", script, "sh", *self.command()]
        with self.log.open("a") as log:
            self._process = spawn(words, log)

    def _is_ready(self, before: int) -> bool:
        """Tell whether each driver has told so since there were so many lines that do: one may do it twice."""
        self.check()
        return {line["driver"] for line in self.entries("ready")[before:]} == {self.gpu.driver, self.nic.driver}

    @property
    def runs(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise Failed when the process has ended."""
        if not self.runs:
            raise Failed(f"the driver has ended:\n{self.log.read_text()}")

    def published(self) -> list[Object]:
        """Return the slices of both drivers once each has some. Raises Failed when the process has ended."""
        self.check()
        found = [self.slices(driver) for driver in (self.gpu.driver, self.nic.driver)]
        return [entry for slices in found for entry in slices] if all(found) else []

    def slices(self, driver: str) -> list[Object]:
        """Return the slices of a driver."""
        return self.cluster.slices(driver)

    def end(self, signal: str = "TERM") -> None:
        """End the process and wait for that."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            self._signal(signal)
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._signal("KILL")
            raise
        finally:
            process.kill()
            process.wait()

    def _signal(self, signal: str) -> None:
        """Send a signal to the process, which may have ended by itself."""
        self.gpu.run("sh", "-c", f"kill -{signal} $(cat {self.state}/pid) 2>/dev/null || true")

    def machine(self) -> Object:
        """Return what was changed in its simulated machine."""
        return plain(self.gpu.run("cat", f"{self.state}/machine.json"))

    def entries(self, event: str) -> list[Object]:
        """Return the lines of the log that say this."""
        return [line for line in self.lines() if line.get("event") == event]

    def lines(self) -> list[Object]:
        """Return the lines of the log; the last one may be half written, and does not count then."""
        whole, _, _ = (self.log.read_text() if self.log.exists() else "").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def clear(self) -> None:
        """Remove everything that it has on the node and in the API."""
        for place in (self.gpu, self.nic):
            selector = ["--field-selector", f"spec.driver={place.driver}"]
            self.cluster.clients.run("delete", "resourceslices", *selector)
            self.cluster.clients.run("delete", "deviceclass", place.driver, "--ignore-not-found")
            folders = [place.folder, *place.specs(), f"{REGISTRY}/{place.driver}-*"]
            place.run("sh", "-c", f"rm -rf {' '.join(folders)}")
        self.gpu.run("rm", "-rf", self.state)


@contextmanager
def outside(
    cluster: RealCluster,
    purpose: str,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    space: Space | None = None,
) -> Iterator[Outside]:
    """Run a driver on the last node with classes for its devices; everything is taken back in the end.

    The Pods in `space` go before the driver: without it they could not end.
    """
    driver = Outside(cluster, cluster.count, purpose, folder / f"{purpose}.log", settings or {})
    classes = [device_class(place.driver) for place in (driver.gpu, driver.nic)]
    listed = {"apiVersion": "v1", "kind": "List", "items": classes}
    with ExitStack() as ending:
        ending.callback(driver.clear)
        ending.callback(driver.end)
        if space:
            ending.callback(space.delete_pods)
        ending.callback(show, driver.log)
        cluster.clients.apply(json.dumps(listed), "default")
        driver.boot("first-boot")
        driver.start()
        yield driver


def show(log: Path) -> None:
    """Print a log, for pytest to show when the test fails."""
    if log.exists():
        print(f"{log.name}:\n{log.read_text()}")


def spawn(words: list[str], log: IO[str]) -> subprocess.Popen[str]:
    """Start a command of the launcher in the background."""
    command = [sys.executable, "-m", "hack.cluster", *words]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=subprocess.STDOUT, text=True)
