"""Preparer with devices that are not well: who gets one, who waits, and what holds one."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_plugin.claims import Claim
from dra_plugin.errors import ClaimError
from drasim.hardware import Fault
from drasim.planning import Inventory
from tests.driver.builders import claim, inventory, ref, result, small_machine
from tests.driver.worlds import GPU, PLAIN, SET, World, succeeds

SLOW = ((0, "prepare-slow"), (1, "unprepare-slow"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a fresh node with its static CDI spec."""
    return World(tmp_path)


async def test_an_unhealthy_device_is_prepared(world: World) -> None:
    """Taints keep claims away; one that tolerates them, or was allocated before, gets the device."""
    await world.strike(*(Fault(device=GPU, kind=kind) for kind in ("ecc-uncorrectable", "thermal", "probe-hangs")))
    assert await world.preparer().prepare(SET)


@pytest.mark.parametrize("asked", [PLAIN, SET])
@pytest.mark.parametrize(("kind", "reason"), [("unplugged", "it was unplugged"), ("lost", "does not answer")])
async def test_a_device_that_is_gone_is_refused_with_the_reason(
    world: World, asked: Claim, kind: str, reason: str
) -> None:
    """The call does not wait for it to come back, and nothing is promised or made."""
    await world.strike(Fault(device=GPU, kind=kind))
    with pytest.raises(ClaimError, match=f"device gpu-0: .*{reason}"):
        await world.preparer().prepare(asked)
    assert (world.records(), world.settings(), len(world.specs())) == ({}, {}, 1)


async def test_a_device_that_was_seen_to_be_gone_is_refused_with_the_reason(world: World) -> None:
    """After the look that missed it, the inventory does not have it any more."""
    await world.strike(Fault(device=GPU, kind="unplugged"))
    whole = inventory()
    world.inventory.set(msgspec.structs.replace(whole, devices={"gpu-1": whole.devices["gpu-1"]}))
    with pytest.raises(ClaimError, match="gpu-0 of pool node-a-gpu is gone from this node: it was unplugged"):
        await world.preparer().prepare(PLAIN)


async def test_a_device_that_fails_is_prepared_when_it_stops_failing(world: World) -> None:
    """The call itself tries again, holds nothing meanwhile and disturbs no other claim."""
    await world.strike(Fault(device=GPU, kind="prepare-fails"))
    preparer = world.preparer()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        call = group.create_task(preparer.prepare(PLAIN))
        assert await preparer.prepare(claim("b", result("gpu-1")))
        await asyncio.sleep(0.15)
        assert (call.done(), list(world.records())) == (False, ["b"])
        await world.strike()
    assert call.result()


async def test_a_device_that_goes_on_failing_fails_its_claim(world: World) -> None:
    """When the time is over the error names the device and what it does; the claim has no record."""
    await world.strike(Fault(device=GPU, kind="prepare-fails"))
    with pytest.raises(ClaimError, match=r"device gpu-0: .* fails to be prepared"):
        await world.preparer(patience=0.2).prepare(SET)
    assert world.records() == {}


async def test_a_slow_device_delays_only_its_claim(world: World) -> None:
    """Its calls wait outside of all locks: other claims, and another instance, go on."""
    await world.preparer().prepare(claim("c", result("gpu-1")))
    slow = [Fault(device=small_machine().gpus[at].id, kind=kind, code="3600") for at, kind in SLOW]
    await world.strike(*slow)
    preparer = world.preparer()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        calls = [group.create_task(preparer.prepare(PLAIN)), group.create_task(preparer.unprepare(ref("c")))]
        await asyncio.sleep(0.01)
        for instance in (preparer, world.preparer()):
            await instance.prepare(claim("b", result("gpu-2"), config=SET.config))
            await instance.unprepare(ref("b"))
        assert (any(call.done() for call in calls), list(world.records())) == (False, ["c"])
        await world.strike()
    assert list(world.records()) == ["a"]


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_a_prepared_claim_is_answered_whatever_befell_its_device(world: World, asked: Claim) -> None:
    """The kubelet asks again for a Pod that runs: nothing is asked of the hardware, by any instance."""
    preparer = world.preparer()
    answer = await preparer.prepare(asked)
    await world.strike(*(Fault(device=GPU, kind=kind) for kind in ("unplugged", "lost", "prepare-fails")))
    assert [await preparer.prepare(asked), await world.preparer().prepare(asked)] == [answer, answer]


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_a_claim_of_a_missing_device_is_unprepared(world: World, asked: Claim) -> None:
    """A device that was pulled while it was held holds nobody up, even if the inventory forgot it."""
    await world.preparer().prepare(asked)
    await world.strike(Fault(device=GPU, kind="unplugged"))
    world.inventory.set(Inventory(kind="gpu", pool="node-a-gpu", devices={}))
    await world.preparer().unprepare(ref("a"))
    assert (world.settings(), world.records(), len(world.specs())) == ({}, {}, 1)


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_what_another_instance_prepared_is_dismissed_too(world: World, asked: Claim) -> None:
    """An instance that did not know of the claim asks the hardware before it forgets it."""
    late = world.preparer()
    await late.unprepare(ref("nobody"))
    await world.preparer().prepare(asked)
    await world.strike(Fault(device=GPU, kind="unprepare-slow", code="3600"))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        call = group.create_task(late.unprepare(ref("a")))
        await asyncio.sleep(0.05)
        assert (call.done(), list(world.records())) == (False, ["a"])
        await world.strike()
    assert world.records() == {}


