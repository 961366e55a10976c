"""The contract of the Cluster port, held against FakeCluster in process, FakeCluster over HTTP, and the real 1.37."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from dra_plugin.claims import RESOURCE_CLAIM, ResourceClaim
from dra_plugin.cluster import EVERYTHING, Change, Cluster, Selector
from dra_plugin.errors import ClusterError, Conflict, Rejected
from dra_plugin.quantity import Quantity
from dra_plugin.resources import (
    EVENT,
    LEASE,
    RESOURCE_SLICE,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    Event,
    Kind,
    Lease,
    LeaseSpec,
    ObjectMeta,
    ObjectReference,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    Value,
)

NAMESPACE = "default"
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return f"c{uuid.uuid4().hex[:10]}"


@pytest.fixture(autouse=True)
async def tidy(cluster: Cluster, unique: str) -> AsyncIterator[None]:
    """Delete the slices and claims of this test from whatever cluster it ran on."""
    yield
    for found in (await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": driver_of(unique)}))).items:
        await cluster.delete(RESOURCE_SLICE, found)
    claim = await cluster.get(RESOURCE_CLAIM, unique, NAMESPACE)
    if claim is not None:
        await cluster.delete(RESOURCE_CLAIM, claim)


def driver_of(unique: str) -> str:
    return f"{unique}.example.com"


def changed(obj: ResourceSlice, **spec: object) -> ResourceSlice:
    """Return the slice with members of its spec replaced."""
    members = {name: getattr(obj.spec, name) for name in obj.spec.__struct_fields__}
    return ResourceSlice(metadata=obj.metadata, spec=ResourceSliceSpec(**{**members, **spec}))


def relabelled(obj: ResourceSlice, **meta: object) -> ResourceSlice:
    """Return the slice with members of its metadata replaced."""
    members = {name: getattr(obj.metadata, name) for name in obj.metadata.__struct_fields__}
    return ResourceSlice(metadata=ObjectMeta(**{**members, **meta}), spec=obj.spec)


def a_slice(unique: str, *devices: Device, name: str | None = None, node: str | None = "node-a") -> ResourceSlice:
    meta = ObjectMeta(generate_name=f"{unique}-") if name is None else ObjectMeta(name=name)
    pool = ResourcePool(name=unique, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=driver_of(unique), node_name=node, pool=pool, devices=devices or None)
    return ResourceSlice(metadata=meta, spec=spec)


def devices(count: int, **more: object) -> tuple[Device, ...]:
    """Return plain devices; the first one has the members ``more``."""
    first: dict[str, Any] = {"name": "d-0", **more}
    return (Device(**first), *(Device(name=f"d-{index}") for index in range(1, count)))


# ---------------------------------------------------------------------------------------------------- create, get


async def test_get_of_what_is_missing(cluster: Cluster, unique: str) -> None:
    """A missing object is None, not an error."""
    assert await cluster.get(RESOURCE_SLICE, unique) is None
    assert await cluster.get(RESOURCE_CLAIM, unique, NAMESPACE) is None


async def test_get_without_namespace(cluster: Cluster, unique: str) -> None:
    """An object of a kind with namespaces cannot be asked for without one."""
    with pytest.raises(Rejected):
        await cluster.get(RESOURCE_CLAIM, unique)


async def test_create_generates_the_name(cluster: Cluster, unique: str) -> None:
    """The server makes name, UID, version and creation time, and get returns just that object."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, *devices(1)))
    meta = made.metadata
    assert meta.name is not None
    assert meta.name.startswith(f"{unique}-")
    assert len(meta.name) == len(unique) + 1 + 5
    assert meta.uid
    assert meta.resource_version
    assert meta.generation == 1
    assert meta.creation_timestamp is not None
    assert meta.creation_timestamp.endswith("Z")
    assert "." not in meta.creation_timestamp
    assert await cluster.get(RESOURCE_SLICE, meta.name) == made


async def test_generated_names_differ(cluster: Cluster, unique: str) -> None:
    """The same generateName twice gives two objects."""
    first = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    second = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    assert first.metadata.name != second.metadata.name


async def test_create_of_a_taken_name(cluster: Cluster, unique: str) -> None:
    """A name can be used once."""
    await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))
    with pytest.raises(Conflict, match="already exists"):
        await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))


