"""The simulated machine: one machine for all processes, until the host boots again."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drasim.hardware import DeviceLost, Fault, Hardware, HardwareError, Kind, Looked, NotSupported, Step
from drasim.hardware.simulated import Machine, SimulatedHardware, SimulatedMachine, opened
from tests.driver.machines import boot, machine, switched_on

GPU = machine().gpus[0].id
LIMIT = Step(device=GPU, settings={"powerLimitWatts": 300})
HOT, LOST, OUT, UNLINKED = (Fault(device=GPU, kind=kind) for kind in ("thermal", "lost", "unplugged", "nvlink"))


def gpus(view: SimulatedMachine, period: float = 5.0) -> Hardware:
    return SimulatedHardware(view, "gpu", period)


async def test_two_views_see_one_machine(tmp_path: Path) -> None:
    """What one view sets, another sees and can take back."""
    one, other = switched_on(tmp_path), switched_on(tmp_path)
    await gpus(one).apply(LIMIT, "claim-1")
    assert other.state().settings == {GPU: {"claim-1": {"powerLimitWatts": 300}}}
    await gpus(other).undo(LIMIT, "claim-1")
    assert one.state().settings == {}


async def test_a_reboot_resets_the_machine(tmp_path: Path) -> None:
    """Another boot id voids settings, faults and absences."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    await view.set_faults("api", [HOT])
    await view.set_faults("hand", [Fault(device=machine().gpus[1].id, kind="unplugged")])
    boot(tmp_path, "boot-2")
    assert (view.state().settings, view.faults(), view.conditions()) == ({}, {}, {})
    assert view.present("gpu") == machine().gpus


async def test_a_write_after_a_reboot_keeps_nothing_of_before(tmp_path: Path) -> None:
    """The first change after a reboot starts from a fresh machine."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    boot(tmp_path, "boot-2")
    await gpus(view).apply(LIMIT, "claim-2")
    assert view.state().settings == {GPU: {"claim-2": {"powerLimitWatts": 300}}}


async def test_a_cut_file_is_a_fresh_machine(tmp_path: Path) -> None:
    """A state file that a power cut left half written is never half read."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    file = tmp_path / "machine.json"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert view.state().settings == {}


async def test_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    """A repeated apply, an undo of nothing and faults that stand already leave the file alone."""
    view, file = switched_on(tmp_path), tmp_path / "machine.json"
    await gpus(view).undo(LIMIT, "claim-1")
    await view.set_faults("api", [])
    assert not file.exists()
    await gpus(view).apply(LIMIT, "claim-1")
    await view.set_faults("api", [HOT, UNLINKED])
    before = file.read_bytes(), file.stat().st_ino
    await gpus(view).apply(LIMIT, "claim-1")
    await gpus(view).undo(LIMIT, "claim-2")
    await view.set_faults("api", [HOT, UNLINKED, HOT])
    await view.set_faults("file", [])
    assert (file.read_bytes(), file.stat().st_ino) == before


async def test_faults_of_all_sources_stand_together(tmp_path: Path) -> None:
    """Each source wants its own faults; leaving one out repairs that one, and a source without any is no source."""
    view, other = switched_on(tmp_path), switched_on(tmp_path)
    await view.set_faults("api", [HOT, LOST])
    await other.set_faults("file", [HOT])
    assert view.faults() == other.faults() == {"api": (HOT, LOST), "file": (HOT,)}
    await view.set_faults("api", [LOST])
    assert {sign.kind for sign in other.conditions()[GPU].signs} == {"thermal", "lost"}
    await other.set_faults("file", [])
    assert view.faults() == {"api": (LOST,)}
    await view.set_faults("api", [])
    assert (other.faults(), other.conditions()) == ({}, {})


async def test_a_fault_that_stays_keeps_its_begin(tmp_path: Path) -> None:
    """Wanting a fault again, among others, does not begin it anew."""
    view = switched_on(tmp_path)
    await view.set_faults("api", [HOT])
    (before,) = view.state().faults["api"]
    await view.set_faults("api", [LOST, HOT])
    assert before in view.state().faults["api"]


