"""One suite for every implementation of Hardware."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from drasim.config.problems import PROBLEM_KINDS
from drasim.hardware import DeviceLost, Fault, Hardware, HardwareError, Kind, Looked, NotSupported, Setting, Step
from drasim.hardware.simulated import SimulatedHardware, load_profile, machine_of
from drasim.hardware.simulated.machine import SimulatedMachine

SHORT = 0.02
SETTINGS: dict[Kind, dict[str, Setting]] = {"gpu": {"powerLimitWatts": 300}, "nic": {"mtu": 9000}}
APPLY_AND_DIE = """
import asyncio, os, pathlib, signal, sys
from drasim.hardware import Step
from drasim.hardware.simulated import SimulatedHardware, SimulatedMachine, load_profile, machine_of
folder, kind, device, key, value = sys.argv[1:]
machine = SimulatedMachine(machine_of(load_profile("small"), "n"), pathlib.Path(folder), pathlib.Path(folder, "boot"))
asyncio.run(SimulatedHardware(machine, kind, 5.0).apply(Step(device=device, settings={key: int(value)}), "claim-1"))
os.kill(os.getpid(), signal.SIGKILL)
"""
STRIKE_AND_DIE = """
import asyncio, os, pathlib, signal, sys
from drasim.hardware import Fault
from drasim.hardware.simulated import SimulatedMachine, load_profile, machine_of
folder, source, *faults = sys.argv[1:]
machine = SimulatedMachine(machine_of(load_profile("small"), "n"), pathlib.Path(folder), pathlib.Path(folder, "boot"))
asyncio.run(machine.set_faults(source, [
    Fault(**dict(zip(("device", "kind", "code"), fault.split()))) for fault in faults
]))
os.kill(os.getpid(), signal.SIGKILL)
"""


class Bench(msgspec.Struct, frozen=True):
    """Real hardware under test, seen from outside: what a process opens, what is set, and hands that do harm.

    ``strike`` makes these faults stand and no others; ``strike_and_die`` is another process that does it.
    """

    kind: Kind
    opened: Callable[[], Hardware]
    settings_of: Callable[[str], dict[str, Setting]]
    apply_and_die: Callable[[Step], None]
    machine: SimulatedMachine
    strike_and_die: Callable[..., None]

    async def strike(self, *faults: Fault) -> None:
        await self.machine.set_faults("test", faults)


def simulated(folder: Path, kind: Kind) -> Bench:
    (folder / "boot").write_text("boot-1\n")
    described = machine_of(load_profile("small"), "n")

    def machine() -> SimulatedMachine:
        return SimulatedMachine(described, folder, folder / "boot")

    def settings_of(device: str) -> dict[str, Setting]:
        merged: dict[str, Setting] = {}
        for given in machine().state().settings.get(device, {}).values():
            merged |= given
        return merged

    def apply_and_die(step: Step) -> None:
        [(key, value)] = step.settings.items()
        die(APPLY_AND_DIE, str(folder), kind, step.device, key, str(value))

    def strike_and_die(*faults: Fault) -> None:
        die(STRIKE_AND_DIE, str(folder), "test", *(f"{fault.device} {fault.kind} {fault.code}" for fault in faults))

    def opened() -> Hardware:
        return SimulatedHardware(machine(), kind, SHORT, SHORT)

    return Bench(kind, opened, settings_of, apply_and_die, machine(), strike_and_die)


def die(program: str, *arguments: str) -> None:
    """Run a program that kills itself when it has done its work."""
    died = subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr


@pytest.fixture(params=["gpu", "nic"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Give each implementation in turn."""
    return simulated(tmp_path, request.param)


async def step_of(bench: Bench) -> Step:
    seen = await anext(bench.opened().watch())
    return Step(device=seen.devices[0].id, settings=SETTINGS[bench.kind])


async def test_the_first_look_comes_at_once_and_sees_all(bench: Bench) -> None:
    """Watching begins with a look; identities and indices are unique, and all devices are of the hardware's kind."""
    hardware = bench.opened()
    seen = await anext(hardware.watch())
    assert hardware.kind == bench.kind
    assert seen.devices
    assert len({device.id for device in seen.devices}) == len({device.index for device in seen.devices}) == 4
    assert {type(device).__name__.lower() for device in seen.devices} == {bench.kind}


