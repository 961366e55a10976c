"""One suite for every implementation of Hardware."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from drasim.hardware import DeviceLost, Hardware, Kind, NotSupported, Setting, Step
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


class Bench(msgspec.Struct, frozen=True):
    """Real hardware under test, seen from outside: what a process opens, what is set, and a hand to pull a device."""

    kind: Kind
    opened: Callable[[], Hardware]
    settings_of: Callable[[str], dict[str, Setting]]
    apply_and_die: Callable[[Step], None]
    machine: SimulatedMachine


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
        program = [sys.executable, "-c", APPLY_AND_DIE, str(folder), kind, step.device, key, str(value)]
        died = subprocess.run(program, check=False, capture_output=True, text=True)
        assert died.returncode == -signal.SIGKILL, died.stderr

    return Bench(kind, lambda: SimulatedHardware(machine(), kind, SHORT), settings_of, apply_and_die, machine())


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
    await bench.machine.take_out(gone)
    assert gone not in {device.id for device in (await anext(looks)).devices}
    await bench.machine.put_back(gone)
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
    await bench.machine.take_out(step.device)
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