async def test_create_with_a_version(cluster: Cluster, unique: str) -> None:
    """A new object has no resource version yet."""
    stale = relabelled(a_slice(unique), resource_version="12")
    with pytest.raises(ClusterError, match="resourceVersion should not be set"):
        await cluster.create(RESOURCE_SLICE, stale)


async def test_create_without_a_name(cluster: Cluster, unique: str) -> None:
    """Name or generateName is required."""
    with pytest.raises(Rejected) as caught:
        await cluster.create(RESOURCE_SLICE, relabelled(a_slice(unique), generate_name=None))
    assert caught.value.code == 422
    assert "metadata.name" in caught.value.fields


@pytest.mark.parametrize(("member", "value"), [("name", "Upper"), ("generate_name", "ends-with-a-dot.")])
async def test_create_with_a_bad_name(cluster: Cluster, unique: str, member: str, value: str) -> None:
    """Names, and what they are generated from, are DNS subdomains."""
    with pytest.raises(Rejected) as caught:
        await cluster.create(RESOURCE_SLICE, relabelled(a_slice(unique), **{member: value}))
    assert caught.value.code == 422
    assert f"metadata.{'generateName' if member == 'generate_name' else member}" in caught.value.fields


async def test_empty_lists_equal_absent_ones(cluster: Cluster, unique: str) -> None:
    """Whether a list is sent empty or not at all, it comes back as nothing."""
    empty = changed(a_slice(unique), devices=())
    made = await cluster.create(RESOURCE_SLICE, empty)
    assert not made.spec.devices
    stored = await cluster.get(RESOURCE_SLICE, made.metadata.name or "")
    assert stored is not None
    assert not stored.spec.devices


async def test_quantities_keep_their_value(cluster: Cluster, unique: str) -> None:
    """The server may write an amount differently; it stays the same amount."""
    device = Device(name="d", capacity={"memory": DeviceCapacity(value=Quantity("81920Mi"))})
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, device))
    assert made.spec.devices == (device,)


# -------------------------------------------------------------------------------------------------------- replace


async def test_replace(cluster: Cluster, unique: str) -> None:
    """A PUT with the stored version stores, raises version and generation, and keeps identity."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(2)))
    assert new.spec.devices == devices(2)
    assert int(new.metadata.resource_version or 0) > int(made.metadata.resource_version or 0)
    assert new.metadata.generation == 2
    assert (new.metadata.uid, new.metadata.creation_timestamp) == (made.metadata.uid, made.metadata.creation_timestamp)


async def test_replace_by_the_same(cluster: Cluster, unique: str) -> None:
    """A PUT that changes nothing writes nothing."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, *devices(1)))
    assert await cluster.replace(RESOURCE_SLICE, made) == made


async def test_replace_with_a_stale_version(cluster: Cluster, unique: str) -> None:
    """Who read before the last write must read again."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1)))
    with pytest.raises(Conflict):
        await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(2)))
    assert await cluster.get(RESOURCE_SLICE, made.metadata.name or "") == new


async def test_replace_without_a_version(cluster: Cluster, unique: str) -> None:
    """A PUT without a version would overwrite what nobody read; the port refuses it."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    with pytest.raises(Conflict):
        await cluster.replace(RESOURCE_SLICE, relabelled(made, resource_version=None))


async def test_replace_of_what_is_gone(cluster: Cluster, unique: str) -> None:
    """A PUT creates nothing."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    await cluster.delete(RESOURCE_SLICE, made)
    with pytest.raises(ClusterError) as caught:
        await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1)))
    assert isinstance(caught.value, Rejected | Conflict)
    assert await cluster.get(RESOURCE_SLICE, made.metadata.name or "") is None


# --------------------------------------------------------------------------------------------------------- delete


async def test_delete(cluster: Cluster, unique: str) -> None:
    """The first delete tells that it did it, the second that there was nothing."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    assert await cluster.delete(RESOURCE_SLICE, made) is True
    assert await cluster.get(RESOURCE_SLICE, made.metadata.name or "") is None
    assert await cluster.delete(RESOURCE_SLICE, made) is False