async def test_looks_go_on(bench: Bench) -> None:
    """Looks follow each other without end, each with its own time and the same devices."""
    looks = bench.opened().watch()
    first, second, third = [await anext(looks) for _ in range(3)]
    assert first.at < second.at < third.at
    assert first.devices == second.devices == third.devices


async def test_a_device_that_goes_is_missing_from_a_later_look(bench: Bench) -> None:
    """A device that is gone is in no look any more; one that comes back is."""
    looks = bench.opened().watch()
    first = await anext(looks)
    gone = first.devices[0].id
    await bench.machine.set_faults("hand", [Fault(device=gone, kind="unplugged")])
    assert gone not in {device.id for device in (await anext(looks)).devices}
    await bench.machine.set_faults("hand", [])
    assert (await anext(looks)).devices == first.devices


async def test_apply_makes_the_settings_hold_and_can_be_repeated(bench: Bench) -> None:
    """After one apply or two the same settings hold."""
    step = await step_of(bench)
    for _ in range(2):
        await bench.opened().apply(step, "claim-1")
        assert bench.settings_of(step.device) == step.settings


async def test_undo_takes_the_settings_back_and_can_be_repeated(bench: Bench) -> None:
    """After one undo or two nothing is set."""
    step = await step_of(bench)
    await bench.opened().apply(step, "claim-1")
    for _ in range(2):
        await bench.opened().undo(step, "claim-1")
        assert bench.settings_of(step.device) == {}


async def test_undo_without_apply_is_a_success(bench: Bench) -> None:
    """Nothing there to take back is fine."""
    step = await step_of(bench)
    await bench.opened().undo(step, "claim-1")
    assert bench.settings_of(step.device) == {}


async def test_undo_leaves_what_another_claim_set(bench: Bench) -> None:
    """A late undo of an old claim does not touch the new one's settings."""
    step = await step_of(bench)
    await bench.opened().apply(step, "claim-2")
    await bench.opened().undo(step, "claim-1")
    assert bench.settings_of(step.device) == step.settings


async def test_apply_kill_new_process_undo(bench: Bench) -> None:
    """What a process made before it was killed, another process takes back from the step alone."""
    step = await step_of(bench)
    bench.apply_and_die(step)
    assert bench.settings_of(step.device) == step.settings
    await bench.opened().undo(step, "claim-1")
    assert bench.settings_of(step.device) == {}


async def test_a_device_that_is_gone_cannot_be_changed_but_undone(bench: Bench) -> None:
    """Apply on a device that is gone raises DeviceLost; undo has nothing to do."""
    step = await step_of(bench)
    await bench.machine.set_faults("hand", [Fault(device=step.device, kind="unplugged")])
    with pytest.raises(DeviceLost, match=step.device):
        await bench.opened().apply(step, "claim-1")
    await bench.opened().undo(step, "claim-1")


async def test_a_device_that_never_was_is_lost(bench: Bench) -> None:
    """An identity that no device has is a lost device."""
    with pytest.raises(DeviceLost, match="nobody"):
        await bench.opened().apply(Step(device="nobody", settings=SETTINGS[bench.kind]), "claim-1")


async def test_a_setting_that_the_hardware_does_not_know_is_not_supported(bench: Bench) -> None:
    """An unknown setting is refused by name and changes nothing."""
    step = await step_of(bench)
    with pytest.raises(NotSupported, match="colour"):
        await bench.opened().apply(Step(device=step.device, settings={"colour": "red"}), "claim-1")
    assert bench.settings_of(step.device) == {}


# ------------------------------------------------------------------------------------------------ what looks find wrong


async def look_until(looks: AsyncIterator[Looked], condition: Callable[[Looked], bool]) -> Looked:
    """Return the first look for which the condition holds."""
    async with asyncio.timeout(10):
        async for seen in looks:
            if condition(seen):
                return seen
    raise AssertionError


async def first_device(bench: Bench) -> str:
    return (await anext(bench.opened().watch())).devices[0].id


async def test_a_problem_is_seen_while_it_stands(bench: Bench) -> None:
    """Looks find it on that device only, with a text for people, and none when it is over."""
    looks = bench.opened().watch()
    first = await anext(looks)
    device = first.devices[0].id
    elsewhere = {"unplugged", "probe-hangs", "down"}
    for problem in [kind for kind, kinds in PROBLEM_KINDS.items() if bench.kind in kinds and kind not in elsewhere]:
        code = "79" if problem == "xid" else ""
        await bench.strike(Fault(device=device, kind=problem, code=code))
        seen = await look_until(looks, lambda seen: bool(seen.signs))
        assert seen.signs.keys() == {device}
        assert [(sign.kind, sign.code) for sign in seen.signs[device]] == [(problem, code)]
        assert seen.signs[device][0].message
        assert seen.devices == first.devices
        await bench.strike()
        assert (await look_until(looks, lambda seen: not seen.signs)).devices == first.devices


