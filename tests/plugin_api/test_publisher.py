"""The publisher against FakeCluster, in virtual time: what is written when, and what is left alone."""

import random
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from dra_plugin.cluster import Selector
from dra_plugin.latest import Latest
from dra_plugin.observe import FieldsDropped, PoolCorrected
from dra_plugin.publisher import PoolState, gates_for
from dra_plugin.resources import NODE, RESOURCE_SLICE, Device, DeviceAttribute, ObjectMeta, Pool
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.admission import Admission
from tests.plugin_api.publishing import POOL, World, now, pause, pool_of, running, world

pytestmark = pytest.mark.looptime


async def test_nothing_is_written_before_it_is_enabled_then_at_once() -> None:
    """Everything is read beforehand; the slice is there as soon as ``enabled`` turns true, owned by the Node."""
    async with world(enabled=False) as it:
        it.want(pool_of(8))
        await pause(5)
        assert await it.slices() == []
        assert it.state() == PoolState(generation=0, slices=0, synced=False, error=None)
        started = now()
        it.enabled.set(True)
        await it.publisher.state.wait(lambda state: state[POOL].synced)
        assert now() - started < 0.01
        (one,) = await it.slices()
        node = await it.cluster.get(NODE, "node-a")
        assert node is not None
        assert [(owner.uid, owner.controller) for owner in one.metadata.owner_references or ()] == [
            (node.metadata.uid, True)
        ]
        assert it.state() == PoolState(generation=1, slices=1, synced=True, error=None, published=True)


async def test_pools_that_are_not_known_yet_touch_nothing() -> None:
    """With ``pools`` None the slices of an earlier process stay as they are; an empty mapping deletes them."""
    async with world() as it:
        it.want(pool_of(100))
        await pause(1)
    later = World(it.cluster)
    later.enabled.set(True)
    async with running(later.publisher):
        await pause(30)
        assert (await later.devices(), later.writes) == (100, [])
        later.want(pool_of(100))
        await pause(30)
        assert later.writes == []
        later.want()
        await pause(1)
        assert (await later.slices(), later.publisher.state.value) == ([], {})


async def test_a_taint_is_one_update() -> None:
    """A changed device is one update at the same generation, and nothing follows it."""
    async with world() as it:
        it.want(pool_of(300))
        await pause(1)
        it.seen.clear()
        it.want(pool_of(300, tainted=[70]))
        await pause(60)
        assert it.writes == ["update"]
        assert it.state() == PoolState(generation=1, slices=5, synced=True, error=None, published=True)


async def test_a_pool_stays_published_while_it_is_renewed() -> None:
    """Between a wish and its write the driver serves as before; slices that are gone are not published."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(0.01)
        it.want(pool_of(8, tainted=[1]))
        await it.publisher.state.wait(lambda state: not state[POOL].synced)
        assert it.state() == PoolState(generation=1, slices=1, synced=False, error=None, published=True)
        await it.publisher.state.wait(lambda state: state[POOL].synced)
        await it.delete(*await it.slices())
        await it.publisher.state.wait(lambda state: not state[POOL].published)
        await it.publisher.state.wait(lambda state: state[POOL].published)


@pytest.mark.parametrize("seed", range(8))
async def test_after_an_outage_it_writes_as_soon_as_it_reads(seed: int) -> None:
    """The back-off of the write ends with the outage: within a second of the watch, however long that was away."""
    random.seed(seed)
    async with world() as it:
        it.want(pool_of(8))
        await pause(1)
        with it.cluster.away():
            it.want(pool_of(8, tainted=[1]))
            await pause(600)
        await it.publisher.reading.wait(lambda error: error is None)
        read = now()
        await it.publisher.state.wait(lambda state: state[POOL].synced)
        assert now() - read <= 1.1


@pytest.mark.parametrize("seed", range(8))
async def test_a_start_during_an_outage(seed: int) -> None:
    """What was never read, slices and Node, is read as soon as the server can be read at all; then it writes."""
    random.seed(seed)
    cluster = FakeCluster()
    it = World(cluster)
    await it.make_node()
    it.enabled.set(True)
    it.want(pool_of(8))
    async with running(it.publisher):
        with cluster.away():
            await pause(600)
        await it.publisher.reading.wait(lambda error: error is None)
        read = now()
        await it.publisher.state.wait(lambda state: state[POOL].synced)
        assert now() - read <= 1.1


async def test_bursts_share_writes() -> None:
    """A device that flaps a hundred times in a second costs about ten writes; the last state is published."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(1)
        it.seen.clear()
        for turn in range(101):
            it.want(pool_of(8, tainted=[turn % 8]))
            await pause(0.01)
        await pause(1)
        assert len(it.writes) <= 12
        assert it.state().synced


async def test_one_deleted_slice_is_back_within_a_second() -> None:
    """Somebody deletes one of two slices: it alone is created again."""
    async with world() as it:
        it.want(pool_of(100))
        await pause(1)
        it.seen.clear()
        await it.delete((await it.slices())[1])
        await pause(0.2)
        assert it.writes == []
        await pause(0.8)
        assert (it.writes, await it.devices()) == (["create"], 100)