async def test_delete_of_what_was_replaced(cluster: Cluster, unique: str) -> None:
    """Another object of the same name stays."""
    first = await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))
    await cluster.delete(RESOURCE_SLICE, first)
    second = await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))
    assert await cluster.delete(RESOURCE_SLICE, first) is False
    assert await cluster.get(RESOURCE_SLICE, unique) == second


async def test_delete_with_a_stale_version(cluster: Cluster, unique: str) -> None:
    """An object that changed since it was read is not deleted, unless the version is left out."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1)))
    with pytest.raises(Conflict):
        await cluster.delete(RESOURCE_SLICE, made)
    assert await cluster.get(RESOURCE_SLICE, unique) == new
    assert await cluster.delete(RESOURCE_SLICE, relabelled(made, resource_version=None)) is True


# ------------------------------------------------------------------------------------------------ list, selectors


@pytest.mark.parametrize("label", ["spec.driver", "spec.nodeName", "spec.pool.name", "metadata.name"])
async def test_field_selectors(cluster: Cluster, unique: str, label: str) -> None:
    """Slices are selected by driver, node, pool and name; all equalities must hold."""
    other = f"{unique}x"
    ours = await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique, node=unique))
    theirs = await cluster.create(RESOURCE_SLICE, a_slice(other, name=other, node=other))
    values = {"spec.driver": driver_of(unique), "spec.nodeName": unique}
    try:
        found = await cluster.list(RESOURCE_SLICE, Selector(fields={label: values.get(label, unique)}))
        opposite = {"spec.driver": driver_of(other)} if label == "metadata.name" else {"metadata.name": other}
        none = await cluster.list(RESOURCE_SLICE, Selector(fields={label: values.get(label, unique), **opposite}))
    finally:
        await cluster.delete(RESOURCE_SLICE, theirs)
    assert found.items == (ours,)
    assert none.items == ()


async def test_an_unknown_field_selector(cluster: Cluster) -> None:
    """What the server cannot select by is refused, not ignored."""
    with pytest.raises(Rejected) as caught:
        await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.nonsense": "x"}))
    assert caught.value.code == 400


async def test_label_selectors(cluster: Cluster, unique: str) -> None:
    """Labels select too, together with fields."""
    ours = relabelled(a_slice(unique), labels={"app": unique})
    made = await cluster.create(RESOURCE_SLICE, ours)
    await cluster.create(RESOURCE_SLICE, a_slice(unique))
    selector = Selector(labels={"app": unique}, fields={"spec.driver": driver_of(unique)})
    assert (await cluster.list(RESOURCE_SLICE, selector)).items == (made,)


async def test_listing_is_ordered_by_name(cluster: Cluster, unique: str) -> None:
    """Names decide the order, whatever the order of creation."""
    for name in ("b", "a", "c"):
        await cluster.create(RESOURCE_SLICE, a_slice(unique, name=f"{unique}-{name}"))
    found = await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": driver_of(unique)}))
    assert [item.metadata.name for item in found.items] == [f"{unique}-{name}" for name in "abc"]


async def test_namespaces_part_objects(cluster: Cluster, unique: str) -> None:
    """A list of one namespace leaves out the others."""
    await cluster.apply(RESOURCE_CLAIM, claim_fields(unique), "contract")
    ours = await cluster.list(RESOURCE_CLAIM, Selector(namespace=NAMESPACE, fields={"metadata.name": unique}))
    others = await cluster.list(RESOURCE_CLAIM, Selector(namespace="kube-system", fields={"metadata.name": unique}))
    every = await cluster.list(RESOURCE_CLAIM, Selector(fields={"metadata.name": unique}))
    assert [len(found.items) for found in (ours, others, every)] == [1, 0, 1]


# ---------------------------------------------------------------------------------------------------------- watch


async def collect(cluster: Cluster, since: str, selector: Selector, count: int) -> list[Change[ResourceSlice]]:
    """Return the first changes that are no bookmarks."""
    found = []
    async with aclosing(cluster.watch(RESOURCE_SLICE, since, selector)) as changes:
        async for change in changes:
            if change.type != "BOOKMARK":
                found.append(change)
            if len(found) == count:
                break
    return found


async def next_object(changes: AsyncIterator[Change[ResourceSlice]]) -> ResourceSlice | None:
    """Return what the next change is about; bookmarks come when they like."""
    async for change in changes:
        if change.type != "BOOKMARK":
            return change.object
    return None


async def test_watch_tells_each_change_in_order(cluster: Cluster, unique: str) -> None:
    """Everything after the list, once, in order, with rising versions; a deletion has its own version."""
    selector = Selector(fields={"spec.driver": driver_of(unique)})
    since = (await cluster.list(RESOURCE_SLICE, selector)).resource_version
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1)))
    await cluster.delete(RESOURCE_SLICE, new)
    found = await collect(cluster, since, selector, 3)
    assert [change.type for change in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert [change.object for change in found[:2]] == [made, new]
    gone = found[2].object
    assert gone is not None
    assert (gone.metadata.uid, gone.spec) == (new.metadata.uid, new.spec)
    versions = [int(change.resource_version) for change in found]
    assert versions == sorted(set(versions))
    assert versions[0] > int(since)
    assert gone.metadata.resource_version == found[2].resource_version


async def test_watch_from_the_middle(cluster: Cluster, unique: str) -> None:
    """A watch goes on from the version that it is given."""
    selector = Selector(fields={"spec.driver": driver_of(unique)})
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1)))
    found = await collect(cluster, made.metadata.resource_version or "", selector, 1)
    assert [(change.type, change.object) for change in found] == [("MODIFIED", new)]


async def test_watch_hears_what_comes_later(cluster: Cluster, unique: str) -> None:
    """The first change says that the watch stands; what is written then arrives."""
    selector = Selector(fields={"spec.driver": driver_of(unique)})
    since = (await cluster.list(RESOURCE_SLICE, selector)).resource_version
    async with aclosing(cluster.watch(RESOURCE_SLICE, since, selector)) as changes:
        assert await anext(changes) == Change("BOOKMARK", None, since)
        made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
        assert await next_object(changes) == made


async def test_watch_tells_what_leaves_and_enters_the_selector(cluster: Cluster, unique: str) -> None:
    """An object that stops matching is DELETED for this watch, one that starts to match is ADDED."""
    selector = Selector(labels={"app": unique})
    since = (await cluster.list(RESOURCE_SLICE, selector)).resource_version
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    inside = await cluster.replace(RESOURCE_SLICE, relabelled(made, labels={"app": unique}))
    outside = await cluster.replace(RESOURCE_SLICE, relabelled(inside, labels=None))
    found = await collect(cluster, since, selector, 2)
    assert [change.type for change in found] == ["ADDED", "DELETED"]
    assert found[1].resource_version == outside.metadata.resource_version


async def test_bookmarks_and_the_end(cluster: Cluster, unique: str) -> None:
    """A watch that nothing concerns is kept current by bookmarks, and ends by itself.

    The last one comes two seconds before the end: when that is sooner than what is written here, there is another try.
    """
    since = (await cluster.list(RESOURCE_SLICE, EVERYTHING)).resource_version
    nothing = Selector(fields={"spec.driver": "nobody.example.com"})
    told, foreign = -1, 0
    while told < foreign:
        async with aclosing(cluster.watch(RESOURCE_SLICE, since, nothing)) as changes:
            found = [await anext(changes)]
            made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
            found += [change async for change in changes]
        assert {change.type for change in found} == {"BOOKMARK"}
        told, foreign = int(found[-1].resource_version), int(made.metadata.resource_version or 0)


async def test_two_watches_see_the_same(cluster: Cluster, unique: str) -> None:
    """Watches do not take changes from each other."""
    selector = Selector(fields={"spec.driver": driver_of(unique)})
    since = (await cluster.list(RESOURCE_SLICE, selector)).resource_version
    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(collect(cluster, since, selector, 1)) for _ in range(2)]
        made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    assert [watch.result()[0].object for watch in watches] == [made, made]


# --------------------------------------------------------------------------------------------------------- slices


@pytest.mark.parametrize(("member", "value"), [("node_name", "node-b"), ("driver", "other.example.com")])
async def test_immutable_fields(cluster: Cluster, unique: str, member: str, value: str) -> None:
    """Node and driver of a slice are for ever; the refusal names the field."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique))
    with pytest.raises(Rejected) as caught:
        await cluster.replace(RESOURCE_SLICE, changed(made, **{member: value}))
    assert caught.value.code == 422
    assert f"spec.{'nodeName' if member == 'node_name' else member}" in caught.value.fields


