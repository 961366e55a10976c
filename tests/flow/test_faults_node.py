"""Faults, seen from outside of a whole `drasim node`: slices, the kubelet's health stream, calls, restarts."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dra_plugin.cluster import Selector
from dra_plugin.health import Health
from dra_plugin.resources import RESOURCE_SLICE, Device, ResourceSlice
from dra_plugin.testing import FakeCluster
from drasim.driver import stores_for
from drasim.hardware import Fault, Gpu, Nic
from drasim.hardware.simulated import SimulatedHardware
from drasim.node import Node
from drasim.preparer import Preparer
from drasim.probes import problems
from tests.flow.nodes import GPU, NIC, NODE, World, until, until_registered, world_at

QUICK = {"problems__clearAfter": "100ms", "problems__clearAfterMost": "1s", "periods__look": "50ms"}
NEVER = {"problems__clearAfter": "1h", "problems__clearAfterMost": "2h"}


async def fail(node: Node, *faults: str) -> None:
    """Have exactly these faults stand: ``gpu-0 xid 79``."""
    await node.machine.set_faults("test", [fault(node, text) for text in faults])


def fault(node: Node, text: str) -> Fault:
    """Return a fault; its device is given by its published name, a PCIe root by its own."""
    place, kind, code = (*text.split(), "")[:3]
    devices = {f"gpu-{each.index}": each.id for each in node.machine.machine.gpus}
    devices |= {f"nic-{each.index}": each.id for each in node.machine.machine.nics}
    return Fault(device=devices.get(place, place), kind=kind, code=code)


async def devices(world: World) -> dict[str, Device]:
    """Return everything that is published now."""
    return {device.name: device for each in await world.slices() for device in each.spec.devices or ()}


async def until_published(world: World, **wanted: Iterable[str]) -> dict[str, Device]:
    """Return what is published once these devices (``gpu_0``) have taints of exactly these kinds."""
    while True:
        shown = await devices(world)
        if all(kinds(shown, name.replace("_", "-")) == sorted(each) for name, each in wanted.items()):
            return shown
        await asyncio.sleep(0.01)


def kinds(shown: dict[str, Device], name: str) -> list[str] | None:
    """Return the kinds of taints of a device; None when it is not published."""
    if name not in shown:
        return None
    return sorted(taint.key.partition("/")[2] for taint in shown[name].taints or ())


def attribute(device: Device, name: str) -> str | None:
    """Return an attribute that is text."""
    return (device.attributes or {})[name].string


@asynccontextmanager
async def written(world: World) -> AsyncIterator[list[ResourceSlice]]:
    """Give a list of every version of every slice that is written from now on."""
    since = (await world.cluster.list(RESOURCE_SLICE)).resource_version
    seen: list[ResourceSlice] = []

    async def read() -> None:
        async for change in world.cluster.watch(RESOURCE_SLICE, since, Selector()):
            if change.object is not None and change.type in ("ADDED", "MODIFIED"):
                seen.append(change.object)  # noqa: PERF401 - who reads the list does so while it grows

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        yield seen
        await asyncio.sleep(0.05)
        task.cancel()


async def test_a_sick_device_is_isolated_and_reported(world: World) -> None:
    """Its slice gets health and taint in one write at the same generation; the kubelet hears why; others are well."""
    async with world.node() as node:
        before = {each.spec.pool.name: each for each in await world.published()}
        await until(lambda: not any(problems(status) for status in node.statuses()))
        async with written(world) as writes:
            await fail(node, "gpu-1 xid 79")
            shown = await until_published(world, gpu_1=["xid"])
        assert [(each.spec.pool.name, each.spec.pool.generation) for each in writes] == [
            (f"{NODE}-gpu", before[f"{NODE}-gpu"].spec.pool.generation)
        ]
        (taint,) = shown["gpu-1"].taints or ()
        assert (taint.key, taint.value, taint.effect) == (f"{GPU}/xid", "79", "NoSchedule")
        assert attribute(shown["gpu-1"], "health") == "Unhealthy"
        assert {attribute(each, "health") for name, each in shown.items() if name != "gpu-1"} == {"Healthy"}
        reports = await world.kubelet.health(GPU).wait(
            lambda seen: any(each.health is Health.UNHEALTHY for each in seen.values())
        )
        assert {each.device: each.message for each in reports.values() if each.health is not Health.HEALTHY} == {
            "gpu-1": "xid 79: GPU has fallen off the bus"
        }
        status = node.statuses()[0]
        assert (problems(status), dict(status.unhealthy)) == ((), {"gpu-1": "xid 79: GPU has fallen off the bus"})


async def test_a_warning_only_informs(world: World) -> None:
    """An XID of the application puts a taint without influence on the device, which stays healthy."""
    async with world.node() as node:
        await world.published()
        await fail(node, "gpu-0 xid 13")
        shown = await until_published(world, gpu_0=["xid"])
        assert [taint.effect for taint in shown["gpu-0"].taints or ()] == ["None"]
        assert attribute(shown["gpu-0"], "health") == "Healthy"


async def test_problems_of_one_device_clear_independently(world: World) -> None:
    """Two problems, one repaired: one taint goes after the damping, the other keeps its time."""
    async with world.node(**QUICK) as node:
        await world.published()
        await fail(node, "gpu-0 xid 79", "gpu-0 nvlink")
        both = await until_published(world, gpu_0=["nvlink", "xid"])
        await fail(node, "gpu-0 xid 79")
        one = await until_published(world, gpu_0=["xid"])
        assert set(one["gpu-0"].taints or ()) < set(both["gpu-0"].taints or ())
        await fail(node)
        assert attribute((await until_published(world, gpu_0=[]))["gpu-0"], "health") == "Healthy"


async def test_a_root_that_is_down_befalls_gpu_and_nic(world: World) -> None:
    """Both drivers isolate what is below it, and nothing else."""
    async with world.node() as node:
        await world.published()
        root = node.machine.machine.gpus[0].pci.root
        both: tuple[Gpu | Nic, ...] = (*node.machine.machine.gpus, *node.machine.machine.nics)
        below = [each.index for each in node.machine.machine.nics if each.pci.root == root]
        await fail(node, f"{root} down")
        shown = await until_published(world, gpu_0=["down"], **{f"nic_{index}": ["down"] for index in below})
        assert {taint.value for each in shown.values() for taint in each.taints or ()} == {root.replace(":", "-")}
        others = sum(each.pci.root != root for each in both)
        assert sum(not each.taints for each in shown.values()) == others > 0


async def test_a_link_without_a_carrier(world: World) -> None:
    """The link state follows, and comes back."""
    async with world.node(**QUICK) as node:
        await world.published()
        await fail(node, "nic-2 link-down")
        shown = await until_published(world, nic_2=["link-down"])
        assert attribute(shown["nic-2"], "linkState") == "down"
        await fail(node)
        assert attribute((await until_published(world, nic_2=[]))["nic-2"], "linkState") == "up"


async def test_a_link_that_flaps_does_not_write_slices(world: World) -> None:
    """It is down and tainted throughout, in one write; when it has held for long enough, in one more."""
    settings = {**QUICK, "problems__clearAfter": "300ms"}
    async with world.node(**settings) as node:
        await world.published()
        async with written(world) as writes:
            await fail(node, "nic-0 link-flap 0.1")
            await until_published(world, nic_0=["link-flap"])
            await asyncio.sleep(0.6)
            assert len(writes) == 1
            await fail(node)
            await until_published(world, nic_0=[])
        assert len(writes) == 2


async def test_a_probe_that_hangs_makes_its_device_unknown(world: World) -> None:
    """It is sent as such, with the time of its last look; the others are looked at on, and stay healthy."""
    async with world.node(**QUICK, problems__silentAfter="200ms") as node:
        await world.published()
        await fail(node, "gpu-3 probe-hangs")
        shown = await until_published(world, gpu_3=["probe-hangs"])
        assert attribute(shown["gpu-3"], "health") == "Unknown"
        reports = await world.kubelet.health(GPU).wait(
            lambda seen: any(each.health is Health.UNKNOWN for each in seen.values())
        )
        assert [each.device for each in reports.values() if each.health is not Health.HEALTHY] == ["gpu-3"]
        state = node.drivers[0].state
        seen = state.value.looks
        later = await state.wait(lambda now: now.looked_at > max(seen.values()) + 0.1)
        assert [name for name in seen if later.looks[name] == seen[name]] == [node.machine.machine.gpus[3].id]
        await fail(node)
        await until_published(world, gpu_3=[])


async def test_the_first_slice_after_a_restart_carries_the_taint(world: World) -> None:
    """Slices are wiped while the driver is away: no version of the new ones lacks it, and its time is the old one."""
    async with world.node() as node:
        await world.published()
        await fail(node, "gpu-0 lost")
        before = await until_published(world, gpu_0=["lost"])
    for each in await world.slices():
        await world.cluster.delete(RESOURCE_SLICE, each)
    await asyncio.sleep(1.1)  # another second: a time that is made anew would differ
    async with written(world) as writes, world.node("pod-2"):
        await until_published(world, gpu_0=["lost"])
    new = [device for each in writes for device in each.spec.devices or () if device.name == "gpu-0"]
    assert [device.taints for device in new] == [before["gpu-0"].taints] * len(new)


async def test_a_repair_while_the_driver_was_away_is_seen_by_looks(world: World) -> None:
    """The first slice still has the taint; it goes when the new process has found the problem gone for long enough."""
    async with world.node(**QUICK) as node:
        await world.published()
        await fail(node, "gpu-0 lost")
        await until_published(world, gpu_0=["lost"])
        machine = node.machine
    await machine.set_faults("test", [])
    for each in await world.slices():
        await world.cluster.delete(RESOURCE_SLICE, each)
    async with written(world) as writes, world.node("pod-2", **QUICK):
        await until_published(world, gpu_0=[])
    tainted = [bool(each.taints) for part in writes for each in part.spec.devices or () if each.name == "gpu-0"]
    assert tainted == [True, False]


async def test_a_rolling_update_hands_the_taint_over(world: World) -> None:
    """Both instances keep one memory: whoever publishes, no version of the slice lacks the taint or dates it anew."""
    async with AsyncExitStack() as later:
        async with world.node("old") as old:
            await world.published()
            await fail(old, "gpu-0 lost")
            before = await until_published(world, gpu_0=["lost"])
            writes = await later.enter_async_context(written(world))
            new = await later.enter_async_context(world.node("new"))
            await until_registered(new)
            await fail(old, "gpu-0 lost", "gpu-1 xid 79")
            await until_published(world, gpu_0=["lost"], gpu_1=["xid"])
        await fail(new, "gpu-0 lost", "gpu-2 lost")  # by now the other one is gone
        await until_published(world, gpu_2=["lost"])
        shown = [device for each in writes for device in each.spec.devices or () if device.name == "gpu-0"]
        assert len(shown) > 0
        assert {device.taints for device in shown} == {before["gpu-0"].taints}


async def test_a_reboot_is_settled_by_the_first_look(world: World) -> None:
    """A reboot heals the simulated machine: its first slice has no taint, whatever the damping."""
    async with world.node(**NEVER) as node:
        await world.published()
        await fail(node, "gpu-0 lost")
        await until_published(world, gpu_0=["lost"])
    world.boot("boot-2")
    async with world.node("pod-2", **NEVER):
        await until_published(world, gpu_0=[])


async def test_a_device_in_use_stays_published_when_it_is_unplugged(world: World) -> None:
    """With a taint, also after a restart, until its claim is unprepared: then it goes. Put in again, it is back."""
    async with world.node(**QUICK) as node:
        ref = await world.claim("a", "gpu-3", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
        await fail(node, "gpu-3 unplugged")
        shown = await until_published(world, gpu_3=["unplugged"])
        assert attribute(shown["gpu-3"], "health") == "Unhealthy"
    async with world.node("pod-2", **QUICK) as node:
        await until_published(world, gpu_3=["unplugged"])
        reports = await world.kubelet.health(GPU).wait(lambda seen: len(seen) == 4)
        assert {each.device: each.health for each in reports.values()}["gpu-3"] is Health.UNHEALTHY
        (undone,) = await world.unprepare(GPU, ref)
        assert (undone.error, world.records()) == ("", {})
        await world.published(gpus=3)
        await fail(node)
        await until_published(world, gpu_3=[])


async def test_a_device_unplugged_while_the_driver_was_away(world: World) -> None:
    """The claim that holds it keeps it in the slices from the first one on."""
    async with world.node() as node:
        await world.published()
        await world.prepare(GPU, await world.claim("a", "gpu-3"))
        machine = node.machine
    await machine.set_faults("hand", [Fault(device=machine.machine.gpus[3].id, kind="unplugged")])
    async with written(world) as writes, world.node("pod-2"):
        await until_published(world, gpu_3=["unplugged"])
    sizes = {len(each.spec.devices or ()) for each in writes if each.spec.driver == GPU}
    assert sizes == {4}


async def test_a_damaged_record_may_hold_anything(world: World) -> None:
    """Until it is settled no device is unpublished: it may be in use."""
    async with world.node():
        ref = await world.claim("a", "gpu-0")
        await world.prepare(GPU, ref)
    (world.folder / "plugins" / GPU / "claims" / f"{ref.uid}.json").write_bytes(b'{"version": 1')
    async with world.node("pod-2", periods__look="1h") as node:
        await fail(node, "gpu-1 unplugged")
        await until_published(world, gpu_1=["unplugged"])
        await world.unprepare(GPU, ref)
        await world.published(gpus=3)


async def test_a_claim_that_another_process_lets_go(world: World) -> None:
    """An older instance at its end, or `drasim release`: what it did is seen though the kubelet asks for nothing."""
    async with world.node(**QUICK) as node:
        ref = await world.claim("a", "gpu-3")
        await world.prepare(GPU, ref)
        await fail(node, "gpu-3 unplugged")
        await until_published(world, gpu_3=["unplugged"])
        hardware, stores = SimulatedHardware(node.machine, "gpu", 1.0), stores_for(GPU, node.config)
        await Preparer(GPU, hardware, node.drivers[0].inventory, stores, "boot-1").unprepare(ref)
        await world.published(gpus=3)


async def test_unplugged_between_allocation_and_prepare(world: World) -> None:
    """The error says so; hot-plug brings the device back, and then it can be prepared."""
    async with world.node(**QUICK) as node:
        await world.published()
        ref = await world.claim("a", "gpu-3")
        await fail(node, "gpu-3 unplugged")
        await world.published(gpus=3)
        (refused,) = await world.prepare(GPU, ref)
        assert "gpu-3" in refused.error
        await fail(node)
        await until_published(world, gpu_3=[])
        (answer,) = await world.prepare(GPU, ref)
        assert answer.error == ""


async def test_a_burst_of_faults_is_few_writes(world: World) -> None:
    """A hundred changes within a moment do not become a hundred writes."""
    async with world.node() as node:
        await world.published()
        async with written(world) as writes:
            for number in range(100):
                await fail(node, *(f"gpu-{index} xid {number + 1}" for index in range(4)))
            await until_published(world, **{f"gpu_{index}": ["xid"] for index in range(4)})
            await asyncio.sleep(0.3)
        assert 1 <= len(writes) <= 20


@pytest.fixture
async def taintless() -> AsyncIterator[World]:
    """Give a world whose API server drops taints, as 1.34 and 1.35 do by default."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="flow-") as folder:
        async with world_at(Path(folder), FakeCluster(disabled_gates=("DRADeviceTaints",))) as world:
            yield world


