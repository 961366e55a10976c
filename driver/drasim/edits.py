"""Devices and settings -> what containers get to see of them (CDI). Pure; the only maker of CDI edits.

Environment variables carry the device's name, so that several devices in one container keep theirs. The device node
is the host's /dev/null, bound to ``/dev/drasim/<name>``: a bind mount needs no right to make device nodes, which is
why it works in user namespaces too.
"""

from collections.abc import Iterable, Mapping

from dra_plugin.cdi import CdiDevice, Edits, Mount, qualified
from drasim.devices import Published
from drasim.hardware import Gpu, Nic, Setting

__all__ = ["cdi_id", "claim_device", "claim_devices", "claim_kind", "edits_for", "static_devices", "static_kind"]


def static_kind(driver: str) -> str:
    """Return the CDI kind of the devices that need nothing from a claim."""
    return f"k8s.{driver}/device"


def claim_kind(driver: str) -> str:
    """Return the CDI kind of what is made for one claim."""
    return f"k8s.{driver}/claim"


def cdi_id(driver: str, device: str, claim_uid: str | None = None) -> str:
    """Return the qualified CDI name of a device: the node's static one, or the one made for a claim."""
    if claim_uid is None:
        return qualified(static_kind(driver), device)
    return qualified(claim_kind(driver), claim_device(claim_uid, device))


def claim_device(claim_uid: str, device: str) -> str:
    """Return the CDI device name of what is made for one claim; no other claim ever has it."""
    return f"{claim_uid}-{device}"


def static_devices(published: Iterable[Published]) -> tuple[CdiDevice, ...]:
    """Return the entries of the node's static spec."""
    return tuple(CdiDevice(name=device.name, edits=edits_for(device, {})) for device in published)


def claim_devices(claim_uid: str, devices: Iterable[tuple[Published, Mapping[str, Setting]]]) -> tuple[CdiDevice, ...]:
    """Return the entries of the claim's own spec, for its devices and their settings."""
    return tuple(
        CdiDevice(name=claim_device(claim_uid, device.name), edits=edits_for(device, settings))
        for device, settings in devices
    )


def edits_for(published: Published, settings: Mapping[str, Setting]) -> Edits:
    """Return the variables and the device node of one device; settings become variables too."""
    prefix = "DRASIM_" + published.name.upper().replace("-", "_")
    facts = _facts(published.hardware) | {_upper(key): _text(value) for key, value in settings.items()}
    variables = (f"{prefix}={_identity(published.hardware)}", *(f"{prefix}_{key}={facts[key]}" for key in facts))
    node = Mount(host_path="/dev/null", container_path=f"/dev/drasim/{published.name}", options=("bind",))
    return Edits(env=variables, mounts=(node,))


def _identity(hardware: Gpu | Nic) -> str:
    return hardware.mac if isinstance(hardware, Nic) else hardware.id


def _facts(hardware: Gpu | Nic) -> dict[str, str]:
    facts = {"MODEL": hardware.model, "PCI_BUS_ID": hardware.pci.bus_id}
    if hardware.pci.numa_node is not None:
        facts["NUMA_NODE"] = str(hardware.pci.numa_node)
    return facts


def _upper(key: str) -> str:
    """Return ``POWER_LIMIT_WATTS`` for ``powerLimitWatts``."""
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in key)


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
