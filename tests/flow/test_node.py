"""The whole `drasim node` in this process, between a fake cluster and a fake kubelet."""

import asyncio

import pytest

from dra_plugin.errors import SetupError
from dra_plugin.resources import RESOURCE_SLICE
from drasim.hardware import Fault
from drasim.probes import problems
from tests.flow.nodes import BOTH, GPU, NIC, NODE, World, until, until_registered


async def test_both_drivers_publish_once_registered(world: World) -> None:
    """The slices of both drivers appear, with pools of their own and the Node as owner."""
    async with world.node() as node:
        slices = await world.published()
        assert sorted(each.spec.pool.name for each in slices) == [f"{NODE}-gpu", f"{NODE}-nic"]
        assert {owner.kind for each in slices for owner in each.metadata.owner_references or ()} == {"Node"}
        await until(lambda: not any(problems(status) for status in node.statuses()))
        assert b'drasim_ready{driver="gpu.dra.example.com"} 1.0' in node.exposition()


async def test_nothing_is_published_without_a_kubelet(world: World) -> None:
    """A Pod must not be scheduled to a driver that the kubelet does not know."""
    await world.kubelet.stop()
    async with world.node() as node:
        await node.drivers[0].pools.wait(lambda pools: pools is not None)
        await asyncio.sleep(0.2)
        assert await world.slices() == []
        assert "kubelet: not registered" in problems(node.statuses()[0])


async def test_slices_stay_and_sockets_go(world: World) -> None:
    """After the end the slices are still there (the kubelet removes them in time), sockets are not."""
    async with world.node():
        slices = await world.published()
    assert (await world.slices(), world.sockets()) == (slices, [])


async def test_a_container_gets_its_devices(world: World) -> None:
    """Two devices of one claim: each answer resolves, with variables and a path of its own."""
    async with world.node():
        ref = await world.claim("a", "gpu-1", "gpu-3")
        (answer,) = await world.prepare(GPU, ref)
        edits = [world.edits(device.cdi_ids[0]) for device in answer.devices]
    assert [device.requests for device in answer.devices] == [("r-gpu-1",), ("r-gpu-3",)]
    assert [each["mounts"][0]["containerPath"] for each in edits] == ["/dev/drasim/gpu-1", "/dev/drasim/gpu-3"]
    assert [each["env"][0].partition("=")[0] for each in edits] == ["DRASIM_GPU_1", "DRASIM_GPU_3"]


async def test_a_claim_of_both_drivers(world: World) -> None:
    """Each driver prepares and unprepares its own part of a claim."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", "nic-0")
        answers = [answer for driver in BOTH for answer in await world.prepare(driver, ref)]
        assert [answer.devices[0].device for answer in answers] == ["gpu-0", "nic-0"]
        assert world.resolves(answers)
        undone = [answer.error for driver in BOTH for answer in await world.unprepare(driver, ref)]
    assert (undone, world.records(GPU), world.records(NIC)) == (["", ""], {}, {})


async def test_parameters_are_set_and_taken_back(world: World) -> None:
    """Parameters reach the machine and the container, and both are clean after Unprepare."""
    async with world.node():
        ref = await world.claim("a", "nic-2", parameters={"mtu": 9000})
        (answer,) = await world.prepare(NIC, ref)
        assert "DRASIM_NIC_2_MTU=9000" in world.edits(answer.devices[0].cdi_ids[0])["env"]
        assert [*world.machine().values()] == [{ref.uid: {"mtu": 9000}}]
        await world.unprepare(NIC, ref)
        assert (world.machine(), world.records(NIC)) == ({}, {})
    assert world.leftovers() == []


async def test_a_misspelt_parameter_reaches_the_user(world: World) -> None:
    """The error of the claim names the key; other claims of the call are prepared."""
    async with world.node():
        bad = await world.claim("bad", "gpu-0", parameters={"powerLimitWats": 300})
        good = await world.claim("good", "gpu-1")
        refused, answer = await world.prepare(GPU, bad, good)
    assert "powerLimitWats" in refused.error
    assert (answer.error, len(answer.devices)) == ("", 1)


async def test_a_device_goes_to_one_claim(world: World) -> None:
    """The second claim on a device is refused and told who holds it, until that one is unprepared."""
    async with world.node():
        first, second = await world.claim("first", "gpu-0"), await world.claim("second", "gpu-0")
        await world.prepare(GPU, first)
        (refused,) = await world.prepare(GPU, second)
        assert "default/first" in refused.error
        await world.unprepare(GPU, first)
        (answer,) = await world.prepare(GPU, second)
        assert answer.error == ""


async def test_prepare_again_answers_the_same(world: World) -> None:
    """The kubelet asks again after its restart, and so it does after the driver's."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        first = await world.prepare(GPU, ref)
        await world.kubelet.restart()
        assert await world.prepare(GPU, ref) == first
    async with world.node("pod-2"):
        assert await world.prepare(GPU, ref) == first