async def test_where_taints_are_dropped_a_sick_device_is_left_out(taintless: World) -> None:
    """Unless a claim holds it: then it stays until it is unprepared. What is left out is told; repaired, it is back."""
    world = taintless
    async with world.node(**QUICK) as node:
        await world.published()
        ref = await world.claim("a", "gpu-0")
        await world.prepare(GPU, ref)
        await fail(node, "gpu-0 lost", "gpu-1 lost", "gpu-2 thermal")
        await world.published(gpus=3)
        shown = await devices(world)
        assert ("gpu-0" in shown, "gpu-1" in shown, attribute(shown["gpu-0"], "health")) == (True, False, "Unhealthy")
        assert (node.statuses()[0].unpublished, problems(node.statuses()[0])) == (("gpu-1",), ())
        await world.unprepare(GPU, ref)
        await world.published(gpus=2)
        await fail(node)
        await world.published(gpus=4)
        assert node.statuses()[0].unpublished == ()


async def test_what_is_left_out_does_not_come_and_go(taintless: World) -> None:
    """One write leaves it out, and none follows though the pool has no taint left that could be dropped."""
    world = taintless
    async with world.node(periods__look="20ms") as node:
        await world.published()
        async with written(world) as writes:
            await fail(node, "gpu-1 lost")
            await world.published(gpus=3)
            await asyncio.sleep(0.5)
        assert len(writes) == 1