async def test_a_claim_that_moves_leaves_its_old_device_first(world: World) -> None:
    """The old device is dismissed before the new one is promised, also where nothing was set."""
    await world.preparer().prepare(PLAIN)
    await world.strike(Fault(device=GPU, kind="unprepare-slow", code="3600"))
    moved = claim("a", result("gpu-2"))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        call = group.create_task(world.preparer().prepare(moved))
        await asyncio.sleep(0.05)
        assert (call.done(), world.records()["a"].devices[0].device) == (False, "gpu-0")
        await world.strike()
    assert world.records()["a"].devices[0].device == "gpu-2"


async def test_held_is_what_the_records_hold(world: World) -> None:
    """Whole devices, shares and admin access: a device is held until the last claim of it is gone."""
    gpus = small_machine().gpus
    preparer = world.preparer()
    await preparer.prepare(SET)
    await preparer.prepare(claim("b", result("gpu-0", admin_access=True)))
    for uid in ("c", "d"):
        await preparer.prepare(claim(uid, result("gpu-2", share_id=f"share-{uid}")))
    assert preparer.held.value == {gpus[0].id, gpus[1].id, gpus[2].id}
    await preparer.unprepare(ref("a"))
    await preparer.unprepare(ref("c"))
    assert preparer.held.value == {gpus[0].id, gpus[2].id}
    await preparer.unprepare(ref("b"))
    await preparer.unprepare(ref("d"))
    assert preparer.held.value == frozenset()


async def test_held_is_known_from_the_first_sweep_on(world: World) -> None:
    """A driver that starts knows what was held before, and learns what another instance did at its next call."""
    gpus = small_machine().gpus
    await world.preparer().prepare(PLAIN)
    started = world.preparer()
    assert started.held.value == frozenset()
    await started.sweep()
    assert started.held.value == {gpus[0].id}
    other = world.preparer()
    await other.unprepare(ref("a"))
    await other.prepare(claim("b", result("gpu-1")))
    await started.unprepare(ref("nobody"))
    assert started.held.value == {gpus[1].id}


async def test_held_follows_a_claim_that_moves(world: World) -> None:
    """A claim that was allocated anew holds its new devices only; one that was refused holds nothing."""
    preparer = world.preparer()
    await preparer.prepare(SET)
    await preparer.prepare(claim("a", result("gpu-2")))
    with pytest.raises(ClaimError, match="in use"):
        await preparer.prepare(claim("b", result("gpu-2"), result("gpu-3")))
    assert preparer.held.value == {small_machine().gpus[2].id}


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 3)), st.booleans()), max_size=20))
@settings(max_examples=25, deadline=None)
def test_held_always_equals_the_records(steps: list[tuple[int, set[int], bool]]) -> None:
    """Whatever two instances prepare and unprepare in turn, whoever acted last tells what the records say."""
    with TemporaryDirectory() as folder:
        asyncio.run(_check_held(World(Path(folder)), steps))


async def _check_held(world: World, steps: list[tuple[int, set[int], bool]]) -> None:
    instances = (world.preparer(), world.preparer())
    for number, gpus, second in steps:
        instance, uid = instances[second], f"c{number}"
        if gpus:
            await succeeds(instance, claim(uid, *(result(f"gpu-{gpu}", f"r{gpu}") for gpu in sorted(gpus))))
        else:
            await instance.unprepare(ref(uid))
        recorded = {device.hardware for record in world.records().values() for device in record.devices}
        assert instance.held.value == recorded
