"""The seam to hardware: what a driver looks at and changes. Implemented by ``hardware.simulated`` (NVML follows).

Everything is keyed by hardware identity (UUID of a GPU, PCI address of a NIC); names are for people.
"""

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

from dra_plugin.errors import PluginError
from dra_plugin.quantity import Quantity

__all__ = [
    "DeviceLost",
    "Fault",
    "Gpu",
    "Hardware",
    "HardwareError",
    "Kind",
    "Looked",
    "Nic",
    "NotSupported",
    "Pci",
    "Setting",
    "Sign",
    "Step",
    "device_name",
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


def device_name(device: Gpu | Nic) -> str:
    """Return the name that people know a device by, under which it is published: ``gpu-3``, ``nic-0``."""
    return f"{'gpu' if isinstance(device, Gpu) else 'nic'}-{device.index}"


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """What a look found wrong with a device.

    Attributes:
        kind: one of ``config.problems.PROBLEM_KINDS``.
        code: says more, such as the number of an XID; a label value (at most 63 letters, digits, ``-``, ``_``, ``.``).
        message: for people, one line.
    """

    kind: str
    code: str = ""
    message: str = ""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A look at the whole machine: a device that is not among ``devices`` is gone.

    Attributes:
        at: Unix time in seconds.
        devices: everything that is in the machine, also what does not answer (as it was known before).
        signs: what is wrong now, by hardware identity; a device that is not in it has nothing.
        silent: devices whose probe has not answered in time, with the Unix time of the last look that saw them (of the
            first question, for one that has never answered since ``watch`` began). Nothing was learned of those:
            ``signs`` does not speak of them.
    """

    at: float
    devices: tuple[Gpu | Nic, ...]
    signs: Mapping[str, tuple[Sign, ...]] = MappingProxyType({})
    silent: Mapping[str, float] = MappingProxyType({})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one device. It can be repeated, and undone from itself alone.

    Attributes:
        device: the hardware identity.
        settings: by the names of the claim parameters, such as ``powerLimitWatts``.
    """

    device: str
    settings: dict[str, Setting]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What hardware that can be told to fail should do.

    Attributes:
        device: a hardware identity, or the name of a PCIe root: what is below it then.
        kind: one of the kinds of problems, or ``prepare-fails``, ``prepare-slow``, ``unprepare-slow``.
        code: says more: the number of an XID, seconds of a slow prepare.
    """

    device: str
    kind: str
    code: str = ""


class Hardware(Protocol):
    """The devices of one kind on this machine. Several processes may use them at the same time."""

    @property
    def kind(self) -> Kind:
        """The kind of all its devices."""
        ...

    def watch(self) -> AsyncIterator[Looked]:
        """Yield a look at once, then another each period and as soon as something is seen to have changed.

        Each device has a probe of its own; one that takes long or hangs holds up no look at the others: until it is
        silent, what it answered last stands. Never ends by itself. Raises HardwareError when the hardware as a whole
        cannot be looked at.
        """
        ...

    async def admit(self, device: str, claim: str) -> None:
        """Return when a claim of that UID may have the device; called before each Prepare, also where nothing is set.

        Raises DeviceLost (it is gone), HardwareError (it fails).
        """
        ...

    async def dismiss(self, device: str, claim: str) -> None:
        """Return when the device can be taken from the claim; a device that is gone can. Raises HardwareError."""
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