async def test_what_is_left_out_stays_out_over_a_restart(taintless: World) -> None:
    """No slice shows it, not even until the server has dropped its taint once more."""
    world = taintless
    async with world.node(**NEVER) as node:
        await world.published()
        await fail(node, "gpu-1 lost")
        await world.published(gpus=3)
    async with written(world) as writes, world.node("pod-2", **NEVER) as node:
        await until_registered(node)
        await asyncio.sleep(0.5)
        assert node.statuses()[0].unpublished == ("gpu-1",)
    assert not [each for each in writes if "gpu-1" in {device.name for device in each.spec.devices or ()}]


async def test_a_claim_allocated_before_the_device_was_left_out(taintless: World) -> None:
    """It is prepared, and from then on its device is published again: it is in use."""
    world = taintless
    async with world.node(periods__look="1h") as node:  # no look is needed for that
        await world.published()
        ref = await world.claim("a", "gpu-1")
        await fail(node, "gpu-1 xid 79")
        await world.published(gpus=3)
        (answer,) = await world.prepare(GPU, ref)
        assert answer.error == ""
        await world.published(gpus=4)


async def test_memory_that_cannot_be_read_is_no_reason_not_to_serve(world: World) -> None:
    """It is moved aside; what a look finds is isolated all the same, and remembered again."""
    folder = world.folder / "plugins" / GPU
    folder.mkdir()
    (folder / "problems.json").write_text("{")
    async with world.node() as node:
        await world.published()
        await fail(node, "gpu-0 lost")
        await until_published(world, gpu_0=["lost"])
        assert (folder / "problems.json.damaged").read_text() == "{"
        assert '"lost"' in (folder / "problems.json").read_text()


async def test_times_of_taints_are_those_of_the_problems(world: World) -> None:
    """Whole seconds, not before the fault and not after the write."""
    async with world.node() as node:
        await world.published()
        before = int(time.time())
        await fail(node, "nic-1 lost")
        (taint,) = (await until_published(world, nic_1=["lost"]))["nic-1"].taints or ()
        assert taint.key == f"{NIC}/lost"
        stamps = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in range(before, int(time.time()) + 1)]
        assert taint.time_added in stamps
