"""Preparer: record, hardware, CDI, record - and back, whatever happens in between."""

import asyncio
import json
from pathlib import Path

import pytest

from dra_plugin.claims import Claim
from dra_plugin.errors import ClaimError
from drasim.hardware import HardwareError, NotSupported, Step
from drasim.hardware.simulated import SimulatedHardware
from drasim.planning import Inventory
from drasim.preparer import Preparer
from tests.driver.builders import claim, gpu_config, inventory, ref, result, small_machine
from tests.driver.worlds import DRIVER, GPU, PLAIN, SET, STATIC, World, succeeds


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a fresh node with its static CDI spec."""
    return World(tmp_path)


def broken(world: World) -> Preparer:
    """Return an instance whose calls get stuck in the middle: its hardware is broken."""
    return world.preparer(NotSupported("broken"))


async def test_a_plain_claim_is_one_record(world: World) -> None:
    """Without parameters the static CDI id is the answer; nothing is set and no spec is written."""
    (device,) = await world.preparer().prepare(PLAIN)
    assert (device.device, device.requests, device.cdi_ids) == ("gpu-0", ("request",), (STATIC,))
    assert [record.phase for record in world.records().values()] == ["DONE"]
    assert (world.settings(), len(world.specs())) == ({}, 1)


async def test_unprepare_takes_the_record_back(world: World) -> None:
    """Afterwards another claim gets the device."""
    preparer = world.preparer()
    await preparer.prepare(PLAIN)
    await preparer.unprepare(ref("a"))
    assert world.records() == {}
    assert await preparer.prepare(claim("b", result("gpu-0")))


async def test_an_unknown_claim_is_unprepared(world: World) -> None:
    """Unprepare of a claim that nobody knows is a success."""
    await world.preparer().unprepare(ref("nobody"))


async def test_parameters_reach_the_hardware_and_the_container(world: World) -> None:
    """With parameters the device is set, and the claim's own CDI id takes the place of the static one."""
    first, second = await world.preparer().prepare(SET)
    assert (first.cdi_ids, second.cdi_ids) == ((f"k8s.{DRIVER}/claim=a-gpu-0",), (f"k8s.{DRIVER}/device=gpu-1",))
    assert world.settings() == {GPU: {"a": {"powerLimitWatts": 300}}}
    assert world.cdi.resolves([*first.cdi_ids, *second.cdi_ids])


async def test_unprepare_takes_everything_back(world: World) -> None:
    """Settings, the claim's spec and the record are gone, also when another instance unprepares."""
    await world.preparer().prepare(SET)
    await world.preparer().unprepare(ref("a"))
    assert (world.settings(), world.records(), len(world.specs())) == ({}, {}, 1)


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_the_number_of_prepared_claims_is_that_of_the_records(world: World, asked: Claim) -> None:
    """Whoever reads it after a call sees what the call left, not what it found."""
    preparer = world.preparer()
    await preparer.prepare(asked)
    assert preparer.prepared.value == 1
    await preparer.unprepare(ref("a"))
    assert preparer.prepared.value == 0


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_prepare_again_answers_the_same(world: World, asked: Claim) -> None:
    """A repeated Prepare, in this instance or another, changes nothing and answers the same."""
    preparer = world.preparer()
    answer = await preparer.prepare(asked)
    before = world.records()
    assert [await preparer.prepare(asked), await world.preparer().prepare(asked)] == [answer, answer]
    assert world.records() == before


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_what_the_answer_names_is_written_again(world: World, asked: Claim) -> None:
    """Somebody emptied the CDI folder: Prepare puts back what it answers."""
    answer = await world.preparer().prepare(asked)
    for path in (world.folder / "cdi").iterdir():
        path.unlink()
    assert await world.preparer().prepare(asked) == answer
    assert world.cdi.resolves([name for device in answer for name in device.cdi_ids])