TAINT = DeviceTaint(key="example.com/broken", value="yes", effect="NoSchedule")
LISTED = {"example.com/a": DeviceAttribute(string="x" * 65)}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"devices": devices(129)}, "spec.devices"),
        ({"devices": devices(65, taints=(TAINT,))}, "spec.devices"),
        ({"devices": devices(1) * 2}, "spec.devices[1]"),
        (
            {"devices": devices(1, taints=(DeviceTaint(key="a", effect="Nonsense"),))},
            "spec.devices[0].taints[0].effect",
        ),
        ({"devices": devices(1, attributes=LISTED)}, "spec.devices[0].attributes[example.com/a].string"),
        ({"devices": devices(1, attributes={"a": DeviceAttribute()})}, "spec.devices[0].attributes[a]"),
        ({"devices": (Device(name="Upper"),)}, "spec.devices[0].name"),
        ({"node_name": None}, "spec"),
        ({"all_nodes": True}, "spec"),
    ],
)
async def test_limits(cluster: Cluster, unique: str, spec: dict[str, Any], field: str) -> None:
    """What breaks a limit of slices is refused, and the refusal names the field."""
    with pytest.raises(Rejected) as caught:
        await cluster.create(RESOURCE_SLICE, changed(a_slice(unique), **spec))
    assert caught.value.code == 422
    assert any(name.startswith(field) for name in caught.value.fields), caught.value.fields


