"""Probes: one for each device, side by side."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from drasim.hardware import HardwareError, Sign
from drasim.hardware.simulated.probes import Probes, probing

SICK = (Sign(kind="thermal"),)
LONG, SOON = 30.0, 0.05


class Devices:
    """Devices whose probes answer at once, but for those that hang until they are let go, or fail."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.signs: dict[str, tuple[Sign, ...]] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.failing: set[str] = set()

    async def probe(self, device: str) -> tuple[Sign, ...]:
        self.started[device] += 1
        if device in self.failing:
            raise HardwareError("no answer that makes sense")
        if device in self.hanging:
            await self.hanging[device].wait()
        return self.signs.get(device, ())


async def test_one_that_hangs_delays_nobody() -> None:
    """The others' answers are there though one probe has not come back; only the grace is waited for."""
    devices = Devices()
    devices.hanging, devices.signs = {"a": asyncio.Event()}, {"b": SICK}
    async with asyncio.timeout(5), probing(devices.probe, LONG) as probes:
        await probes.ask("abc", 0.001)
        assert probes.signs() == {"b": SICK}


async def test_one_that_hangs_is_not_started_again() -> None:
    """Its probe is out; once it answers, the next question starts a new one."""
    devices = Devices()
    devices.hanging = {"a": asyncio.Event()}
    async with probing(devices.probe, LONG) as probes:
        for _ in range(3):
            await probes.ask("ab", 0.001)
        assert devices.started == {"a": 1, "b": 3}
        devices.hanging["a"].set()
        await probes.answered.wait(lambda answers: answers == 4)
        await probes.ask("ab", LONG)
        assert devices.started == {"a": 2, "b": 4}


async def test_an_answer_that_comes_late_counts() -> None:
    """Whoever follows ``answered`` wakes, and finds it."""
    devices = Devices()
    devices.hanging, devices.signs = {"a": asyncio.Event()}, {"a": SICK}
    async with asyncio.timeout(5), probing(devices.probe, LONG) as probes:
        await probes.ask("a", 0.001)
        assert probes.signs() == {}
        devices.hanging["a"].set()
        await probes.answered.wait(lambda answers: answers == 1)
        assert (probes.signs(), probes.silent()) == ({"a": SICK}, {})


async def test_a_device_is_silent_when_its_time_is_over() -> None:
    """Until then its last answer stands; afterwards it is silent since that answer, until it answers again."""
    devices = Devices()
    devices.signs = {"a": SICK}
    async with asyncio.timeout(5), probing(devices.probe, SOON) as probes:
        await probes.ask("a", LONG)
        devices.hanging, devices.signs = {"a": asyncio.Event()}, {}
        await probes.ask("a", 0.001)
        assert (probes.signs(), probes.silent()) == ({"a": SICK}, {})
        silence = probes.next_silence()
        assert silence is not None
        await asyncio.sleep(silence - asyncio.get_running_loop().time() + 0.01)
        assert probes.silent().keys() == {"a"}
        assert probes.next_silence() is None
        devices.hanging["a"].set()
        await probes.answered.wait(lambda answers: answers == 2)
        assert (probes.signs(), probes.silent()) == ({}, {})


async def test_a_device_that_never_answered_is_silent_at_once() -> None:
    """Nobody may take it for well because nothing is known of it."""
    devices = Devices()
    devices.hanging = {"a": asyncio.Event()}
    async with probing(devices.probe, LONG) as probes:
        await probes.ask("ab", 0.001)
        assert probes.silent().keys() == {"a"}


async def test_a_probe_that_fails_is_no_answer() -> None:
    """It is tried again with each question, and the device is silent when its time is over."""
    devices = Devices()
    async with asyncio.timeout(5), probing(devices.probe, SOON) as probes:
        await probes.ask("a", LONG)
        devices.failing = {"a"}
        while not probes.silent():
            await probes.ask("a", LONG)
            await asyncio.sleep(0.01)
        assert devices.started["a"] > 2
        devices.failing = set()
        await probes.ask("a", LONG)
        assert probes.silent() == {}


async def test_a_device_that_is_not_asked_for_is_forgotten() -> None:
    """It went away: its probe ends, and when it comes back nothing is known of it."""
    devices = Devices()
    devices.hanging, devices.signs = {"a": asyncio.Event()}, {"b": SICK}
    async with probing(devices.probe, LONG) as probes:
        await probes.ask("ab", 0.001)
        await probes.ask("", 0.001)
        assert (probes.signs(), probes.silent()) == ({}, {})
        await probes.ask("a", 0.001)
        assert devices.started["a"] == 2


async def test_errors_of_the_user_come_out_as_they_are() -> None:
    """The group that holds the probes does not wrap them, and no probe outlives it."""
    devices = Devices()
    devices.hanging = {"a": asyncio.Event()}

    async def fail() -> None:
        async with probing(devices.probe, LONG) as probes:
            await probes.ask("a", 0.001)
            raise HardwareError("cannot be looked at")

    before = asyncio.all_tasks()
    with pytest.raises(HardwareError, match="cannot be looked at"):
        await fail()
    assert asyncio.all_tasks() == before


async def test_a_generator_that_is_left_ends_its_probes() -> None:
    """Whoever watches may go away at any time, and closing is silent."""
    devices = Devices()
    devices.hanging = {"a": asyncio.Event()}

    async def watched() -> AsyncGenerator[Probes, None]:
        async with probing(devices.probe, LONG) as probes:
            await probes.ask("a", 0.001)
            while True:
                yield probes

    before = asyncio.all_tasks()
    async with aclosing(watched()) as looks:
        assert isinstance(await anext(looks), Probes)
        assert len(asyncio.all_tasks()) == len(before) + 1
    assert asyncio.all_tasks() == before