async def test_faults_are_noticed_once(tmp_path: Path) -> None:
    """Whoever follows ``changed`` wakes for other faults, by this object or another, and for nothing else."""
    view = switched_on(tmp_path)
    await view.set_faults("api", [HOT])
    assert view.changed.value == 1
    await view.set_faults("api", [HOT])
    await gpus(view).apply(LIMIT, "claim-1")
    await switched_on(tmp_path).set_faults("file", [LOST])
    assert view.changed.value == 1
    for _ in range(2):
        assert GPU in view.conditions()
        assert view.changed.value == 2


@pytest.mark.parametrize(("age", "seen"), [(0.0, "2"), (60.0, "1")])
async def test_a_file_that_only_looks_the_same(tmp_path: Path, age: float, seen: str) -> None:
    """A young file is read again soon: a write in the same tick of the clock leaves its stamp. An old one is not."""
    view, file = switched_on(tmp_path), tmp_path / "machine.json"
    await view.set_faults("api", [Fault(device=GPU, kind="xid", code="1")])
    stamp = int((time.time() - age) * 1e9)
    os.utime(file, ns=(stamp, stamp))
    assert view.conditions()[GPU].signs[0].code == "1"
    file.write_bytes(file.read_bytes().replace(b'"code":"1"', b'"code":"2"'))
    os.utime(file, ns=(stamp, stamp))
    await asyncio.sleep(0.01)
    assert view.conditions()[GPU].signs[0].code == seen


async def test_a_device_that_is_unplugged_by_a_fault_loses_its_settings(tmp_path: Path) -> None:
    """It is absent while any source wants that; what comes back was just switched on."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    await view.set_faults("api", [OUT])
    await view.set_faults("hand", [OUT])
    await view.set_faults("api", [])
    assert GPU not in {device.id for device in view.present("gpu")}
    with pytest.raises(DeviceLost, match=GPU):
        await gpus(view).apply(LIMIT, "claim-1")
    await view.set_faults("hand", [])
    assert view.present("gpu") == machine().gpus
    assert view.state().settings == {}


async def test_a_lost_device_keeps_its_settings(tmp_path: Path) -> None:
    """A device that does not answer can be taken from its claim, and has what was set when it answers again."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    await view.set_faults("api", [LOST])
    with pytest.raises(DeviceLost, match=r"does not answer"):
        await gpus(view).apply(LIMIT, "claim-2")
    assert view.state().settings == {GPU: {"claim-1": {"powerLimitWatts": 300}}}
    await gpus(view).undo(LIMIT, "claim-1")
    assert view.state().settings == {}


async def test_waiting_ends_with_the_fault_or_with_time(tmp_path: Path) -> None:
    """``until`` returns when what it waits for holds, and after its seconds when it does not."""
    view = switched_on(tmp_path)
    await view.set_faults("api", [HOT])
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(view.until(lambda: not view.conditions()))
        await view.until(lambda: not view.conditions(), 0.01)
        assert not waiting.done()
        await view.set_faults("api", [])


async def test_a_change_by_another_process_is_seen_before_the_period_ends(tmp_path: Path) -> None:
    """A watcher looks again when the machine's file changed, however long its period is."""
    view = switched_on(tmp_path)
    looks = gpus(view, period=3600.0).watch()
    assert len((await anext(looks)).devices) == 4
    await switched_on(tmp_path).set_faults("hand", [OUT])
    assert [device.index for device in (await anext(looks)).devices] == [1, 2, 3]


async def test_each_kind_sees_its_own_devices(tmp_path: Path) -> None:
    """GPU and NIC hardware are two views of one machine."""
    view = switched_on(tmp_path)
    seen = await anext(SimulatedHardware(view, "nic", 5.0).watch())
    assert seen.devices == machine().nics
    with pytest.raises(NotSupported, match="mtu"):
        await SimulatedHardware(view, "nic", 5.0).apply(LIMIT, "claim-1")


