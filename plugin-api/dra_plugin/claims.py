"""ResourceClaims as a driver sees them: the allocation, its configuration, and only what belongs to one driver.

Source: ``resource.k8s.io/v1`` ResourceClaim; precedence of configuration: KEP-4381 (class first, then claim, the
later entry wins).
"""

from typing import Any

import msgspec

from dra_plugin.quantity import Quantity
from dra_plugin.resources import Kind, ObjectMeta, Value

__all__ = [
    "POD_CLAIM_NAME",
    "RESOURCE_CLAIM",
    "AllocatedDevices",
    "Allocation",
    "Claim",
    "ClaimRef",
    "ClaimStatus",
    "ConsumerReference",
    "DeviceConfig",
    "OpaqueConfig",
    "ResourceClaim",
    "Result",
    "config_for",
    "main_request",
]

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


class OpaqueConfig(Value, frozen=True, kw_only=True):
    """``opaque`` of a configuration: parameters for one driver, a JSON object."""

    driver: str
    parameters: dict[str, Any]


class DeviceConfig(Value, frozen=True, kw_only=True):
    """``status.allocation.devices.config[]``. Source is FromClass or FromClaim; no requests means all."""

    source: str
    requests: tuple[str, ...] | None = None
    opaque: OpaqueConfig | None = None


class Result(Value, frozen=True, kw_only=True):
    """``status.allocation.devices.results[]``: one allocated device, or one share of it."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None


class AllocatedDevices(Value, frozen=True, kw_only=True):
    """``status.allocation.devices``."""

    results: tuple[Result, ...] | None = None
    config: tuple[DeviceConfig, ...] | None = None


class Allocation(Value, frozen=True, kw_only=True):
    """``status.allocation``."""

    devices: AllocatedDevices = AllocatedDevices()


class ConsumerReference(Value, frozen=True, kw_only=True):
    """``status.reservedFor[]``: a Pod, or a PodGroup that stands for its Pods."""

    api_group: str | None = None
    resource: str
    name: str
    uid: str


class ClaimStatus(Value, frozen=True, kw_only=True):
    """``status``: written by the scheduler; the driver only reads it here."""

    allocation: Allocation | None = None
    reserved_for: tuple[ConsumerReference, ...] | None = None


class ResourceClaim(Value, frozen=True, kw_only=True):
    """The API object, as far as a driver reads it."""

    api_version: str = msgspec.field(default_factory=lambda: "resource.k8s.io/v1")
    kind: str = msgspec.field(default_factory=lambda: "ResourceClaim")
    metadata: ObjectMeta
    status: ClaimStatus | None = None


RESOURCE_CLAIM = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim)  # noqa: FBT003 - the field order of Kind


class ClaimRef(msgspec.Struct, frozen=True):
    """What the kubelet names a claim by; at Unprepare nothing else may exist any more."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Return ``namespace/name`` for people."""
        return f"{self.namespace}/{self.name}"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An allocated claim, reduced to what belongs to one driver.

    Attributes:
        ref: namespace, name and UID (checked against what the kubelet asked for).
        results: the allocated devices of this driver, in the order of the allocation.
        config: the opaque configurations for this driver, least important first.
        pod_claim_name: the name in ``pod.spec.resourceClaims`` when the claim came from a template.
    """

    ref: ClaimRef
    results: tuple[Result, ...]
    config: tuple[DeviceConfig, ...] = ()
    pod_claim_name: str | None = None

    @classmethod
    def for_driver(cls, claim: ResourceClaim, driver: str) -> "Claim":
        """Reduce ``claim`` (which must be allocated) to the results and configurations of ``driver``."""
        devices = ((claim.status and claim.status.allocation) or Allocation()).devices
        meta = claim.metadata
        ours = tuple(entry for entry in devices.config or () if entry.opaque and entry.opaque.driver == driver)
        return cls(
            ref=ClaimRef(meta.namespace or "", meta.name or "", meta.uid or ""),
            results=tuple(result for result in devices.results or () if result.driver == driver),
            config=tuple(sorted(ours, key=lambda entry: entry.source != "FromClass")),
            pod_claim_name=(meta.annotations or {}).get(POD_CLAIM_NAME),
        )


def main_request(request: str) -> str:
    """Return the main request of ``main`` or ``main/sub``: the only name that the kubelet knows."""
    return request.partition("/")[0]


def config_for(claim: Claim, result: Result) -> tuple[dict[str, Any], ...]:
    """Return the parameters that apply to ``result``, least important first (the last one wins)."""
    names = {result.request, main_request(result.request)}
    return tuple(
        entry.opaque.parameters
        for entry in claim.config
        if entry.opaque and (not entry.requests or names.intersection(entry.requests))
    )