async def test_a_prepared_claim_outlives_its_parameters_and_devices(world: World) -> None:
    """A claim that runs is not disturbed when its device has vanished meanwhile: the answer stays."""
    answer = await world.preparer().prepare(SET)
    world.inventory.set(Inventory(kind="gpu", pool="node-a-gpu", devices={}))
    assert await world.preparer().prepare(SET) == answer


async def test_the_holder_is_named(world: World) -> None:
    """A second claim on the device is refused and names the first, also in another instance."""
    await world.preparer().prepare(PLAIN)
    with pytest.raises(ClaimError, match="default/claim-a"):
        await world.preparer().prepare(claim("b", result("gpu-0")))


async def test_a_fault_that_passes_is_not_told(world: World) -> None:
    """The kubelet would come again only after a minute, so the call itself tries again."""
    await world.preparer(HardwareError("busy"), HardwareError("busy")).prepare(SET)
    assert world.settings() == {GPU: {"a": {"powerLimitWatts": 300}}}


async def test_a_fault_that_stays_fails_the_claim(world: World) -> None:
    """When the time is over the error names the device and the fault."""
    with pytest.raises(ClaimError, match="device gpu-0: busy"):
        await world.preparer(*[HardwareError("busy")] * 9, patience=0.3).prepare(SET)


async def test_what_cannot_work_is_not_tried_again(world: World) -> None:
    """A setting that the hardware does not know fails at once; the device stays with the claim until Unprepare."""
    with pytest.raises(ClaimError, match="device gpu-0: broken"):
        await broken(world).prepare(SET)
    assert world.records()["a"].phase == "STARTED"


async def test_a_started_claim_is_finished_by_the_next_prepare(world: World) -> None:
    """A Prepare that ended in the middle is taken up where it stood."""
    with pytest.raises(ClaimError):
        await broken(world).prepare(SET)
    answer = await world.preparer().prepare(SET)
    assert world.records()["a"].phase == "DONE"
    assert world.cdi.resolves(answer[0].cdi_ids)


async def test_a_started_claim_is_undone_by_unprepare(world: World) -> None:
    """A Prepare that ended in the middle leaves nothing after Unprepare."""
    with pytest.raises(ClaimError):
        await broken(world).prepare(SET)
    await SimulatedHardware(world.machine, "gpu", 5.0).apply(Step(device=GPU, settings={"powerLimitWatts": 300}), "a")
    await world.preparer().unprepare(ref("a"))
    assert (world.settings(), world.records()) == ({}, {})


async def test_a_failed_unprepare_is_told_and_taken_up(world: World) -> None:
    """The record stays until everything is undone; then Prepare starts anew."""
    await world.preparer().prepare(SET)
    with pytest.raises(ClaimError, match="device gpu-0: broken"):
        await broken(world).unprepare(ref("a"))
    assert world.records()["a"].phase == "STARTED"
    await world.preparer().unprepare(ref("a"))
    assert (world.settings(), world.records()) == ({}, {})


@pytest.mark.parametrize("asked", [PLAIN, SET])
async def test_after_a_reboot_everything_is_made_again(world: World, asked: Claim) -> None:
    """What was made is gone with the boot; the promise stays, and the answer is the same."""
    answer = await world.preparer().prepare(asked)
    boot_id = world.reboot()
    with pytest.raises(ClaimError, match="default/claim-a"):
        await world.preparer(boot_id=boot_id).prepare(claim("b", result("gpu-0")))
    assert await world.preparer(boot_id=boot_id).prepare(asked) == answer
    assert world.cdi.resolves([name for device in answer for name in device.cdi_ids])
    assert bool(world.settings()) == (asked is SET)
    assert world.records()["a"].boot_id == boot_id


async def test_after_a_reboot_there_is_nothing_to_undo(world: World) -> None:
    """Unprepare of a claim of another boot touches no hardware."""
    await world.preparer().prepare(SET)
    boot_id = world.reboot()
    await world.preparer(NotSupported("never asked"), boot_id=boot_id).unprepare(ref("a"))
    assert world.records() == {}