async def test_all_deleted_slices_are_back_within_two_seconds() -> None:
    """When all vanish the publisher waits for the next registration, but not longer than two seconds."""
    async with world() as it:
        it.want(pool_of(100))
        await pause(1)
        it.seen.clear()
        await it.delete(*await it.slices())
        await pause(1.2)
        assert it.writes == []
        await pause(0.7)
        assert (it.writes, await it.devices()) == (["create", "create"], 100)


async def test_all_deleted_slices_are_back_at_once_after_registration() -> None:
    """The kubelet wipes the slices and registers the driver again: then they come back without waiting."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(1)
        it.enabled.set(False)
        await it.delete(*await it.slices())
        await pause(10)
        assert await it.slices() == []
        it.enabled.set(True)
        await pause(0.01)
        assert await it.devices() == 8


async def test_changes_by_others_are_left_for_a_while() -> None:
    """Another writer (a newer instance, perhaps) is not fought; after ten seconds the slice is repaired."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(1)
        it.seen.clear()
        (one,) = await it.slices()
        await it.cluster.replace(RESOURCE_SLICE, replace(one, spec=replace(one.spec, devices=None)))
        await pause(8)
        assert (it.writes, it.state().synced) == ([], False)
        await pause(4)
        assert (it.writes, await it.devices()) == (["update"], 8)


async def test_an_unreachable_server_is_asked_again_with_growing_pauses() -> None:
    """Failures are reported and retried; the pool is published once the server answers."""
    async with world() as it:
        await pause(1)
        it.cluster.faults.fail("create", code=500, times=4)
        it.want(pool_of(8))
        await pause(0.05)
        assert "ordered fault" in (it.state().error or "")
        await pause(10)
        assert it.state() == PoolState(generation=1, slices=1, synced=True, error=None, published=True)


async def test_retry_after_is_honoured() -> None:
    """A server that says 'not before five seconds' is not asked earlier, whatever is wanted meanwhile."""
    async with world() as it:
        await pause(1)
        it.cluster.faults.fail("create", code=429, retry_after=5)
        it.want(pool_of(8))
        await pause(2)
        it.want(pool_of(9))
        await pause(2.9)
        assert await it.slices() == []
        await pause(1)
        assert await it.devices() == 9


async def test_pools_do_not_wait_for_each_other() -> None:
    """One pool that the server puts off does not keep the other from being published."""
    async with world() as it:
        await pause(1)
        it.cluster.faults.fail("create", code=429, retry_after=60)
        it.want(pool_of(8), pool_of(4, name="other"))
        await pause(1)
        assert sorted(state.synced for state in it.publisher.state.value.values()) == [False, True]
        await pause(70)
        assert await it.devices() == 12


async def test_a_refused_pool_is_tried_again_when_it_changes() -> None:
    """A 422 is reported and not repeated until something changes, or a minute has passed."""
    async with world() as it:
        await pause(1)
        it.cluster.faults.fail("create", code=422, times=2)
        it.want(pool_of(8))
        await pause(50)
        assert ("ordered fault" in (it.state().error or ""), await it.slices()) == (True, [])
        it.want(pool_of(9))
        await pause(1)
        assert it.state().error
        await pause(61)
        assert (it.state().error, await it.devices()) == (None, 9)


async def test_a_conflict_is_read_again() -> None:
    """An update that meets a newer object reads it and writes on top of it."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(1)
        it.cluster.faults.fail("replace", code=409)
        it.want(pool_of(9))
        await pause(1)
        assert (await it.devices(), it.state().error) == (9, None)


async def test_dropped_fields_are_reported_and_not_written_again() -> None:
    """A gate that is off costs one write and one report, not a loop; another change is written as usual."""
    async with world(disabled_gates={"DRADeviceTaints"}) as it:
        it.want(pool_of(100, tainted=[70]))
        await pause(120)
        assert it.writes == ["create", "create"]
        state = it.state()
        assert (state.synced, state.error, state.dropped) == (True, None, ("devices[].taints",))
        told = [each for each in it.seen if isinstance(each, FieldsDropped)]
        assert [each.gates for each in told] == [("DRADeviceTaints",)]
        it.seen.clear()
        it.want(pool_of(99, tainted=[70]))
        await pause(60)
        assert (it.writes, await it.devices(), it.state().synced) == (["update"], 99, True)
        assert not [each for each in it.seen if isinstance(each, FieldsDropped)]


async def test_dropped_fields_are_tried_again_after_a_new_list() -> None:
    """After a relist (an upgraded server, perhaps with the gate on) the lost fields are sent once more."""
    async with world(disabled_gates={"DRADeviceTaints"}) as it:
        it.want(pool_of(8, tainted=[7]))
        await pause(1)
        it.cluster.store._admission = Admission(frozenset())
        it.cluster.watching.end(410)
        await pause(5)
        assert (it.state().dropped, it.writes) == ((), ["create", "update"])
        assert [each.fields for each in it.seen if isinstance(each, FieldsDropped)] == [("devices[].taints",), ()]


async def test_values_that_break_limits_are_reported_and_the_rest_is_published() -> None:
    """One odd attribute never costs the node its slice: it is left out, and the pool's state says so."""
    async with world() as it:
        odd = Device(name="GPU_0", attributes={"a b": DeviceAttribute(string="x"), "ok": DeviceAttribute(string="y")})
        it.want(Pool(name=POOL, devices=(odd, *pool_of(3).devices[1:])))
        await pause(1)
        (one,) = await it.slices()
        assert [d.name for d in one.spec.devices or ()] == ["gpu-0", "gpu-1", "gpu-2"]
        assert list((one.spec.devices or ())[0].attributes or ()) == ["ok"]
        assert len(it.state().problems) == 2
        assert [len(each.problems) for each in it.seen if isinstance(each, PoolCorrected)] == [2]


