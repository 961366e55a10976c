"""Planning of slices: minimal, resumable, stable; property-tested against a server in a dictionary."""

import itertools
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_plugin.quantity import Quantity
from dra_plugin.resources import (
    Counter,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ObjectMeta,
    OwnerReference,
    Pool,
    ResourceSlice,
)
from dra_plugin.slices import Owner, Writes, dropped, plan
from dra_plugin.slices.compare import with_times

NODE = OwnerReference(api_version="v1", kind="Node", name="node-a", uid="uid-1", controller=True)
OWNER = Owner(driver="gpu.example.com", node_name="node-a", reference=NODE)


def device(number: int, *, taint: str | None = None, **attributes: str) -> Device:
    return Device(
        name=f"gpu-{number}",
        attributes={name: DeviceAttribute(string=text) for name, text in attributes.items()},
        capacity={"memory": DeviceCapacity(value=Quantity("80Gi"))},
        taints=(DeviceTaint(key="example.com/bad", value=taint, effect="NoSchedule"),) if taint else None,
    )


def pool_of(numbers: Iterable[int], *, sets: int = 0, taints: Iterable[int] = ()) -> Pool:
    tainted = set(taints)
    counters = tuple(CounterSet(name=f"set-{n}", counters={"c": Counter(value=Quantity(1))}) for n in range(sets))
    devices = tuple(device(n, taint="x" if n in tainted else None) for n in numbers)
    return Pool(name="node-a-gpu", devices=devices, counters=counters)


class Server:
    """Applies writes as the API server does, as many as it is allowed to."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.versions = itertools.count(1)

    @property
    def stored(self) -> tuple[ResourceSlice, ...]:
        return tuple(self.slices.values())

    def apply(self, writes: Writes, most: int = 1_000_000) -> None:
        steps = [(self.remove, each) for each in writes.delete]
        steps += [(self.put, each) for each in writes.update]
        steps += [(self.add, each) for each in writes.create]
        for step, each in steps[:most]:
            step(each)

    def remove(self, each: ResourceSlice) -> None:
        del self.slices[each.metadata.name or ""]

    def put(self, each: ResourceSlice) -> None:
        assert self.slices[each.metadata.name or ""].metadata.resource_version == each.metadata.resource_version
        self.slices[each.metadata.name or ""] = self.stamped(each)

    def add(self, each: ResourceSlice) -> None:
        version = next(self.versions)
        name = f"{each.metadata.generate_name}{version:05x}"
        self.slices[name] = self.stamped(replace(each, metadata=replace(each.metadata, name=name, uid=f"u{version}")))

    def stamped(self, each: ResourceSlice) -> ResourceSlice:
        assert len(each.spec.devices or ()) <= 64
        assert len(each.spec.shared_counters or ()) <= 8
        assert not (each.spec.devices and each.spec.shared_counters)
        time = f"2026-01-01T00:00:{next(self.versions) % 60:02}Z"
        devices = tuple(
            replace(d, taints=tuple(replace(t, time_added=t.time_added or time) for t in d.taints)) if d.taints else d
            for d in each.spec.devices or ()
        )
        metadata = replace(each.metadata, resource_version=str(next(self.versions)))
        return replace(each, metadata=metadata, spec=replace(each.spec, devices=devices or None))

    def sync(self, pool: Pool | None, owner: Owner = OWNER) -> Writes:
        writes = plan(pool, self.stored, owner)
        self.apply(writes)
        return writes

    def published(self) -> tuple[list[str], list[str]]:
        """What the scheduler sees: devices and counter sets of a complete pool, in order of the slices' names."""
        specs = [self.slices[name].spec for name in sorted(self.slices)]
        newest = max(spec.pool.generation for spec in specs)
        assert {spec.pool.generation for spec in specs} == {newest}
        assert {spec.pool.resource_slice_count for spec in specs} == {len(specs)}
        devices = [d.name for spec in specs for d in spec.devices or ()]
        return devices, [c.name for spec in specs for c in spec.shared_counters or ()]


def names(numbers: Iterable[int]) -> list[str]:
    return [f"gpu-{n}" for n in numbers]


@pytest.mark.parametrize(("count", "slices"), [(0, 1), (1, 1), (64, 1), (65, 2), (300, 5)])
def test_a_first_publication_creates_all_at_generation_one(count: int, slices: int) -> None:
    """Devices are split by 64 in their order; a pool without devices has one empty slice."""
    server = Server()
    writes = server.sync(pool_of(range(count)))
    assert (writes.generation, writes.slices, len(writes.create), len(writes)) == (1, slices, slices, slices)
    assert server.published() == (names(range(count)), [])


