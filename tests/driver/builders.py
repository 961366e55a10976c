"""Claims, records and inventories of a small machine, for the driver's tests."""

from collections.abc import Mapping
from typing import Any

from dra_plugin.checkpoint import HeldDevice, Record
from dra_plugin.claims import Claim, ClaimRef, DeviceConfig, OpaqueConfig, Result
from drasim.devices import gpu_devices, nic_devices, pool_name
from drasim.hardware import Kind
from drasim.hardware.simulated import Machine, load_profile, machine_of
from drasim.planning import Inventory

NODE = "node-a"
DRIVERS: Mapping[Kind, str] = {"gpu": "gpu.dra.example.com", "nic": "nic.dra.example.com"}
BOOT = "boot-1"


def small_machine() -> Machine:
    """Return the shipped machine of 4 GPUs and 4 NICs."""
    return machine_of(load_profile("small"), NODE)


def inventory(kind: Kind = "gpu", machine: Machine | None = None) -> Inventory:
    """Return what a driver of that kind offers on the small machine."""
    machine = machine or small_machine()
    published = gpu_devices(machine.gpus) if kind == "gpu" else nic_devices(machine.nics)
    return Inventory(kind=kind, pool=pool_name(NODE, kind), devices={device.name: device for device in published})


def result(device: str, request: str = "request", **more: Any) -> Result:  # noqa: ANN401 - members of Result
    """Return an allocated device; its kind is in its name."""
    kind: Kind = "gpu" if device.startswith("gpu") else "nic"
    given: dict[str, Any] = {"driver": DRIVERS[kind], "pool": pool_name(NODE, kind)}
    return Result(request=request, device=device, **(given | more))


def gpu_config(requests: tuple[str, ...] | None = None, **settings: object) -> DeviceConfig:
    """Return GPU parameters of a claim."""
    parameters = {"apiVersion": "dra.example.com/v1alpha1", "kind": "GpuConfig", **settings}
    opaque = OpaqueConfig(driver=DRIVERS["gpu"], parameters=parameters)
    return DeviceConfig(source="FromClaim", requests=requests, opaque=opaque)


def claim(uid: str, *results: Result, config: tuple[DeviceConfig, ...] = ()) -> Claim:
    """Return an allocated claim named after its UID."""
    return Claim(ref=ref(uid), results=results, config=config)


def ref(uid: str) -> ClaimRef:
    """Return what the kubelet calls the claim."""
    return ClaimRef(namespace="default", name=f"claim-{uid}", uid=uid)


def record(uid: str, *devices: str, **more: Any) -> Record:  # noqa: ANN401 - members of HeldDevice
    """Return a finished record of whole GPUs."""
    pool = pool_name(NODE, "gpu")
    held = tuple(HeldDevice(pool=pool, device=device, requests=("request",), **more) for device in devices)
    return Record(uid=uid, namespace="default", name=f"claim-{uid}", phase="DONE", boot_id=BOOT, devices=held)
