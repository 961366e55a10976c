"""DeviceFault: the object by which users tell a device to fail. Deleting it is the repair.

The CRD is the chart's ``crd-devicefaults.yaml``; a test compares both.
"""

import hashlib
import re

import msgspec

from dra_plugin.resources import Kind, ObjectMeta, Value

__all__ = [
    "API_VERSION",
    "DEVICE_FAULT",
    "GROUP",
    "PHASES",
    "VERSION",
    "DeviceFault",
    "DeviceFaultSpec",
    "DeviceFaultStatus",
    "fault_name",
    "where",
]

GROUP, VERSION = "dra.example.com", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
PHASES = ("Pending", "Active", "Cleared", "Refused")
_LONGEST_NAME = 253


class DeviceFaultSpec(Value, frozen=True, kw_only=True):
    """``spec``: what should fail, and when. Exactly one of ``device`` and ``all`` is given.

    Attributes:
        node: name of the Node.
        device: published name (``gpu-3``), hardware identity (a GPU's UUID, a PCI address) or PCIe root.
        all: all devices of a kind, ``gpu`` or ``nic``.
        kind: one of ``hardware.simulated.faults.FAULT_KINDS``.
        code: says more, such as the number of an XID.
        after: how long after its creation it begins, such as ``30s``; None: at once.
        duration: how long it lasts; None: until the object is deleted.
    """

    node: str
    device: str | None = None
    all: str | None = None
    kind: str
    code: str | None = None
    after: str | None = None
    duration: str | None = None


class DeviceFaultStatus(Value, frozen=True, kw_only=True):
    """``status``: what became of it.

    Attributes:
        phase: one of ``PHASES``.
        reason: why it is refused, or what it waits for.
        first_seen: when the devices showed it first, RFC 3339 in whole seconds.
        last_seen: when they were known to show it last; brought up to date every few minutes, and when it ends.
        devices: published names of the devices that it befalls.
        observed_generation: the ``metadata.generation`` that this was made from.
    """

    phase: str | None = None
    reason: str | None = None
    first_seen: str | None = None
    last_seen: str | None = None
    devices: tuple[str, ...] | None = None
    observed_generation: int | None = None


class DeviceFault(Value, frozen=True, kw_only=True):
    """A fault that a device of a node should have."""

    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    kind: str = msgspec.field(default_factory=lambda: "DeviceFault")
    metadata: ObjectMeta
    spec: DeviceFaultSpec
    status: DeviceFaultStatus | None = None


DEVICE_FAULT = Kind(GROUP, VERSION, "devicefaults", "DeviceFault", False, DeviceFault)  # noqa: FBT003 - the field order of Kind


def fault_name(spec: DeviceFaultSpec, *more: str) -> str:
    """Return a name for the object: the same each time for the same node, device, kind and code, and ``more``."""
    words = (spec.node, spec.device or f"all-{spec.all}", spec.kind, spec.code or "", *more)
    plain = re.sub(r"[^a-z0-9.]+", "-", "-".join(filter(None, words)).lower())
    if len(plain) <= _LONGEST_NAME:
        return plain.strip("-.")
    mark = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - len(mark) - 1].rstrip('-.')}-{mark}"


def where(spec: DeviceFaultSpec) -> str:
    """Return what fails, for people: the device as it was given, or ``all gpu``."""
    return spec.device or f"all {spec.all}"