def test_the_order_is_in_the_names() -> None:
    """The name of each slice starts with its index in five hexadecimal digits, then driver and node."""
    created = plan(pool_of(range(70)), (), OWNER).create
    assert [each.metadata.generate_name for each in created] == [
        "00000-gpu.example.com-node-a-",
        "00001-gpu.example.com-node-a-",
    ]
    assert created[0].metadata.owner_references == (NODE,)
    assert (created[0].spec.node_name, created[0].spec.all_nodes) == ("node-a", None)


def test_a_long_node_name_still_gives_a_valid_prefix() -> None:
    """The server cuts generateName at 58 characters; the prefix is no longer, and ends in a dash."""
    owner = Owner(driver="gpu.example.com", node_name="ip-10-0-0-1." * 20 + "internal", reference=NODE)
    prefix = plan(pool_of([1]), (), owner).create[0].metadata.generate_name or ""
    assert len(prefix) <= 58
    assert prefix.startswith("00000-gpu.example.com-ip-10-0-0-1.")
    assert prefix.endswith("1-")


def test_counters_stand_in_front_in_slices_of_their_own() -> None:
    """Counter sets and devices never share a slice; eight sets go into one."""
    server = Server()
    writes = server.sync(pool_of(range(65), sets=9))
    assert [bool(each.spec.shared_counters) for each in writes.create] == [True, True, False, False]
    assert server.published() == (names(range(65)), [f"set-{n}" for n in range(9)])
    assert not server.sync(pool_of(range(65), sets=9))


def test_one_changed_device_is_one_update_at_the_same_generation() -> None:
    """A taint on one of 300 devices rewrites one slice and keeps the generation."""
    server = Server()
    server.sync(pool_of(range(300)))
    writes = server.sync(pool_of(range(300), taints=[77]))
    assert (len(writes.update), len(writes), writes.generation) == (1, 1, 1)


def test_two_changed_slices_rewrite_the_pool_at_the_next_generation() -> None:
    """A reader must not see one changed slice without the other."""
    server = Server()
    server.sync(pool_of(range(300)))
    writes = server.sync(pool_of(range(300), taints=[1, 77]))
    assert (len(writes.update), len(writes), writes.generation) == (5, 5, 2)
    server.published()


@pytest.mark.parametrize("gone", [0, 63, 64, 100, 129])
def test_hot_unplug_and_plug_are_one_write_each(gone: int) -> None:
    """A device that goes and comes back changes only its slice."""
    server = Server()
    server.sync(pool_of(range(130)))
    without = [n for n in range(130) if n != gone]
    assert (len(server.sync(pool_of(without))), server.published()[0]) == (1, names(without))
    writes = server.sync(pool_of(range(130)))
    assert (len(writes), writes.generation, server.published()[0]) == (1, 1, names(range(130)))


def test_an_unplugged_device_leaves_a_gap() -> None:
    """The slice that lost a device is not filled up from the next one: nothing follows the one write."""
    server = Server()
    server.sync(pool_of(range(128)))
    assert len(server.sync(pool_of(range(10, 128)))) == 1
    assert not plan(pool_of(range(10, 128)), server.stored, OWNER)
    writes = server.sync(pool_of(range(10, 128), taints=[100]))
    assert (len(writes), writes.generation) == (1, 1)


def test_new_devices_go_where_there_is_room() -> None:
    """Three devices added in front go into the last slice when only that has room: one write, and none after it."""
    server = Server()
    server.sync(pool_of(range(3, 70)))
    writes = server.sync(pool_of(range(70)))
    assert (len(writes), writes.generation) == (1, 1)
    assert sorted(server.published()[0]) == sorted(names(range(70)))
    assert not plan(pool_of(range(70)), server.stored, OWNER)


def test_a_new_order_over_slices_is_published() -> None:
    """When the wanted order changes beyond one slice, the pool is laid out anew."""
    server = Server()
    server.sync(pool_of(range(130)))
    server.sync(pool_of(reversed(range(130))))
    assert server.published()[0] == names(reversed(range(130)))


def test_fewer_slices_are_deleted_first() -> None:
    """A pool that shrinks to one slice deletes the others and changes what is left, at the same generation."""
    server = Server()
    server.sync(pool_of(range(130)))
    writes = plan(pool_of(range(64)), server.stored, OWNER)
    assert not writes.create
    server.apply(writes)
    assert not server.sync(pool_of(range(64)))


def test_a_pool_that_is_not_wanted_is_deleted() -> None:
    """None deletes every slice, with UID and resource version as preconditions."""
    server = Server()
    server.sync(pool_of(range(130)))
    writes = server.sync(None)
    assert len(writes.delete) == 3
    assert all(each.metadata.uid and each.metadata.resource_version for each in writes.delete)
    assert not plan(None, server.stored, OWNER)