async def test_problems_of_one_device_come_and_go_alone(bench: Bench) -> None:
    """Repairing one leaves the other."""
    device = await first_device(bench)
    kinds = ("lost", "thermal") if bench.kind == "gpu" else ("lost", "crc-errors")
    one, other = (Fault(device=device, kind=kind) for kind in kinds)
    looks = bench.opened().watch()
    await bench.strike(one, other)
    await look_until(looks, lambda seen: [sign.kind for sign in seen.signs.get(device, ())] == list(kinds))
    await bench.strike(other)
    await look_until(looks, lambda seen: [sign.kind for sign in seen.signs.get(device, ())] == [kinds[1]])


async def test_a_root_that_is_down_is_seen_on_what_is_below(bench: Bench) -> None:
    """Its name is the code; devices below other roots are well."""
    first = await anext(bench.opened().watch())
    root = first.devices[0].pci.root
    await bench.strike(Fault(device=root, kind="down"))
    seen = await look_until(bench.opened().watch(), lambda seen: bool(seen.signs))
    assert seen.signs.keys() == {device.id for device in first.devices if device.pci.root == root}
    assert {(sign.kind, sign.code) for signs in seen.signs.values() for sign in signs} == {
        ("down", root.replace(":", "-"))
    }


async def test_a_link_that_flaps_is_found_and_not_found(bench: Bench) -> None:
    """It goes on by itself: nobody has to change anything for the looks to differ. A GPU has no link."""
    device = await first_device(bench)
    await bench.strike(Fault(device=device, kind="link-flap", code="0.2"))
    looks = bench.opened().watch()
    if bench.kind == "gpu":
        assert not (await anext(looks)).signs
        return
    for _ in range(2):
        await look_until(looks, lambda seen: device in seen.signs)
        await look_until(looks, lambda seen: device not in seen.signs)


async def test_an_unplugged_device_is_missing_until_it_is_back(bench: Bench) -> None:
    """A device that was pulled is in no look; put in again it is."""
    looks = bench.opened().watch()
    first = await anext(looks)
    await bench.strike(Fault(device=first.devices[0].id, kind="unplugged"))
    assert (await look_until(looks, lambda seen: seen.devices != first.devices)).devices == first.devices[1:]
    await bench.strike()
    await look_until(looks, lambda seen: seen.devices == first.devices)


async def test_a_probe_that_hangs_makes_its_device_silent_and_no_other(bench: Bench) -> None:
    """Looks go on, say since when nobody knows of it, and say nothing else of it; the repair ends that."""
    looks = bench.opened().watch()
    first = await anext(looks)
    device, other = (each.id for each in first.devices[:2])
    await bench.strike(
        Fault(device=device, kind="probe-hangs"), *(Fault(device=each, kind="lost") for each in (device, other))
    )
    seen = await look_until(looks, lambda seen: device in seen.silent)
    since = seen.silent[device]
    assert seen.silent.keys() == {device}
    assert seen.signs.keys() == {other}
    assert first.at - 1 <= since < seen.at
    later = await look_until(looks, lambda later: later.at > seen.at)
    assert (later.silent, later.devices) == ({device: since}, first.devices)
    await bench.strike(Fault(device=device, kind="lost"))
    await look_until(looks, lambda seen: not seen.silent and seen.signs.keys() == {device})


async def test_a_probe_that_hangs_from_the_beginning_is_never_taken_for_well(bench: Bench) -> None:
    """A process that starts while it hangs says at its first look that it does not know."""
    device = await first_device(bench)
    await bench.strike(Fault(device=device, kind="probe-hangs"))
    seen = await anext(bench.opened().watch())
    assert seen.silent.keys() == {device}
    assert len(seen.devices) == 4


# ---------------------------------------------------------------------------------------------------- admit and dismiss


