"""The API's objects as the controller reads them: what it decides by and no more, for it holds those of all Nodes."""

from collections.abc import Iterator

import msgspec

from dra_plugin.claims import ConsumerReference
from dra_plugin.resources import DeviceTaint, Kind, ObjectMeta, ObjectReference, ResourcePool, Value
from drasim.notices.references import claim_reference

__all__ = [
    "CLAIM",
    "CLUSTER_ROLE",
    "SLICE",
    "AllocatedDevice",
    "Claim",
    "ClusterRole",
    "Place",
    "Slice",
    "SliceDevice",
    "Toleration",
    "allocated_claim",
    "held_places",
    "outlives_its_pods",
    "watched_places",
]


class Place(msgspec.Struct, frozen=True, order=True):
    """A device by its names: what claims, slices and rules have in common."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class SliceDevice(Value, frozen=True, kw_only=True):
    """``devices[]`` of a slice."""

    name: str
    taints: tuple[DeviceTaint, ...] | None = None


class SliceSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a slice."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    devices: tuple[SliceDevice, ...] | None = None


class Slice(Value, frozen=True, kw_only=True):
    """A ResourceSlice: its devices' names and taints."""

    metadata: ObjectMeta
    spec: SliceSpec


class Toleration(Value, frozen=True, kw_only=True):
    """``results[].tolerations[]``, copied from the request when the device was allocated."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class AllocatedDevice(Value, frozen=True, kw_only=True):
    """``status.allocation.devices.results[]`` of a claim."""

    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def place(self) -> Place:
        """The device."""
        return Place(self.driver, self.pool, self.device)


class _Devices(Value, frozen=True, kw_only=True):
    results: tuple[AllocatedDevice, ...] | None = None


class _Allocation(Value, frozen=True, kw_only=True):
    devices: _Devices = _Devices()


class _ClaimStatus(Value, frozen=True, kw_only=True):
    allocation: _Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] | None = None


class Claim(Value, frozen=True, kw_only=True):
    """A ResourceClaim: what it holds, and for whom."""

    metadata: ObjectMeta
    status: _ClaimStatus | None = None

    @property
    def name(self) -> str:
        """``namespace/name``, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def reference(self) -> ObjectReference:
        """What an Event about it names."""
        return claim_reference(self.metadata.namespace, self.metadata.name or "", self.metadata.uid)

    @property
    def results(self) -> tuple[AllocatedDevice, ...]:
        """The allocated devices."""
        allocation = self.status and self.status.allocation
        return (allocation.devices.results or ()) if allocation else ()

    @property
    def consumers(self) -> tuple[ConsumerReference, ...]:
        """For whom it is reserved: Pods, or a PodGroup that stands for its Pods."""
        return (self.status and self.status.reserved_for) or ()


class ClusterRole(Value, frozen=True, kw_only=True):
    """A ClusterRole: the owner of the rules needs no more than a UID."""

    metadata: ObjectMeta


SLICE = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, Slice)  # noqa: FBT003 - the field order of Kind
CLAIM = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, Claim)  # noqa: FBT003 - the field order of Kind
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, ClusterRole)  # noqa: FBT003 - the field order of Kind


def allocated_claim(
    meta: ObjectMeta, results: tuple[AllocatedDevice, ...], consumers: tuple[ConsumerReference, ...] = ()
) -> Claim:
    """Return a claim that has got devices."""
    allocation = _Allocation(devices=_Devices(results=results))
    return Claim(metadata=meta, status=_ClaimStatus(allocation=allocation, reserved_for=consumers or None))


def held_places(claim: Claim) -> Iterator[Place]:
    """Yield the devices that a claim holds. With admin access a device is looked into, not held."""
    return (result.place for result in claim.results if not result.admin_access)


def watched_places(claim: Claim) -> Iterator[Place]:
    """Yield the devices that a claim looks into: that makes no rule, but a rule evicts its Pods as well."""
    return (result.place for result in claim.results if result.admin_access)


def outlives_its_pods(claim: Claim) -> bool:
    """Tell whether the claim stays allocated when its Pods are deleted.

    What Kubernetes makes for one Pod (from a template, or for an extended resource) is owned by that Pod and goes with
    it. A claim that Pods name stays, and so does one of a PodGroup until that is deleted: the next Pod gets the same
    device, since nobody looks at the taints of a device that is allocated.
    """
    owners = claim.metadata.owner_references or ()
    return not any(owner.kind == "Pod" and owner.api_version == "v1" for owner in owners)