async def test_128_plain_devices(cluster: Cluster, unique: str) -> None:
    """Without taints, counters and lists a slice holds 128 devices; with a taint 64."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, *devices(128)))
    assert len(made.spec.devices or ()) == 128
    tainted = await cluster.create(RESOURCE_SLICE, a_slice(unique, *devices(64, taints=(TAINT,))))
    assert len(tainted.spec.devices or ()) == 64


async def test_counters_and_devices_exclude_each_other(cluster: Cluster, unique: str) -> None:
    """A slice has counter sets or devices; even an empty list of devices beside counters is refused."""
    sets = (CounterSet(name="card", counters={"mem": Counter(value=Quantity("80Gi"))}),)
    with pytest.raises(Rejected):
        await cluster.create(RESOURCE_SLICE, changed(a_slice(unique), shared_counters=sets, devices=devices(1)))
    with pytest.raises(Rejected):
        await cluster.create(RESOURCE_SLICE, changed(a_slice(unique), shared_counters=sets, devices=()))
    made = await cluster.create(RESOURCE_SLICE, changed(a_slice(unique), shared_counters=sets))
    assert made.spec.shared_counters == sets


async def test_taints_are_stamped_once(cluster: Cluster, unique: str) -> None:
    """The server writes whole seconds where a taint has no time, and keeps the time that it is given."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, *devices(1, taints=(TAINT,))))
    stamp = taint_of(made).time_added
    assert stamp is not None
    assert len(stamp) == len("2026-01-01T00:00:00Z")
    more = DeviceTaint(key="example.com/more", effect="NoExecute", time_added="2026-01-02T03:04:05Z")
    new = await cluster.replace(RESOURCE_SLICE, changed(made, devices=devices(1, taints=(taint_of(made), more))))
    assert new.spec.devices is not None
    assert new.spec.devices[0].taints == (taint_of(made), more)


def taint_of(obj: ResourceSlice) -> DeviceTaint:
    assert obj.spec.devices is not None
    taints = obj.spec.devices[0].taints
    assert taints is not None
    return taints[0]


# --------------------------------------------------------------------------------------------------------- claims


class DeviceStatus(Value, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    data: dict[str, Any] | None = None


class Status(Value, frozen=True, kw_only=True):
    devices: tuple[DeviceStatus, ...] | None = None


class ClaimWithDevices(Value, frozen=True, kw_only=True):
    """A reader's own, narrower view of a claim."""

    metadata: ObjectMeta
    status: Status | None = None


CLAIM_STATUS = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ClaimWithDevices)


