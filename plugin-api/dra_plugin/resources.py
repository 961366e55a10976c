"""The API's objects as frozen values: ``resource.k8s.io/v1`` and the few others that a driver touches.

Field names are the API's own, in snake case here and in the API's spelling in JSON. Reading ignores unknown fields.
A member that the server may leave out or send as null is ``None``; where lists are concerned, ``None`` equals empty.
Times are whole seconds in UTC, RFC 3339 with ``Z``. Sources: API types of Kubernetes 1.37.
"""

import functools
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from dra_plugin.quantity import Quantity

__all__ = [
    "CONFIG_MAP",
    "DEVICE_TAINT_RULE",
    "DEVICE_TAINT_RULES",
    "EVENT",
    "LEASE",
    "NODE",
    "POD",
    "RESOURCE_SLICE",
    "ConfigMap",
    "Counter",
    "CounterConsumption",
    "CounterSet",
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceTaintRuleSpec",
    "DeviceTaintSelector",
    "Event",
    "Kind",
    "Lease",
    "LeaseSpec",
    "Node",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "Pod",
    "PodSpec",
    "PodStatus",
    "Pool",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
    "SchedulingGroup",
    "Value",
    "decode",
    "encode",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What every API type here is: immutable, keyword-only, absent members left out of JSON."""


class OwnerReference(Value, frozen=True, kw_only=True):
    """``metadata.ownerReferences[]``."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class ObjectMeta(Value, frozen=True, kw_only=True):
    """``metadata``, the parts a driver uses."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class DeviceAttribute(Value, frozen=True, kw_only=True):
    """One attribute value: exactly one member is set (``devices[].attributes``)."""

    boolean: bool | None = msgspec.field(name="bool", default=None)
    integer: int | None = msgspec.field(name="int", default=None)
    string: str | None = None
    version: str | None = None
    booleans: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    integers: tuple[int, ...] | None = msgspec.field(name="ints", default=None)
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class DeviceCapacity(Value, frozen=True, kw_only=True):
    """``devices[].capacity``: the total amount; allocations do not reduce it."""

    value: Quantity


class Counter(Value, frozen=True, kw_only=True):
    """An amount of one counter."""

    value: Quantity


class CounterSet(Value, frozen=True, kw_only=True):
    """``sharedCounters[]``: counters that several devices of the pool draw from."""

    name: str
    counters: dict[str, Counter]


class CounterConsumption(Value, frozen=True, kw_only=True):
    """``devices[].consumesCounters[]``: what a device takes from one counter set."""

    counter_set: str
    counters: dict[str, Counter]
    compatibility_groups: tuple[str, ...] | None = None


class DeviceTaint(Value, frozen=True, kw_only=True):
    """``devices[].taints[]``. Effects: None, NoSchedule, NoExecute. ``time_added`` is whole seconds, RFC 3339."""

    key: str
    value: str | None = None
    effect: str
    time_added: str | None = None


class Device(Value, frozen=True, kw_only=True):
    """``devices[]`` of a slice."""

    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[CounterConsumption, ...] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver wants to publish under one pool name, before it is split into slices. The order is preference."""

    name: str
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterSet, ...] = ()


class ResourcePool(Value, frozen=True, kw_only=True):
    """``spec.pool``: name, generation and the number of slices at that generation."""

    name: str
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a ResourceSlice: one of node name and all nodes; devices or counters, never both."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None


class ResourceSlice(Value, frozen=True, kw_only=True):
    """A part of a pool of devices, published by a driver."""

    api_version: str = msgspec.field(default_factory=lambda: "resource.k8s.io/v1")
    kind: str = msgspec.field(default_factory=lambda: "ResourceSlice")
    metadata: ObjectMeta
    spec: ResourceSliceSpec


class DeviceTaintSelector(Value, frozen=True, kw_only=True):
    """``spec.deviceSelector`` of a rule: all given members must match; none given matches every device there is."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a rule. No selector matches no device."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(Value, frozen=True, kw_only=True):
    """A taint on devices that is not their driver's: an administrator's, or a controller's (KEP-5055)."""

    api_version: str = msgspec.field(default_factory=lambda: "resource.k8s.io/v1")
    kind: str = msgspec.field(default_factory=lambda: "DeviceTaintRule")
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec


class SchedulingGroup(Value, frozen=True, kw_only=True):
    """``spec.schedulingGroup`` of a Pod."""

    pod_group_name: str | None = None


class PodSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a Pod, as far as it is read here."""

    node_name: str | None = None
    scheduling_group: SchedulingGroup | None = None


class PodStatus(Value, frozen=True, kw_only=True):
    """``status`` of a Pod, as far as it is read here."""

    phase: str | None = None


class Pod(Value, frozen=True, kw_only=True):
    """A Pod, as far as it is read here."""

    api_version: str = msgspec.field(default_factory=lambda: "v1")
    kind: str = msgspec.field(default_factory=lambda: "Pod")
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None


class ConfigMap(Value, frozen=True, kw_only=True):
    """A ConfigMap with text."""

    api_version: str = msgspec.field(default_factory=lambda: "v1")
    kind: str = msgspec.field(default_factory=lambda: "ConfigMap")
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Node(Value, frozen=True, kw_only=True):
    """A Node: a driver needs its UID for owner references, and its labels."""

    api_version: str = msgspec.field(default_factory=lambda: "v1")
    kind: str = msgspec.field(default_factory=lambda: "Node")
    metadata: ObjectMeta


class ObjectReference(Value, frozen=True, kw_only=True):
    """What an Event is about."""

    api_version: str | None = None
    kind: str
    name: str
    namespace: str | None = None
    uid: str | None = None


class Event(Value, frozen=True, kw_only=True):
    """An ``events.k8s.io/v1`` Event. ``type`` is Normal or Warning; ``note`` is for people, at most 1 kB."""

    api_version: str = msgspec.field(default_factory=lambda: "events.k8s.io/v1")
    kind: str = msgspec.field(default_factory=lambda: "Event")
    metadata: ObjectMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    type: str
    note: str
    regarding: ObjectReference


class LeaseSpec(Value, frozen=True, kw_only=True):
    """``spec`` of a Lease. Times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Value, frozen=True, kw_only=True):
    """A ``coordination.k8s.io/v1`` Lease."""

    api_version: str = msgspec.field(default_factory=lambda: "coordination.k8s.io/v1")
    kind: str = msgspec.field(default_factory=lambda: "Lease")
    metadata: ObjectMeta
    spec: LeaseSpec


class Kind(msgspec.Struct, Generic[T_co], frozen=True):
    """One kind of API object: where it lives and how it is decoded."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    type: type[T_co]

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, ResourceSlice)  # noqa: FBT003 - the field order of Kind
NODE = Kind("", "v1", "nodes", "Node", False, Node)  # noqa: FBT003 - the field order of Kind
POD = Kind("", "v1", "pods", "Pod", True, Pod)  # noqa: FBT003 - the field order of Kind
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap", True, ConfigMap)  # noqa: FBT003 - the field order of Kind
DEVICE_TAINT_RULES = tuple(
    Kind("resource.k8s.io", version, "devicetaintrules", "DeviceTaintRule", False, DeviceTaintRule)  # noqa: FBT003 - the field order of Kind
    for version in ("v1", "v1beta2", "v1alpha3")
)
"""The kind in every version that has had it, the newest first; the fields are the same in all of them."""
DEVICE_TAINT_RULE = DEVICE_TAINT_RULES[0]
EVENT = Kind("events.k8s.io", "v1", "events", "Event", True, Event)  # noqa: FBT003 - the field order of Kind
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)  # noqa: FBT003 - the field order of Kind


def encode(value: object) -> bytes:
    """Return the JSON of any value of this module, or of plain lists and mappings of such."""
    return msgspec.json.encode(value, enc_hook=_to_json)


def decode(data: bytes | msgspec.Raw, into: type[T]) -> T:
    """Read JSON into ``into``; unknown members are ignored. Raises ``msgspec.ValidationError`` when it does not fit."""
    return msgspec.json.decode(data, type=into, dec_hook=_from_json)


def _to_json(value: object) -> object:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form here")


def _from_json(into: type, value: Any) -> object:  # noqa: ANN401 - msgspec's hook signature
    if into is Quantity:
        return _quantity(str(value))
    raise NotImplementedError(f"{into.__name__} cannot be read from JSON here")


@functools.lru_cache(maxsize=1024)
def _quantity(text: str) -> Quantity:
    """Return the amount; the few that a cluster has are parsed once and shared by all objects."""
    return Quantity(text)