@pytest.mark.parametrize("lost", [[0], [1], [1, 2], [0, 1, 2, 3]])
def test_deleted_slices_are_created_again_alone(lost: list[int]) -> None:
    """What others deleted comes back; the slices that are left are not written."""
    server = Server()
    server.sync(pool_of(range(300)))
    for name in [sorted(server.slices)[index] for index in lost]:
        del server.slices[name]
    writes = server.sync(pool_of(range(300)))
    assert (len(writes.create), len(writes), writes.generation) == (len(lost), len(lost), 1)
    assert server.published()[0] == names(range(300))


def test_foreign_slices_and_duplicates_go() -> None:
    """Slices with other names, a second one of an index, and one of another node are deleted."""
    server = Server()
    server.sync(pool_of(range(70)))
    one = server.stored[0]
    for name in ("random-name", "00000-zzz", "0000-x", "00009-x"):
        server.slices[name] = replace(one, metadata=replace(one.metadata, name=name))
    other = replace(one, spec=replace(one.spec, node_name="node-b"), metadata=ObjectMeta(name="00003-b"))
    server.slices["00003-b"] = other
    writes = server.sync(pool_of(range(70)))
    assert [each.metadata.name for each in writes.delete] == [
        "0000-x",
        "00000-zzz",
        "00003-b",
        "00009-x",
        "random-name",
    ]
    assert len(writes) == 5
    assert server.published()[0] == names(range(70))


def test_the_owner_is_repaired_without_a_new_generation() -> None:
    """A Node that was replaced gets its slices back; labels and finalizers of others stay."""
    server = Server()
    server.sync(pool_of(range(130)))
    for name, each in server.slices.items():
        server.slices[name] = replace(each, metadata=replace(each.metadata, labels={"a": "b"}, finalizers=("f",)))
    renewed = replace(OWNER, reference=replace(NODE, uid="uid-2"))
    writes = server.sync(pool_of(range(130)), renewed)
    assert (len(writes.update), len(writes), writes.generation) == (3, 3, 1)
    assert {each.metadata.owner_references for each in server.stored} == {(renewed.reference,)}
    assert all((each.metadata.labels, each.metadata.finalizers) == ({"a": "b"}, ("f",)) for each in server.stored)
    assert not server.sync(pool_of(range(130)), renewed)


@pytest.mark.parametrize("since", ["2026-11-30T10:00:00Z", "2026-11-30T09:00:00Z", None])
def test_an_effect_that_changes_begins_anew(since: str | None) -> None:
    """The server stamps a taint of which only the effect changed, whatever its time; a newer time stays."""
    stored = Device(
        name="a", taints=(DeviceTaint(key="k", value="v", effect="None", time_added="2026-11-30T10:00:00Z"),)
    )
    wanted = DeviceTaint(key="k", value="v", effect="NoSchedule", time_added=since)
    assert with_times(Device(name="a", taints=(wanted,)), stored).taints == (replace(wanted, time_added=None),)
    later = replace(wanted, time_added="2026-11-30T10:00:01Z")
    assert with_times(Device(name="a", taints=(later,)), stored).taints == (later,)


def test_time_added_is_carried_while_the_taint_is_the_same() -> None:
    """A write for another reason keeps the time that the server stamped; another value starts anew."""
    server = Server()
    server.sync(pool_of(range(3), taints=[1]))
    first = (server.stored[0].spec.devices or ())[1].taints
    server.sync(pool_of(range(4), taints=[1, 2]))
    assert (server.stored[0].spec.devices or ())[1].taints == first
    assert not server.sync(pool_of(range(4), taints=[1, 2]))
    other = Pool(name="node-a-gpu", devices=(device(0), device(1, taint="other")))
    assert [d.taints and d.taints[0].time_added for d in server.sync(other).update[0].spec.devices or ()] == [None] * 2


def test_nil_equals_empty_and_quantities_compare_by_value() -> None:
    """Another way to write the same thing is no change."""
    server = Server()
    server.sync(pool_of(range(2)))
    same = tuple(
        Device(
            name=f"gpu-{n}",
            attributes=None if n else {},
            capacity={"memory": DeviceCapacity(value=Quantity("81920Mi"))},
            taints=(),
            consumes_counters=None,
        )
        for n in range(2)
    )
    assert not server.sync(Pool(name="node-a-gpu", devices=same))


def test_a_slice_of_128_devices_is_split() -> None:
    """A stored layout that is not ours, with more than 64 devices in a slice, is laid out anew."""
    server = Server()
    server.sync(pool_of(range(64)))
    (name, one), *_ = server.slices.items()
    server.slices[name] = replace(one, spec=replace(one.spec, devices=pool_of(range(100)).devices))
    server.sync(pool_of(range(100)))
    assert server.published()[0] == names(range(100))


