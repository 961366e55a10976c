"""Figures of faults: from a device that fails to its slice, as another client of the API server sees it."""

import json
import random
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from hack.bench import evictions, objects
from hack.bench.api import Watch
from hack.bench.contestants import FULL, GPU, SMALL, Contestant
from hack.bench.figures import OURS
from hack.bench.instance import Instance, Place, connects, started, wait_for
from hack.bench.plan import Plan
from hack.bench.process import cpu, rss
from hack.bench.samples import Collected
from hack.bench.stats import percentile

SPACED = (0.4, 0.55)
"""Seconds between two faults: what follows from the one before is written by then."""
AT_ONCE = {"problems.clearAfter": "150ms", "problems.clearAfterMost": "150ms"}
"""A problem that is gone is over soon, but not while the next one is being measured."""
FLAP = 1.0
SETTLE = 3.0
DEVICES = 8

Fault = tuple[str, str, str]
"""Device, kind, code."""


class Machine:
    """The hardware below a driver that runs as `hack.bench.faulty`."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw")

    def set(self, *faults: Fault) -> float:
        """Let these faults stand and no others; return when the driver's process was told, as it says itself."""
        self._lines.write(json.dumps(faults) + "\n")
        self._lines.flush()
        return float(self._lines.readline())

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()


def told(contestant: Contestant, path: Path, settings: Mapping[str, str]) -> Contestant:
    """Return our driver in a process that can be told to fail, with more settings."""
    more = tuple(f"--set={key}={value}" for key, value in {"nodeName": contestant.node, **settings}.items())
    flags = {machine: (*given, "--set=probes.address=", *more) for machine, given in contestant.flags.items()}
    command = (sys.executable, "-m", "hack.bench.faulty", str(path))
    return replace(contestant, command=command, flags=flags)


@contextmanager
def failing(
    place: Place, contestant: Contestant, machine: str, settings: Mapping[str, str]
) -> Iterator[tuple[Instance, Machine]]:
    """Run our driver so that its hardware can be told to fail."""
    path = place.logs / "faulty.sock"
    path.unlink(missing_ok=True)
    with started(place, told(contestant, path, settings), machine) as instance:
        instance.wait_slices(gpus=contestant.gpus(machine))
        wait_for(lambda: connects(path), "the socket through which hardware is told to fail")
        hardware = Machine(path)
        try:
            yield instance, hardware
        finally:
            hardware.set()  # it outlives the process
            hardware.close()


def measure(place: Place, pods: Watch, contestant: Contestant, plan: Plan, collected: Collected) -> None:
    """Measure everything about faults once; the slices of many nodes are the plan's to ask for."""
    for machine, figure in ((SMALL, "fault-8"), (FULL, "fault-64")):
        with failing(place, contestant, machine, AT_ONCE) as (_, hardware):
            _to_slice(place, hardware, figure, plan.faults, collected)
    evictions.measure(place, pods, contestant, plan, collected)
    _flapping(place, contestant, plan.flap_seconds, collected)
    if plan.nodes:
        evictions.many_nodes(place, contestant, plan.nodes, collected)


def _to_slice(place: Place, hardware: Machine, figure: str, count: int, collected: Collected) -> None:
    """Let one device after the other fail, and look when its slice shows it."""
    seconds = []
    for number in range(count):
        device = f"gpu-{number % DEVICES}"
        time.sleep(random.uniform(*SPACED))
        begin = hardware.set((device, "lost", ""))
        seconds.append(place.slices.until(partial(objects.has_taint, GPU, device)) - begin)
    collected.add(f"{figure}-p50", OURS, percentile(seconds, 0.5) * 1000)
    collected.add(f"{figure}-p99", OURS, percentile(seconds, 0.99) * 1000)


def _flapping(place: Place, contestant: Contestant, seconds: float, collected: Collected) -> None:
    """Let all devices come and go once a second, with the shipped damping; what that takes, node and controller."""
    with (
        failing(place, contestant, SMALL, {}) as (node, hardware),
        evictions.controlling(place, contestant, {}) as controller,
    ):
        processes = {"node": node.pid, "controller": controller.pid}
        _flap(hardware, SETTLE)
        before = {name: cpu(pid) for name, pid in processes.items()}
        began = time.monotonic()
        _flap(hardware, seconds)
        took = time.monotonic() - began
        for name, pid in processes.items():
            collected.add(f"flap-cpu-{name}", OURS, (cpu(pid) - before[name]) / took * 100)
            collected.add(f"flap-rss-{name}", OURS, rss(pid))


def _flap(hardware: Machine, seconds: float) -> None:
    sick = [(f"gpu-{n}", "xid", "79") for n in range(DEVICES)] + [(f"nic-{n}", "link-down", "") for n in range(DEVICES)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hardware.set(*sick)
        time.sleep(FLAP / 2)
        hardware.set()
        time.sleep(FLAP / 2)
