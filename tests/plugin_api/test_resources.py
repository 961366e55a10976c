"""The API's objects: field names as in the API, absent members left out, unknown ones ignored."""

import json

import msgspec
import pytest

from dra_plugin.quantity import Quantity
from dra_plugin.resources import (
    EVENT,
    LEASE,
    NODE,
    RESOURCE_SLICE,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    decode,
    encode,
)

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"generateName": "00000-", "finalizers": ["f"], "ownerReferences": []},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-a",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "a": {"bool": True},
                    "b": {"int": 5},
                    "c": {"string": "x"},
                    "d": {"version": "1.2.3"},
                    "e": {"ints": [1, 2]},
                },
                "capacity": {"memory": {"value": "80Gi"}},
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
                "bindsToNode": True,
                "allowMultipleAllocations": False,
            }
        ],
    },
}


def test_a_slice_reads_and_writes_the_same_json() -> None:
    """Nothing is lost or renamed on the way in and out."""
    assert json.loads(encode(decode(json.dumps(SLICE).encode(), ResourceSlice))) == SLICE


def test_absent_members_are_left_out_but_not_the_type() -> None:
    """The JSON has apiVersion and kind, and no null."""
    pool = ResourcePool(name="p", generation=0, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="d", pool=pool, node_name="n")
    plain = json.loads(encode(ResourceSlice(metadata=ObjectMeta(name="x"), spec=spec)))
    assert plain == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "x"},
        "spec": {"driver": "d", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}, "nodeName": "n"},
    }


def test_unknown_members_and_nulls_are_tolerated() -> None:
    """A newer server may send more, and null for an absent list."""
    got = decode(b'{"name": "gpu-0", "news": 1, "taints": null, "attributes": null}', Device)
    assert got == Device(name="gpu-0")


def test_what_does_not_fit_is_refused() -> None:
    """A member of another type is an error that names its place."""
    with pytest.raises(msgspec.ValidationError, match=r"\$\.name"):
        decode(b'{"name": 1}', Device)
    with pytest.raises((msgspec.ValidationError, ValueError), match="not a quantity"):
        decode(b'{"value": "much"}', DeviceCapacity)


def test_devices_compare_by_content() -> None:
    """Equal devices are equal, quantities by value; one odd attribute makes them differ."""
    one = Device(
        name="a", capacity={"m": DeviceCapacity(value=Quantity("1Ki"))}, taints=(DeviceTaint(key="k", effect="None"),)
    )
    other = Device(name="a", capacity={"m": DeviceCapacity(value=Quantity(1024))}, taints=one.taints)
    assert one == other
    assert one != Device(
        name="a", capacity=one.capacity, taints=one.taints, attributes={"x": DeviceAttribute(integer=1)}
    )


def test_kinds_know_where_they_live() -> None:
    """Group and version are joined as in ``apiVersion``; the core group has none."""
    assert [kind.api_version for kind in (RESOURCE_SLICE, NODE, EVENT, LEASE)] == [
        "resource.k8s.io/v1",
        "v1",
        "events.k8s.io/v1",
        "coordination.k8s.io/v1",
    ]
    assert [kind.namespaced for kind in (RESOURCE_SLICE, NODE, EVENT, LEASE)] == [False, False, True, True]