async def test_a_host_without_boot_id_is_a_hardware_error(tmp_path: Path) -> None:
    """Without a boot id nobody can say whether the state still holds."""
    view = SimulatedMachine(Machine(gpus=(), nics=()), tmp_path, tmp_path / "none")
    with pytest.raises(HardwareError, match="none"):
        view.state()
    with pytest.raises(HardwareError, match="none"):
        await gpus(view).undo(LIMIT, "claim-1")


async def test_opening_makes_the_folder(tmp_path: Path) -> None:
    """A missing state folder is made; one that cannot be made is a hardware error."""
    async with opened(machine(), tmp_path / "a" / "b", boot(tmp_path)) as view:
        assert view.present("gpu") == machine().gpus
        assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(HardwareError, match="state folder"):
        async with opened(machine(), tmp_path / "boot_id" / "x", boot(tmp_path)):
            pass


# ------------------------------------------------------------------------------------------- when looks come


async def next_look(looks: AsyncIterator[Looked]) -> tuple[Looked, float]:
    """Return the next look, and how long it was waited for (seconds of the loop, to a hundredth)."""
    before = asyncio.get_running_loop().time()
    seen = await anext(looks)
    return seen, round(asyncio.get_running_loop().time() - before, 2)


@pytest.mark.looptime
async def test_faults_of_this_process_are_seen_at_once(tmp_path: Path) -> None:
    """No period is waited for, and both kinds of a root's devices are looked at."""
    view = switched_on(tmp_path)
    kinds: tuple[Kind, ...] = ("gpu", "nic")
    for kind in kinds:
        looks = SimulatedHardware(view, kind, 3600.0).watch()
        await anext(looks)
        await view.set_faults("api", [Fault(device=machine().gpus[0].pci.root, kind="down")])
        seen, waited = await next_look(looks)
        assert (len(seen.signs), waited) == (1, 0.0)
        await view.set_faults("api", [])
        assert (await next_look(looks))[1] == 0.0


@pytest.mark.looptime
async def test_a_probe_that_hangs_holds_up_no_other_fault(tmp_path: Path) -> None:
    """What else came with it is told after a few milliseconds; the silence follows when its time is over."""
    view, other = switched_on(tmp_path), machine().gpus[1].id
    looks = SimulatedHardware(view, "gpu", 3600.0, 3.0).watch()
    first = await anext(looks)
    await view.set_faults("api", [Fault(device=GPU, kind="probe-hangs"), Fault(device=other, kind="lost")])
    seen, waited = await next_look(looks)
    assert (set(seen.signs), dict(seen.silent), waited) == ({other}, {}, 0.0)
    await view.set_faults("api", [Fault(device=GPU, kind="probe-hangs")])
    seen, waited = await next_look(looks)
    assert (dict(seen.signs), dict(seen.silent), waited) == ({}, {}, 0.0)
    seen, waited = await next_look(looks)
    assert (set(seen.silent), waited) == ({GPU}, 3.0)
    assert seen.silent[GPU] <= first.at
    await view.set_faults("api", [])
    seen, waited = await next_look(looks)
    assert (dict(seen.silent), waited) == ({}, 0.0)


@pytest.mark.looptime
async def test_nothing_changed_is_one_look_a_period(tmp_path: Path) -> None:
    """Settings are no reason to look, and a device that is silent makes nobody look more often."""
    view = switched_on(tmp_path)
    await view.set_faults("api", [Fault(device=machine().gpus[1].id, kind="probe-hangs")])
    looks = gpus(view, 5.0).watch()
    for _ in range(2):
        await anext(looks)
    for _ in range(3):
        await gpus(view).apply(LIMIT, "claim-1")
        assert (await next_look(looks))[1] == 5.0
        await gpus(view).undo(LIMIT, "claim-1")


async def test_a_machine_that_cannot_be_looked_at_says_so(tmp_path: Path) -> None:
    """The error comes out of the watch as it is, and a new watch works again."""
    view = switched_on(tmp_path)
    looks = gpus(view, 0.01).watch()
    await anext(looks)
    (tmp_path / "boot_id").unlink()
    with pytest.raises(HardwareError, match="cannot be looked at"):
        await anext(looks)
    boot(tmp_path)
    assert (await anext(gpus(view).watch())).devices == machine().gpus