def claim_fields(name: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"metadata": meta, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def entry(unique: str, device: str, **data: object) -> dict[str, Any]:
    return {"driver": driver_of(unique), "pool": "p", "device": device, **({"data": data} if data else {})}


async def allocated(cluster: Cluster, unique: str) -> ResourceClaim:
    """Make a claim that holds the devices a and b of our driver, as the scheduler would."""
    await cluster.apply(RESOURCE_CLAIM, claim_fields(unique), "user")
    results = [{"request": "r", **entry(unique, device)} for device in "ab"]
    status = {"allocation": {"devices": {"results": results}}}
    fields = {"metadata": {"name": unique, "namespace": NAMESPACE}, "status": status}
    return await cluster.apply(RESOURCE_CLAIM, fields, "scheduler", "status")


async def report(cluster: Cluster, unique: str, manager: str, *entries: dict[str, Any]) -> list[tuple[str, Any]]:
    """Apply status entries as ``manager``; return device and data of all that are stored then."""
    fields = {"metadata": {"name": unique, "namespace": NAMESPACE}, "status": {"devices": list(entries)}}
    stored = await cluster.apply(CLAIM_STATUS, fields, manager, "status")
    found = (stored.status and stored.status.devices) or ()
    return sorted((item.device, item.data) for item in found)


async def test_allocation_is_readable(cluster: Cluster, unique: str) -> None:
    """What the scheduler writes to the status is what a driver gets."""
    made = await allocated(cluster, unique)
    claim = await cluster.get(RESOURCE_CLAIM, unique, NAMESPACE)
    assert claim == made
    assert claim is not None
    assert claim.status is not None
    assert claim.status.allocation is not None
    assert [result.device for result in claim.status.allocation.devices.results or ()] == ["a", "b"]


async def test_two_managers_keep_each_others_entries(cluster: Cluster, unique: str) -> None:
    """An apply changes and removes only what its manager owns."""
    await allocated(cluster, unique)
    assert await report(cluster, unique, "one", entry(unique, "a", x=1)) == [("a", {"x": 1})]
    assert await report(cluster, unique, "two", entry(unique, "b", y=1)) == [("a", {"x": 1}), ("b", {"y": 1})]
    assert await report(cluster, unique, "one", entry(unique, "a", x=2)) == [("a", {"x": 2}), ("b", {"y": 1})]
    assert await report(cluster, unique, "one") == [("b", {"y": 1})]
    assert await report(cluster, unique, "two") == []


async def test_an_apply_that_changes_nothing(cluster: Cluster, unique: str) -> None:
    """Applying the same again writes nothing."""
    await allocated(cluster, unique)
    fields = {"metadata": {"name": unique, "namespace": NAMESPACE}, "status": {"devices": [entry(unique, "a", x=1)]}}
    first = await cluster.apply(RESOURCE_CLAIM, fields, "one", "status")
    again = await cluster.apply(RESOURCE_CLAIM, fields, "one", "status")
    assert again.metadata.resource_version == first.metadata.resource_version


async def test_status_of_a_foreign_device(cluster: Cluster, unique: str) -> None:
    """Only allocated devices can have a status."""
    await allocated(cluster, unique)
    with pytest.raises(Rejected) as caught:
        await report(cluster, unique, "one", entry(unique, "c"))
    assert caught.value.code == 422
    assert any(name.startswith("status.devices") for name in caught.value.fields)


async def test_status_of_a_missing_claim(cluster: Cluster, unique: str) -> None:
    """Applying a status creates no object."""
    with pytest.raises(Rejected) as caught:
        await report(cluster, unique, "one", entry(unique, "a"))
    assert caught.value.code == 404


async def test_apply_leaves_the_status_to_its_subresource(cluster: Cluster, unique: str) -> None:
    """A status that is applied with the object itself is not stored."""
    fields = {**claim_fields(unique), "status": {"devices": [entry(unique, "a")]}}
    made = await cluster.apply(CLAIM_STATUS, fields, "user")
    assert not (made.status and made.status.devices)


async def test_an_apply_creates_in_one_write(cluster: Cluster, unique: str) -> None:
    """What is missing is created by the apply itself: a watch sees one ADDED."""
    since = (await cluster.list(RESOURCE_SLICE)).resource_version
    wanted = a_slice(unique, *devices(1), name=unique)
    fields = {"metadata": {"name": unique, "labels": {"a": "b"}}, "spec": wanted.spec}
    made = await cluster.apply(RESOURCE_SLICE, fields, "one")
    await cluster.delete(RESOURCE_SLICE, made)
    found = await collect(cluster, since, Selector(fields={"metadata.name": unique}), 2)
    assert [(change.type, change.object) for change in found[:1]] == [("ADDED", made)]
    assert found[1].type == "DELETED"
    assert (made.metadata.labels, made.spec) == ({"a": "b"}, wanted.spec)


async def test_labels_of_two_managers(cluster: Cluster, unique: str) -> None:
    """Members of plain maps have owners too."""
    await cluster.apply(RESOURCE_CLAIM, claim_fields(unique), "user")
    for manager, labels in (("one", {"a": "1"}), ("two", {"b": "2"}), ("one", {"c": "3"})):
        meta = {"name": unique, "namespace": NAMESPACE, "labels": labels}
        await cluster.apply(RESOURCE_CLAIM, {"metadata": meta}, manager)
    claim = await cluster.get(RESOURCE_CLAIM, unique, NAMESPACE)
    assert claim is not None
    assert claim.metadata.labels == {"b": "2", "c": "3"}


async def test_the_spec_of_a_claim_is_immutable(cluster: Cluster, unique: str) -> None:
    """What a claim asks for cannot be changed."""
    await cluster.apply(RESOURCE_CLAIM, claim_fields(unique), "user")
    fields = claim_fields(unique)
    fields["spec"]["devices"]["requests"][0]["exactly"]["count"] = 3
    with pytest.raises(Rejected) as caught:
        await cluster.apply(RESOURCE_CLAIM, fields, "user")
    assert any(name.startswith("spec") for name in caught.value.fields)


# -------------------------------------------------------------------------------------------------- other kinds


async def test_events(cluster: Cluster, unique: str) -> None:
    """An Event is created as it is sent."""
    event = Event(
        metadata=ObjectMeta(generate_name=f"{unique}-", namespace=NAMESPACE),
        event_time="2026-11-30T12:00:00.123456Z",
        reporting_controller="example.com/contract",
        reporting_instance="test",
        action="Test",
        reason="ContractTest",
        type="Normal",
        note="one line",
        regarding=ObjectReference(api_version="v1", kind="Node", name="node-a"),
    )
    made = await cluster.create(EVENT, event)
    assert (made.note, made.reason, made.regarding.name) == ("one line", "ContractTest", "node-a")
    assert await cluster.delete(EVENT, made) is True


async def test_leases(cluster: Cluster, unique: str) -> None:
    """A Lease is taken over by PUT, by one only."""
    spec = LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time="2026-11-30T12:00:00.123456Z")
    lease = await cluster.create(LEASE, Lease(metadata=ObjectMeta(name=unique, namespace=NAMESPACE), spec=spec))
    taken = Lease(metadata=lease.metadata, spec=LeaseSpec(holder_identity="b", lease_duration_seconds=15))
    assert (await cluster.replace(LEASE, taken)).spec.holder_identity == "b"
    with pytest.raises(Conflict):
        await cluster.replace(LEASE, taken)
    await cluster.delete(LEASE, Lease(metadata=ObjectMeta(name=unique, namespace=NAMESPACE), spec=spec))


@pytest.mark.parametrize(
    ("group", "version", "plural", "expected"),
    [
        ("resource.k8s.io", "v1", "resourceslices", True),
        ("", "v1", "nodes", True),
        ("resource.k8s.io", "v1", "resourcenonsenses", False),
        ("resource.k8s.io", "v9", "resourceslices", False),
        ("nonsense.example.com", "v1", "nonsenses", False),
    ],
)
async def test_served(cluster: Cluster, group: str, version: str, plural: str, expected: bool) -> None:
    """The server says which resources it has."""
    assert await cluster.served(Kind(group, version, plural, "X", False, ResourceSlice)) is expected


async def test_objects_of_an_unserved_kind(cluster: Cluster, unique: str) -> None:
    """An object of a kind that the server does not know is an error, not merely missing."""
    unknown = Kind("resource.k8s.io", "v1", "resourcenonsenses", "X", False, ResourceSlice)
    with pytest.raises(Rejected) as caught:
        await cluster.get(unknown, unique)
    assert caught.value.code == 404