async def test_a_sound_device_is_given_and_taken(bench: Bench) -> None:
    """Any number of times, and nothing is left of it."""
    device, hardware = await first_device(bench), bench.opened()
    for _ in range(2):
        await hardware.admit(device, "claim-1")
        await hardware.dismiss(device, "claim-1")
    assert bench.settings_of(device) == {}


@pytest.mark.parametrize("problem", ["lost", "unplugged", "down"])
async def test_a_device_that_is_gone_is_taken_and_not_given(bench: Bench, problem: str) -> None:
    """Admit and apply raise DeviceLost and say why; dismiss and undo succeed; the repair ends that."""
    step, hardware = await step_of(bench), bench.opened()
    first = (await anext(hardware.watch())).devices[0]
    await bench.strike(Fault(device=first.pci.root if problem == "down" else first.id, kind=problem))
    with pytest.raises(DeviceLost, match=r"unplugged|does not answer|is down"):
        await hardware.admit(first.id, "claim-1")
    with pytest.raises(DeviceLost):
        await hardware.apply(step, "claim-1")
    await hardware.dismiss(first.id, "claim-1")
    await hardware.undo(step, "claim-1")
    await bench.strike()
    await hardware.admit(first.id, "claim-1")


async def test_a_device_that_never_was_is_not_given(bench: Bench) -> None:
    """An identity that no device has is a lost device; there is nothing to take either."""
    with pytest.raises(DeviceLost, match="nobody"):
        await bench.opened().admit("nobody", "claim-1")
    await bench.opened().dismiss("nobody", "claim-1")


async def test_a_device_that_fails_is_given_after_the_repair(bench: Bench) -> None:
    """The failure may pass: it is no loss, and others are given meanwhile."""
    first = await anext(bench.opened().watch())
    device, other = (each.id for each in first.devices[:2])
    hardware = bench.opened()
    await bench.strike(Fault(device=device, kind="prepare-fails"))
    with pytest.raises(HardwareError, match="fails") as raised:
        await hardware.admit(device, "claim-1")
    assert not isinstance(raised.value, DeviceLost | NotSupported)
    await hardware.admit(other, "claim-1")
    await bench.strike()
    await hardware.admit(device, "claim-1")


async def test_a_slow_device_takes_its_time_and_nobody_elses(bench: Bench) -> None:
    """Giving or taking it waits as long as its fault stands; the other way, and other devices, are not slow."""
    first = await anext(bench.opened().watch())
    device, other = (each.id for each in first.devices[:2])
    hardware = bench.opened()
    for kind, slow, quick in (
        ("prepare-slow", hardware.admit, hardware.dismiss),
        ("unprepare-slow", hardware.dismiss, hardware.admit),
    ):
        await bench.strike(Fault(device=device, kind=kind, code="3600"))
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            waiting = group.create_task(slow(device, "claim-1"))
            await quick(device, "claim-2")
            await slow(other, "claim-3")
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await bench.strike()


async def test_a_slow_device_is_given_when_its_time_is_over(bench: Bench) -> None:
    """The code is the number of seconds; the fault may stand for longer."""
    device, hardware = await first_device(bench), bench.opened()
    await bench.strike(*(Fault(device=device, kind=f"{kind}-slow", code="0.01") for kind in ("prepare", "unprepare")))
    async with asyncio.timeout(10):
        await hardware.admit(device, "claim-1")
        await hardware.dismiss(device, "claim-1")


# ---------------------------------------------------------------------------------------------------- several processes


async def test_faults_outlive_the_process_that_told_them(bench: Bench) -> None:
    """A watcher sees what another process did, and repairs what that one left when it was killed."""
    looks = bench.opened().watch()
    device = (await anext(looks)).devices[0].id
    bench.strike_and_die(Fault(device=device, kind="lost"))
    await look_until(looks, lambda seen: device in seen.signs)
    with pytest.raises(DeviceLost):
        await bench.opened().admit(device, "claim-1")
    await bench.strike()
    await look_until(looks, lambda seen: not seen.signs)


async def test_apply_kill_fault_new_process_undo(bench: Bench) -> None:
    """What a killed process set on a device that failed since is taken back by another one, after the repair too."""
    step = await step_of(bench)
    bench.apply_and_die(step)
    bench.strike_and_die(Fault(device=step.device, kind="lost"))
    await bench.opened().dismiss(step.device, "claim-1")
    await bench.opened().undo(step, "claim-1")
    bench.strike_and_die()
    assert bench.settings_of(step.device) == {}
    await bench.opened().admit(step.device, "claim-2")