async def test_another_allocation_of_the_same_claim_replaces_the_old(world: World) -> None:
    """A claim that was allocated anew is taken back from the old device and prepared on the new one."""
    await world.preparer().prepare(SET)
    moved = claim("a", result("gpu-2"), config=(gpu_config(powerLimitWatts=400),))
    await world.preparer().prepare(moved)
    assert world.settings() == {small_machine().gpus[2].id: {"a": {"powerLimitWatts": 400}}}
    assert await world.preparer().prepare(claim("b", result("gpu-0")))


async def test_an_unreadable_record_closes_devices_until_it_is_settled(world: World) -> None:
    """Other claims are refused with the reason; Unprepare of the damaged one opens the devices again."""
    await world.preparer().prepare(SET)
    (world.folder / "claims" / "a.json").write_bytes(b"{")
    preparer = world.preparer()
    with pytest.raises(ClaimError, match="record of claim a is damaged"):
        await preparer.prepare(claim("b", result("gpu-2")))
    assert list(preparer.damaged.value) == ["a"]
    await preparer.unprepare(ref("a"))
    assert (world.settings(), world.records()) == ({}, {})
    assert await preparer.prepare(claim("b", result("gpu-2")))
    assert preparer.damaged.value == {}


async def test_an_unreadable_record_spares_the_devices_of_others(world: World) -> None:
    """Settling a damaged record undoes nothing of a claim that has a record."""
    await world.preparer().prepare(SET)
    (world.folder / "claims" / "z.json").write_bytes(b"{")
    await world.preparer().unprepare(ref("z"))
    assert world.settings() == {GPU: {"a": {"powerLimitWatts": 300}}}
    assert list(world.records()) == ["a"]


async def test_prepare_settles_its_own_damaged_record(world: World) -> None:
    """The kubelet asks again for a claim whose record was damaged, and gets the same answer."""
    answer = await world.preparer().prepare(SET)
    (world.folder / "claims" / "a.json").write_bytes(b"{")
    assert await world.preparer().prepare(SET) == answer
    assert world.records()["a"].phase == "DONE"


async def test_leftover_specs_are_swept(world: World) -> None:
    """A claim's spec without a record is removed at start; those with one stay."""
    await world.preparer().prepare(SET)
    claim_kind = f"k8s.{DRIVER}/claim"
    left = json.loads((world.folder / "cdi" / f"{claim_kind.replace('/', '-')}_a.json").read_text())
    assert left["kind"] == claim_kind
    (world.folder / "cdi" / f"{claim_kind.replace('/', '-')}_gone.json").write_text(json.dumps(left))
    await world.preparer().sweep()
    assert world.cdi.claims(claim_kind) == {"a"}


async def test_calls_wait_for_the_first_look(world: World) -> None:
    """A Prepare that comes before the hardware was looked at waits for it."""
    world.inventory.set(None)
    async with asyncio.TaskGroup() as group:
        call = group.create_task(world.preparer().prepare(PLAIN))
        await asyncio.sleep(0.01)
        assert not call.done()
        world.inventory.set(inventory())
    assert call.result()


async def test_two_instances_and_many_claims(world: World) -> None:
    """Whoever is asked: each device goes to one claim, and everything comes back."""
    one, two = world.preparer(), world.preparer()
    claims = [
        claim(f"c{number}", result(f"gpu-{number % 4}"), config=(gpu_config(powerLimitWatts=300 + number),))
        for number in range(16)
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(succeeds(instance, each)) for each, instance in zip(claims, [one, two] * 8, strict=True)
        ]
    winners = [each for each, task in zip(claims, tasks, strict=True) if task.result()]
    assert sorted(each.results[0].device for each in winners) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    async with asyncio.TaskGroup() as group:
        for each in claims:
            group.create_task(two.unprepare(each.ref))
    assert (world.settings(), world.records(), len(world.specs())) == ({}, {}, 1)
