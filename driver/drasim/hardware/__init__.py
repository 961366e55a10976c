"""The seam to hardware: what a driver looks at and changes. Implemented by ``hardware.simulated`` (NVML follows).

Everything is keyed by hardware identity (UUID of a GPU, PCI address of a NIC), never by a published name.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

from dra_plugin.errors import PluginError
from dra_plugin.quantity import Quantity

__all__ = [
    "DeviceLost",
    "Gpu",
    "Hardware",
    "HardwareError",
    "Kind",
    "Looked",
    "Nic",
    "NotSupported",
    "Observation",
    "Pci",
    "Setting",
    "Step",
]

Kind = Literal["gpu", "nic"]
Setting = str | int | bool


class HardwareError(PluginError):
    """The hardware did not do what was asked; asking again may help."""


class DeviceLost(HardwareError):
    """The device is gone. Nothing can be set on it; what was set is gone with it."""


class NotSupported(HardwareError):
    """This hardware cannot do that at all; asking again cannot help."""


class Pci(msgspec.Struct, frozen=True, kw_only=True):
    """Where a device sits.

    Attributes:
        bus_id: PCI address, lower-case hex, such as ``0000:3b:00.0``.
        root: PCIe root complex, such as ``pci0000:3a``.
        numa_node: NUMA node, or None where the machine does not say.
    """

    bus_id: str
    root: str
    numa_node: int | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU.

    Attributes:
        id: its UUID, ``GPU-`` and 36 characters.
        index: number on this machine, from 0.
        model: product name, at most 64 bytes.
        memory: total memory in bytes.
        driver_version: semantic version of the vendor's driver.
        pci: where it sits.
    """

    id: str
    index: int
    model: str
    memory: Quantity
    driver_version: str
    pci: Pci


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """One physical network port.

    Attributes:
        id: its PCI address.
        index: number on this machine, from 0.
        model: product name, at most 64 bytes.
        mac: MAC address, lower-case hex with colons.
        link_up: whether the port has a link.
        speed_gbps: speed of the link in Gbit/s.
        rdma: whether it can do RDMA.
        driver_version: semantic version of the vendor's driver.
        pci: where it sits.
    """

    id: str
    index: int
    model: str
    mac: str
    link_up: bool
    speed_gbps: int
    rdma: bool
    driver_version: str
    pci: Pci


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A look at the whole machine: a device that is not among ``devices`` is gone. ``at`` is Unix time in seconds."""

    at: float
    devices: tuple[Gpu | Nic, ...]


Observation = Looked


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one device. It can be repeated, and undone from itself alone.

    Attributes:
        device: the hardware identity.
        settings: by the names of the claim parameters, such as ``powerLimitWatts``.
    """

    device: str
    settings: dict[str, Setting]


class Hardware(Protocol):
    """The devices of one kind on this machine. Several processes may use them at the same time."""

    @property
    def kind(self) -> Kind:
        """The kind of all its devices."""
        ...

    def watch(self) -> AsyncIterator[Observation]:
        """Yield a look at once, then another each period and as soon as something is seen to have changed.

        Never ends by itself. Raises HardwareError when the hardware as a whole cannot be looked at.
        """
        ...

    async def apply(self, step: Step, claim: str) -> None:
        """Make the settings hold for the claim of that UID; a repeated call changes nothing.

        Raises DeviceLost (the device is gone), NotSupported (a setting that it does not know), HardwareError.
        """
        ...

    async def undo(self, step: Step, claim: str) -> None:
        """Take back what ``apply`` made for that claim, in this process or another; nothing there is a success.

        A device that is gone has nothing to take back. Raises HardwareError.
        """
        ...
