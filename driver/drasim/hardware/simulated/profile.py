"""A profile: the YAML description of a machine, and the devices that it gives a node of some name.

A machine is a list of PCIe roots with the devices behind them, so that devices which share a root share its NUMA node
too. ``count`` repeats a root: 300 GPUs are ``roots: [{numaNode: 0, gpus: 4, count: 75}]``. Everything that is not
written follows from the node's name, so a node has the same devices after every start and no two nodes share one.
"""

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Annotated
from uuid import UUID

import msgspec

from dra_plugin.quantity import Quantity
from drasim import profiles
from drasim.config import ConfigError, Seconds, decode_file
from drasim.config.strict import suggestion
from drasim.hardware import Gpu, Nic, Pci

__all__ = ["GpuModel", "Machine", "NicModel", "Profile", "Root", "load_profile", "machine_of"]

_Text = Annotated[
    str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]{1,64}\Z", description="text of 1 to 64 printable characters")
]
_Version = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8})){2}\Z",
        description="a version of three numbers, such as 570.86.15",
    ),
]
_RootName = Annotated[
    str, msgspec.Meta(pattern=r"^pci[0-9a-f]{4}:[0-9a-f]{2}\Z", description="a PCIe root such as pci0000:3a")
]
_Memory = Annotated[Quantity, msgspec.Meta(description="an amount of bytes such as 80Gi")]
_NumaNode = Annotated[int, msgspec.Meta(ge=0, le=1023)]
_Devices = Annotated[int, msgspec.Meta(ge=0, le=64)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1024)]
_Speed = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
_Delay = Annotated[Seconds, msgspec.Meta(description="1ms to 24h, such as 5s")]
_LAST_BUS = 0xFF
_MOST = 4096
"""Roots, and devices, of one machine: more than any has; looking at them and publishing them takes a second."""
_MOST_BYTES = 2**63 - 1
"""What the API server can compare capacities by (int64)."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What every part of a profile is."""


class GpuModel(_Section, frozen=True, kw_only=True):
    """What all GPUs behind a root are."""

    model: _Text = "SIM-H100-80G"
    memory: _Memory = Quantity("80Gi")
    driver_version: _Version = "570.86.15"


class NicModel(_Section, frozen=True, kw_only=True):
    """What all NICs behind a root are. ``speedGbps`` is in Gbit/s."""

    model: _Text = "SIM-CX7-400G"
    speed_gbps: _Speed = 400
    rdma: bool = True
    link_up: bool = True
    driver_version: _Version = "24.10.1"


class Root(_Section, frozen=True, kw_only=True):
    """One PCIe root, or ``count`` equal ones, and the devices behind each.

    Attributes:
        root: its name; empty takes the next PCI domain that is free, which ``count`` above 1 needs.
        numa_node: the NUMA node of all its devices; None is a machine that does not say.
        gpus: number of GPUs behind each root.
        nics: number of NICs behind each root.
        count: number of such roots.
        gpu: what the GPUs are, when other than the profile's.
        nic: what the NICs are, when other than the profile's.
    """

    root: _RootName | None = None
    numa_node: _NumaNode | None = None
    gpus: _Devices = 0
    nics: _Devices = 0
    count: _Count = 1
    gpu: GpuModel | None = None
    nic: NicModel | None = None