async def test_a_reboot_with_an_empty_cdi_folder(world: World) -> None:
    """Prepare makes everything again, and another claim does not get the device meanwhile."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", "gpu-1", parameters={"powerLimitWatts": 300})
        first = await world.prepare(GPU, ref)
    world.boot("boot-2")
    for path in (world.folder / "cdi").iterdir():
        path.unlink()
    async with world.node("pod-2"):
        (refused,) = await world.prepare(GPU, await world.claim("other", "gpu-1"))
        again = await world.prepare(GPU, ref)
        assert ("default/a" in refused.error, again == first, world.resolves(again)) == (True, True, True)
        assert {uid for claims in world.machine().values() for uid in claims} == {ref.uid}


async def test_unprepare_without_the_claim_object(world: World) -> None:
    """A claim that was deleted by force is unprepared from its record."""
    async with world.node():
        ref = await world.claim("a", "gpu-0")
        await world.prepare(GPU, ref)
        world.cluster.faults.fail("get", times=1000)
        (answer,) = await world.unprepare(GPU, ref)
    assert (answer.error, world.records()) == ("", {})


async def test_deleted_slices_come_back(world: World) -> None:
    """Somebody deletes all slices: they are published again."""
    async with world.node():
        for each in await world.published():
            await world.cluster.delete(RESOURCE_SLICE, each)
        assert len(await world.published()) == 2


async def test_a_kubelet_that_wipes_slices_at_its_start(world: World) -> None:
    """The real kubelet deletes the node's slices when it starts, then registers the drivers: they are back."""
    async with world.node() as node:
        old = await world.published()
        for name in BOTH:
            await world.kubelet.health(name).wait(lambda health: len(health) == 4)
        await world.kubelet.stop()
        await until_registered(node, known=False)
        for each in old:
            await world.cluster.delete(RESOURCE_SLICE, each)
        world.kubelet.start()
        assert {each.metadata.uid for each in await world.published()}.isdisjoint({each.metadata.uid for each in old})


async def test_a_device_that_is_taken_out_is_unpublished(world: World) -> None:
    """Hot-unplug reaches the pool and the static CDI spec; the pool stays whole."""
    async with world.node() as node:
        await world.published()
        await node.machine.set_faults("hand", [Fault(device=node.machine.machine.gpus[3].id, kind="unplugged")])
        await world.published(gpus=3)
        with pytest.raises(KeyError):
            world.edits(f"k8s.{GPU}/device=gpu-3")


async def test_health_reaches_the_kubelet(world: World) -> None:
    """Every device is reported healthy, with the time of the last look."""
    async with world.node():
        await world.kubelet.plugin(GPU)
        health = await world.kubelet.health(GPU).wait(lambda health: len(health) == 4)
    assert {(each.health.name, each.looked_at > 0) for each in health.values()} == {("HEALTHY", True)}