async def test_a_replaced_node_gets_its_slices_back() -> None:
    """A Node deleted and made again takes its slices with it; the new ones belong to the new Node."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(5)
        node = await it.cluster.get(NODE, "node-a")
        assert node is not None
        assert await it.cluster.delete(NODE, node)
        renewed = await it.make_node()
        await it.delete(*await it.slices())
        await pause(3)
        (one,) = await it.slices()
        assert [owner.uid for owner in one.metadata.owner_references or ()] == [renewed.metadata.uid]


async def test_without_a_node_nothing_is_written() -> None:
    """Slices of a Node that does not exist would be collected at once: the state says why, and they follow the Node."""
    it = World(FakeCluster())
    it.enabled.set(True)
    it.want(pool_of(8))
    async with running(it.publisher):
        await pause(20)
        assert (await it.slices(), it.state().error) == ([], "there is no Node node-a")
        await it.make_node()
        await pause(35)
        assert (await it.devices(), it.state().error) == (8, None)


async def test_two_publishers_hand_over_through_enabled() -> None:
    """A newer instance with other devices takes over while the old one is still enabled: no fight, no gap."""
    async with world() as it:
        it.want(pool_of(100))
        await pause(10)
        pools: Latest[Mapping[str, Pool] | None] = Latest({POOL: pool_of(200)})
        enabled = Latest(False)
        async with running(it.another(pools, enabled)):
            await pause(1)
            it.seen.clear()
            enabled.set(True)
            await pause(1)
            it.enabled.set(False)
            await pause(60)
            assert await it.devices() == 200
            assert it.writes == ["update", "update", "create", "create"]


async def test_the_older_publisher_resumes_when_the_newer_one_ends() -> None:
    """The slices go back to what the older instance wants as soon as it is enabled again."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(5)
        it.enabled.set(False)
        pools: Latest[Mapping[str, Pool] | None] = Latest({POOL: pool_of(4)})
        async with running(it.another(pools, Latest(True))):
            await pause(5)
            assert await it.devices() == 4
        it.enabled.set(True)
        await pause(0.01)
        assert await it.devices() == 8


async def test_other_drivers_and_nodes_are_left_alone() -> None:
    """Slices of another driver or node are neither read nor written."""
    async with world() as it:
        it.want(pool_of(1))
        await pause(1)
        (ours,) = await it.slices()
        meta = ObjectMeta(name="00000-other")
        other = replace(ours, metadata=meta, spec=replace(ours.spec, driver="other.example.com"))
        await it.cluster.create(RESOURCE_SLICE, other)
        it.want()
        await pause(20)
        left = await it.cluster.list(RESOURCE_SLICE, Selector())
        assert [each.metadata.name for each in left.items] == ["00000-other"]


@pytest.mark.parametrize("round_", range(20))
async def test_a_flaky_server_ends_in_the_wanted_state(round_: int) -> None:
    """Whatever fails in between, the pool ends up as wanted, without duplicates."""
    async with world() as it:
        it.want(pool_of(150))
        for verb in ("create", "replace", "delete", "get", "create", "replace"):
            it.cluster.faults.fail(verb, code=(500, 0, 409, 429)[round_ % 4], times=1 + round_ % 3)
        it.cluster.faults.latency = 0.01 * round_
        await pause(5)
        it.want(pool_of(70 + round_, tainted=[3, 66]))
        await pause(2)
        it.want(pool_of(60 + 5 * round_, tainted=[1]))
        await pause(120)
        assert (await it.devices(), it.state().synced) == (60 + 5 * round_, True)
        assert len(await it.slices()) == it.state().slices


def test_gates_are_named_for_dropped_fields() -> None:
    """Each field is mapped to the gate that removes it; unknown fields name none."""
    assert gates_for(["devices[].taints", "sharedCounters", "devices[].consumesCounters[].compatibilityGroups"]) == (
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaints",
        "DRAPartitionableDevices",
    )
    assert gates_for(["devices[].news"]) == ()
