"""What is read of the API server: of a slice only what is shown, so that a large cluster's fit into memory."""

from collections.abc import Mapping

import msgspec

from dra_plugin.claims import ConsumerReference, ResourceClaim
from dra_plugin.resources import (
    DeviceAttribute,
    DeviceTaint,
    DeviceTaintRule,
    Kind,
    Lease,
    ObjectMeta,
    ResourcePool,
    Value,
)
from drasim.controller.status import ControllerStatus
from drasim.faults import DeviceFault

__all__ = ["SLICE", "Slice", "SliceDevice", "Snapshot", "groups_of", "is_group"]


class _Attributes(Value, frozen=True, kw_only=True):
    """The one attribute that is shown."""

    health: DeviceAttribute | None = None


class SliceDevice(Value, frozen=True, kw_only=True):
    """``devices[]`` of a slice."""

    name: str
    attributes: _Attributes | None = None
    taints: tuple[DeviceTaint, ...] | None = None


class _SliceSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a slice."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    devices: tuple[SliceDevice, ...] | None = None


class Slice(Value, frozen=True, kw_only=True):
    """A ResourceSlice without what is not shown."""

    metadata: ObjectMeta
    spec: _SliceSpec


SLICE = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, Slice)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server says, at about one time.

    Attributes:
        slices: of the two drivers, of one Node or of all.
        rules: all DeviceTaintRules.
        claims: all ResourceClaims.
        faults: DeviceFaults, of one Node or of all.
        controller: what `drasim controller` says of itself; None where there is none.
        lease: by which one of the controllers leads; None where there is none.
        members: Pods of a PodGroup, by its namespace and name.
        unread: what could not be read, for people.
    """

    slices: tuple[Slice, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    faults: tuple[DeviceFault, ...] = ()
    controller: ControllerStatus | None = None
    lease: Lease | None = None
    members: Mapping[tuple[str, str], tuple[str, ...]] = {}
    unread: tuple[str, ...] = ()


def is_group(consumer: ConsumerReference) -> bool:
    """Tell whether a claim is reserved for a PodGroup, which stands for its Pods."""
    return consumer.resource == "podgroups"


def groups_of(claims: tuple[ResourceClaim, ...], drivers: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the PodGroups that use devices of these drivers."""
    return frozenset(
        (claim.metadata.namespace or "", consumer.name)
        for claim in claims
        if claim.status and claim.status.allocation
        if any(result.driver in drivers for result in claim.status.allocation.devices.results or ())
        for consumer in claim.status.reserved_for or ()
        if is_group(consumer)
    )