def test_dropped_fields_are_named() -> None:
    """The fields that an answer lacks are named once each, and what has another value; what the server adds is not."""
    consumes = (CounterConsumption(counter_set="s", counters={"c": Counter(value=Quantity(1))}),)
    devices = (replace(device(0, taint="x", model="m"), consumes_counters=consumes), device(1, taint="y"))
    sent = plan(Pool(name="p", devices=devices), (), OWNER).create[0]
    bare = tuple(replace(d, taints=None, consumes_counters=None) for d in devices)
    assert dropped(sent, replace(sent, spec=replace(sent.spec, devices=bare))) == (
        "devices[].consumesCounters",
        "devices[].taints",
    )
    server = Server()
    server.apply(Writes(create=(sent,)))
    assert dropped(sent, server.stored[0]) == ()
    other = replace(sent.spec, driver="other.example.com")
    assert dropped(sent, replace(sent, spec=other)) == ("driver",)


numbers = st.lists(st.integers(0, 220), unique=True, max_size=200)
pools = st.builds(
    lambda many, sets, taints: pool_of(many, sets=sets, taints=taints),
    numbers,
    st.integers(0, 10),
    st.sets(st.integers(0, 220), max_size=3),
)


@given(st.lists(pools, min_size=1, max_size=4))
def test_applied_and_planned_again_writes_nothing(wishes: list[Pool]) -> None:
    """Whatever was stored before, one plan reaches the wanted pool, and the next plan is empty."""
    server = Server()
    for pool in wishes:
        server.sync(pool)
        devices, sets = server.published()
        assert sorted(devices) == sorted(d.name for d in pool.devices)
        assert sets == [c.name for c in pool.counters]
        assert not plan(pool, server.stored, OWNER)


@given(st.integers(65, 200), st.lists(st.tuples(st.integers(0, 199), st.integers(1, 40)), max_size=5))
def test_plugging_ends_with_the_write(count: int, changes: list[tuple[int, int]]) -> None:
    """Whichever devices go and come in a pool of several slices, after each change the next plan is empty."""
    server, there = Server(), set(range(count))
    server.sync(pool_of(sorted(there)))
    for start, length in changes:
        there ^= set(range(start, start + length))
        server.sync(pool_of(sorted(there)))
        assert sorted(server.published()[0]) == sorted(names(there))
        assert not plan(pool_of(sorted(there)), server.stored, OWNER)


def shown(server: Server) -> dict[int, tuple[bool, set[str]]]:
    """What readers see now: for the newest generation whether the pool is complete, and its devices."""
    newest = max((each.spec.pool.generation for each in server.stored), default=0)
    specs = [each.spec for each in server.stored if each.spec.pool.generation == newest]
    complete = bool(specs) and all(spec.pool.resource_slice_count == len(specs) for spec in specs)
    return {newest: (complete, {repr(d) for spec in specs for d in spec.devices or ()})}


@given(pools, pools, st.integers(0, 4), st.integers(0, 4), st.randoms())
def test_interrupted_rewrites_are_resumed(first: Pool, second: Pool, one: int, two: int, chance: random.Random) -> None:
    """Writes that stop anywhere, under wishes that change meanwhile, never show a mixture as a complete pool.

    With the wish unchanged, what was written already is not written again.
    """
    server = Server()
    server.sync(pool_of(range(150)))
    for pool, most in ((first, one), (second, two), (second, chance.randrange(3))):
        server.apply(plan(pool, server.stored, OWNER), most)
        assert_no_mixture(server, (pool_of(range(150)), first, second))
    before = plan(second, server.stored, OWNER)
    server.apply(before, 1)
    assert len(plan(second, server.stored, OWNER)) == max(len(before) - 1, 0)
    server.sync(second)
    assert sorted(server.published()[0]) == sorted(d.name for d in second.devices)
    assert not plan(second, server.stored, OWNER)


def assert_no_mixture(server: Server, wishes: Iterable[Pool]) -> None:
    """A complete pool has the devices, taints included, of one of the wishes."""
    ((complete, _),) = shown(server).values()
    bare = [
        replace(d, taints=tuple(replace(t, time_added=None) for t in d.taints) if d.taints else None)
        for each in server.stored
        if each.spec.pool.generation == max(shown(server))
        for d in each.spec.devices or ()
    ]
    wanted = [sorted(pool.devices, key=lambda d: d.name) for pool in wishes]
    assert not complete or sorted(bare, key=lambda d: d.name) in wanted


@given(numbers.filter(bool), st.randoms())
def test_hot_plug_needs_one_write_while_there_is_room(many: list[int], chance: random.Random) -> None:
    """Taking a device out and putting it back is one update each, at the same generation, wherever it stands."""
    server = Server()
    server.sync(pool_of(many))
    gone = chance.choice(many)
    out = server.sync(pool_of([n for n in many if n != gone]))
    back = server.sync(pool_of(many))
    assert [(len(w), w.generation, len(w.update)) for w in (out, back)] == [(1, 1, 1)] * 2
