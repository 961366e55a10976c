"""The drivers that are compared: how each is started, and what it calls its devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hack.bench.figures import DEFAULT, OURS, RAISED

KUBELET = Path("/var/lib/kubelet")
REGISTRY = KUBELET / "plugins_registry"
PLUGINS = KUBELET / "plugins"
CDI = Path("/var/run/cdi")
GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
SMALL, BIG, FULL = "dgx", "big", "full"
"""Machines: 8 GPUs and 8 NICs as shipped; a GPU for each claim; or as many GPUs as a slice may have."""
SLICE = 64


@dataclass(frozen=True)
class Contestant:
    """A driver. `drivers` says how many devices each of its drivers publishes; the first one serves the claims."""

    name: str
    command: tuple[str, ...]
    drivers: Mapping[str, int]
    pool: str
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    registry_flag: str = "--registry={}"
    node: str = ""

    @property
    def driver(self) -> str:
        """Return the name of the driver whose claims are measured."""
        return next(iter(self.drivers))

    def gpus(self, machine: str) -> int:
        """Return how many GPUs our driver publishes on a machine of a fixed size."""
        return SLICE if machine == FULL else self.drivers[self.driver]

    def start(self, machine: str, registry: Path) -> list[str]:
        """Return the command that starts it for a machine, seen by the kubelet of that registry."""
        return [*self.command, *self.flags.get(machine, ()), self.registry_flag.format(registry)]


def ours(program: Path, node: str, machine: Path) -> Contestant:
    """Return our driver, both drivers in one process; `machine` is the profile with a GPU for each claim."""
    settings = {"nodeName": node, "probes.address": "127.0.0.1:18080", "log.format": "json"}
    return Contestant(
        OURS,
        (str(program), "node", *_set(settings)),
        {GPU: 8, NIC: 8},
        pool=f"{node}-gpu",
        flags={
            SMALL: _set({"simulation.profile": SMALL, "paths.state": str(PLUGINS / "drasim")}),
            BIG: _set({"simulation.profile": str(machine), "paths.state": str(PLUGINS / "drasim-big")}),
            FULL: _set({"simulation.profile": str(full_of(machine)), "paths.state": str(PLUGINS / "drasim-full")}),
        },
        registry_flag="--set=paths.registry={}",
        node=node,
    )


def full_of(machine: Path) -> Path:
    """Return where the profile with a full slice lies, beside the other one."""
    return machine.with_stem("slice")


def _set(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"--set={key}={value}" for key, value in settings.items())


def go(program: Path, node: str, name: str) -> Contestant:
    """Return the driver on the Go helper; with raised limits its client may send 1,000 requests a second."""
    driver = f"{name}.bench.example.com"
    limits = ("--qps=1000", "--burst=1000") if name == RAISED else ()
    command = (str(program), f"--node-name={node}", f"--driver={driver}", *limits)
    return Contestant(name, command, {driver: 8}, pool=node)


def contestants(programs: Path, node: str, machine: Path) -> dict[str, Contestant]:
    """Return all of them by name; their programs lie in the folder."""
    every = (
        ours(programs / "drasim", node, machine),
        go(programs / "godriver", node, RAISED),
        go(programs / "godriver", node, DEFAULT),
    )
    return {contestant.name: contestant for contestant in every}
