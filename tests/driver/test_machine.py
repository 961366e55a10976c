"""The simulated machine: one machine for all processes, until the host boots again."""

from pathlib import Path

import pytest

from drasim.hardware import DeviceLost, Hardware, HardwareError, NotSupported, Step
from drasim.hardware.simulated import Machine, SimulatedHardware, SimulatedMachine, opened
from tests.driver.machines import boot, machine, switched_on

GPU = machine().gpus[0].id
LIMIT = Step(device=GPU, settings={"powerLimitWatts": 300})


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
    """Another boot id voids settings and absences."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    await view.take_out(machine().gpus[1].id)
    boot(tmp_path, "boot-2")
    assert view.state().settings == {}
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
    """A repeated apply and an undo of nothing leave the file alone."""
    view = switched_on(tmp_path)
    await gpus(view).undo(LIMIT, "claim-1")
    assert view.stamp() is None
    await gpus(view).apply(LIMIT, "claim-1")
    stamp = view.stamp()
    await gpus(view).apply(LIMIT, "claim-1")
    await gpus(view).undo(LIMIT, "claim-2")
    assert view.stamp() == stamp


async def test_a_device_that_was_taken_out_is_not_seen_until_it_is_back(tmp_path: Path) -> None:
    """Taking a device out loses its settings; putting it back gives a device without any."""
    view = switched_on(tmp_path)
    await gpus(view).apply(LIMIT, "claim-1")
    await view.take_out(GPU)
    assert GPU not in {device.id for device in view.present("gpu")}
    with pytest.raises(DeviceLost, match=GPU):
        await gpus(view).apply(LIMIT, "claim-1")
    await view.put_back(GPU)
    assert view.present("gpu") == machine().gpus
    assert view.state().settings == {}


async def test_a_change_by_another_process_is_seen_before_the_period_ends(tmp_path: Path) -> None:
    """A watcher looks again when the machine's file changed, however long its period is."""
    view = switched_on(tmp_path)
    looks = gpus(view, period=3600.0).watch()
    assert len((await anext(looks)).devices) == 4
    await switched_on(tmp_path).take_out(GPU)
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