async def test_a_failed_unprepare_is_an_event(world: World) -> None:
    """The kubelet says nothing of it, so the claim and the Node get an Event; the next try settles it."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
        spec = next((world.folder / "cdi").glob(f"*claim_{ref.uid}.json"))
        spec.unlink()
        spec.mkdir()
        (failed,) = await world.unprepare(GPU, ref)
        events = await world.events(2)
        spec.rmdir()
        (settled,) = await world.unprepare(GPU, ref)
    assert sorted((event.regarding.kind, event.regarding.name) for event in events) == [
        ("Node", NODE),
        ("ResourceClaim", "a"),
    ]
    assert all(failed.error in event.note for event in events)
    assert (bool(failed.error), settled.error, world.records()) == (True, "", {})


async def test_sixteen_callers(world: World) -> None:
    """Many calls at once for all devices: each device has one owner at a time, nothing is left."""
    async with world.node():
        refs = [
            await world.claim(f"c{number}", f"gpu-{number % 4}", parameters={"powerLimitWatts": 200 + number})
            for number in range(16)
        ]
        await world.kubelet.plugin(GPU)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(world.prepare(GPU, ref)) for ref in refs]
        winners = [ref for ref, task in zip(refs, tasks, strict=True) if not task.result()[0].error]
        assert (len(winners), len(world.machine())) == (4, 4)
        async with asyncio.TaskGroup() as group:
            undone = [group.create_task(world.unprepare(GPU, ref)) for ref in refs]
        assert {answer.error for task in undone for answer in task.result()} == {""}
        assert (world.machine(), world.records()) == ({}, {})
    assert world.leftovers() == []


async def test_a_rolling_update(world: World) -> None:
    """Old and new instance together: calls succeed throughout, devices stay published, the old leaves no sockets."""
    async with world.node("new") as new:
        async with world.node("old") as old:
            await until_registered(old)
            await world.published()
            ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
            first = await world.prepare(GPU, ref)
        assert await world.prepare(GPU, ref) == first
        (undone,) = await world.unprepare(GPU, ref)
        assert (undone.error, world.machine()) == ("", {})
        assert len(await world.published()) == 2
        assert len(world.sockets()) == 4
        assert [status.registered for status in new.statuses()] == [True, True]


async def test_one_driver_alone(world: World) -> None:
    """A driver that is switched off has neither sockets nor slices."""
    async with world.node(nic__hardware="off") as node:
        await until_registered(node)
        await until(lambda: not any(problems(status) for status in node.statuses()))
        assert [each.spec.driver for each in await world.slices()] == [GPU]
        assert len(world.sockets()) == 2


async def test_another_live_instance_on_the_same_socket(world: World) -> None:
    """A second process with the same Pod UID ends with a clear error; the first one keeps its sockets."""
    async with world.node("same"):
        await world.published()
        with pytest.RaisesGroup(pytest.RaisesExc(SetupError, match="live instance"), flatten_subgroups=True):
            async with world.node("same", gpu__hardware="off"):
                pass
        assert (await world.prepare(NIC, await world.claim("a", "nic-0")))[0].error == ""


async def test_a_big_machine(world: World) -> None:
    """300 GPUs are one pool in several slices, and the last one can be prepared."""
    profile = world.folder / "big.yaml"
    profile.write_text("roots: [{numaNode: 0, gpus: 4, count: 75}, {numaNode: 1, nics: 4}]\n")
    async with world.node(simulation__profile=str(profile)):
        slices = await world.published(gpus=300)
        assert {each.spec.pool.resource_slice_count for each in slices if each.spec.driver == GPU} == {5}
        (answer,) = await world.prepare(GPU, await world.claim("a", "gpu-299"))
        assert (answer.error, world.resolves([answer])) == ("", True)


async def test_a_damaged_record_is_told_and_settled(world: World) -> None:
    """Other claims are refused with the reason, the status tells of it, Unprepare settles it."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
    (world.folder / "plugins" / GPU / "claims" / f"{ref.uid}.json").write_bytes(b'{"version": 1')
    async with world.node("pod-2") as node:
        other = await world.claim("b", "gpu-1")
        (refused,) = await world.prepare(GPU, other)
        assert ref.uid in refused.error
        assert list(node.statuses()[0].damaged) == [ref.uid]
        await world.unprepare(GPU, ref)
        (answer,) = await world.prepare(GPU, other)
        assert (answer.error, world.machine()) == ("", {})


@pytest.mark.parametrize("place", ["cdi", f"plugins/{GPU}/claims", f"plugins/{GPU}/claims.lock"])
async def test_a_place_that_cannot_be_used_is_told_until_it_can(world: World, place: str) -> None:
    """Something else stands where specs, records or their lock belong: said, not fatal, and over once it is gone."""
    path = world.folder / place
    path.parent.mkdir(exist_ok=True)
    if path.suffix:
        path.mkdir()
    else:
        path.write_text("")
    async with world.node(periods__look="20ms") as node:
        await until(lambda: any(path.name in problem for problem in problems(node.statuses()[0])))
        if path.suffix:
            path.rmdir()
        else:
            path.unlink()
        await world.published()
        await until(lambda: not any(problems(status) for status in node.statuses()))


async def test_an_api_server_that_is_away_at_start(world: World) -> None:
    """The driver keeps trying, is not ready and says why; then it publishes."""
    world.cluster.faults.fail(code=0, times=10_000)
    async with world.node() as node:
        await world.kubelet.plugin(GPU)
        await until(lambda: any("API server" in problem for problem in problems(node.statuses()[0])))
        world.cluster.faults.clear()
        await world.published()
        await until(lambda: not any(problems(status) for status in node.statuses()))
