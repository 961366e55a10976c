"""The published devices: one for each physical device, with its name, attributes and capacity."""

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from dra_plugin.resources import Device, DeviceAttribute, DeviceCapacity
from drasim.hardware import Gpu, Kind, Nic, Pci, device_name
from drasim.state import NodeState

__all__ = ["STANDARD", "Published", "gpu_devices", "nic_devices", "pool_name", "published_devices"]

STANDARD = "resource.kubernetes.io"
"""The domain of the attributes that all drivers share (dra-1.37.md section 3.10)."""

_POOL_NAME_LIMIT = 253
_HEALTHY = DeviceAttribute(string="Healthy")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A device as it is published, and the hardware that realises it.

    Attributes:
        name: unique in the pool and stable while the device keeps its index: ``gpu-0``, ``nic-3``.
        device: what the slice says of it.
        hardware: the physical device: identity, model, PCI address and more, for CDI edits.
    """

    name: str
    device: Device
    hardware: Gpu | Nic

    @property
    def id(self) -> str:
        """The hardware identity, as in steps and records."""
        return self.hardware.id


def pool_name(node: str, kind: Kind) -> str:
    """Return the name of the node's pool of that kind, at most 253 characters; a longer one is cut and hashed."""
    name = f"{node}-{kind}"
    if len(name) <= _POOL_NAME_LIMIT:
        return name
    mark = f"-{hashlib.sha256(node.encode()).hexdigest()[:8]}-{kind}"
    return node[: _POOL_NAME_LIMIT - len(mark)].rstrip("-.") + mark


def published_devices(state: NodeState, held: Collection[str] = ()) -> tuple[Published, ...]:
    """Return what is published of the node's devices, in the order of preference.

    A device that is gone stays while a claim holds it (``held``: hardware identities), unless another one has taken its
    place and so its name; of several that are gone from one place, the last. What is wrong with a device is not in it:
    ``pools.marked`` says that.
    """
    taken = {device.index for device in state.devices.values()}
    gone = {
        device.index: device for name, device in state.missing.items() if name in held and device.index not in taken
    }
    devices = (*state.devices.values(), *gone.values())
    gpus = gpu_devices(device for device in devices if isinstance(device, Gpu))
    return gpus + nic_devices(device for device in devices if isinstance(device, Nic))


def gpu_devices(gpus: Iterable[Gpu]) -> tuple[Published, ...]:
    """Return a published device for each GPU, by index."""
    return tuple(_gpu(gpu) for gpu in sorted(gpus, key=lambda gpu: gpu.index))


def nic_devices(nics: Iterable[Nic]) -> tuple[Published, ...]:
    """Return a published device for each NIC, by index."""
    return tuple(_nic(nic) for nic in sorted(nics, key=lambda nic: nic.index))


def _gpu(gpu: Gpu) -> Published:
    attributes = {
        "model": DeviceAttribute(string=gpu.model),
        "driverVersion": DeviceAttribute(version=gpu.driver_version),
        "uuid": DeviceAttribute(string=gpu.id),
        "index": DeviceAttribute(integer=gpu.index),
        "health": _HEALTHY,
    }
    capacity = {"memory": DeviceCapacity(value=gpu.memory)}
    device = Device(name=device_name(gpu), attributes=attributes | _place(gpu.pci), capacity=capacity)
    return Published(name=device.name, device=device, hardware=gpu)


def _nic(nic: Nic) -> Published:
    attributes = {
        "model": DeviceAttribute(string=nic.model),
        "driverVersion": DeviceAttribute(version=nic.driver_version),
        "mac": DeviceAttribute(string=nic.mac),
        "index": DeviceAttribute(integer=nic.index),
        "linkState": DeviceAttribute(string="up" if nic.link_up else "down"),
        "linkSpeedGbps": DeviceAttribute(integer=nic.speed_gbps),
        "rdma": DeviceAttribute(boolean=nic.rdma),
        "health": _HEALTHY,
    }
    device = Device(name=device_name(nic), attributes=attributes | _place(nic.pci))
    return Published(name=device.name, device=device, hardware=nic)


def _place(pci: Pci) -> dict[str, DeviceAttribute]:
    """Return the standard attributes; a NUMA node that the machine does not name is left out."""
    attributes = {
        f"{STANDARD}/pcieRoot": DeviceAttribute(string=pci.root),
        f"{STANDARD}/pciBusID": DeviceAttribute(string=pci.bus_id),
    }
    if pci.numa_node is not None:
        attributes[f"{STANDARD}/numaNode"] = DeviceAttribute(integer=pci.numa_node)
    return attributes