class Profile(_Section, frozen=True, kw_only=True):
    """A machine. ``stepSeconds`` is how long a setting takes to be made; left out, it takes no time."""

    roots: tuple[Root, ...]
    gpu: GpuModel = GpuModel()
    nic: NicModel = NicModel()
    step_seconds: _Delay | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node, by index, and the time that a step takes in seconds."""

    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    step_seconds: float = 0.0

    @property
    def devices(self) -> tuple[Gpu | Nic, ...]:
        """All of them, GPUs first."""
        return *self.gpus, *self.nics


def load_profile(name: str) -> Profile:
    """Return a shipped profile by name, or the one in the file of that path. Raises ConfigError."""
    path = profiles.path_of(name)
    if "/" not in name and not path.is_file():
        known = profiles.shipped()
        problem = f'"{name}" is no profile{suggestion(name, known)}; allowed: {", ".join(known)}, or an absolute path'
        raise ConfigError("config", "simulation.profile", problem)
    profile = decode_file(path, Profile)
    _check(profile, str(path))
    return profile


def machine_of(profile: Profile, node: str) -> Machine:
    """Return the devices of the node of that name: the same ones each time."""
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    for root, name in _named_roots(profile):
        places = _places(root, name)
        gpus.extend(_gpu(root.gpu or profile.gpu, node, len(gpus), next(places)) for _ in range(root.gpus))
        nics.extend(_nic(root.nic or profile.nic, node, len(nics), next(places)) for _ in range(root.nics))
    return Machine(gpus=tuple(gpus), nics=tuple(nics), step_seconds=profile.step_seconds or 0.0)


def _check(profile: Profile, file: str) -> None:
    """Refuse what is well-formed but cannot be a machine."""
    _check_memory(profile.gpu, file, "gpu")
    _check_size(profile, file)
    taken: dict[str, str] = {}
    for number, root in enumerate(profile.roots):
        where = f"roots[{number}]"
        _check_memory(root.gpu, file, f"{where}.gpu")
        if root.root:
            _check_named(root, root.root, file, where)
            _check_buses(root, root.root, taken, (file, f"{where}.root"))


def _check_size(profile: Profile, file: str) -> None:
    roots = sum(root.count for root in profile.roots)
    devices = sum(root.count * (root.gpus + root.nics) for root in profile.roots)
    for number, what in ((roots, "roots"), (devices, "devices")):
        if number > _MOST:
            raise ConfigError(file, "roots", f"{number} {what} in all; allowed: at most {_MOST}")


def _check_memory(gpu: GpuModel | None, file: str, where: str) -> None:
    if gpu and not (1 <= gpu.memory.number <= _MOST_BYTES and gpu.memory.number % 1 == 0):
        problem = f'"{gpu.memory}" is not allowed; allowed: 1 to {_MOST_BYTES} bytes, such as 80Gi'
        raise ConfigError(file, f"{where}.memory", problem)


def _check_named(root: Root, name: str, file: str, where: str) -> None:
    if root.count > 1:
        problem = f"{root.count} roots cannot share a name; allowed: 1, or leave out root"
        raise ConfigError(file, f"{where}.count", problem)
    free = _LAST_BUS - int(name[-2:], 16)
    if root.gpus + root.nics > free:
        raise ConfigError(file, f"{where}.root", f'"{name}" has {free} PCI buses only; allowed: a lower one')


def _check_buses(root: Root, name: str, taken: dict[str, str], place: tuple[str, str]) -> None:
    """Refuse a root that shares a bus, its own or one of its devices', with another one."""
    file, key = place
    first = int(name[-2:], 16)
    for bus in range(first, first + 1 + root.gpus + root.nics):
        other = taken.setdefault(f"{name[:8]}{bus:02x}", key)
        if other != key:
            problem = f'"{name}" needs the bus {bus:02x} of {other} too; allowed: one with more buses to itself'
            raise ConfigError(file, key, problem)


def _named_roots(profile: Profile) -> Iterator[tuple[Root, str]]:
    """Yield every single root with its name; those without one get the PCI domains that no name uses."""
    used = {root.root[3:7] for root in profile.roots if root.root}
    domains = (domain for domain in (f"{number:04x}" for number in count()) if domain not in used)
    for root in profile.roots:
        for _ in range(root.count):
            yield root, root.root or f"pci{next(domains)}:00"


def _places(root: Root, name: str) -> Iterator[Pci]:
    """Yield the place of one device after the other: each has a bus of its own behind the root."""
    domain, bus = name[3:7], int(name[-2:], 16)
    for number in count(bus + 1):
        yield Pci(bus_id=f"{domain}:{number:02x}:00.0", root=name, numa_node=root.numa_node)


def _gpu(model: GpuModel, node: str, index: int, pci: Pci) -> Gpu:
    return Gpu(
        id=f"GPU-{UUID(bytes=_identity(node, 'gpu', index)[:16], version=4)}",
        index=index,
        model=model.model,
        memory=model.memory,
        driver_version=model.driver_version,
        pci=pci,
    )


def _nic(model: NicModel, node: str, index: int, pci: Pci) -> Nic:
    return Nic(
        id=pci.bus_id,
        index=index,
        model=model.model,
        mac=_mac(_identity(node, "nic", index)),
        link_up=model.link_up,
        speed_gbps=model.speed_gbps,
        rdma=model.rdma,
        driver_version=model.driver_version,
        pci=pci,
    )


def _identity(node: str, kind: str, index: int) -> bytes:
    return hashlib.sha256(f"drasim/{node}/{kind}/{index}".encode()).digest()


def _mac(identity: bytes) -> str:
    """Return a unicast, locally administered address (IEEE 802: the two lowest bits of the first byte are 10)."""
    return bytes([identity[0] & 0xFC | 0x02, *identity[1:6]]).hex(":")
