"""The diary: what happens to devices, in the log."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog

from dra_plugin.latest import Latest
from drasim import logs
from drasim.diary import narrate
from drasim.state import NodeState, settled
from tests.driver.looks import FALLEN, GPUS, POLICY, after, look


class Diary:
    """What a narrator follows, and what it wrote."""

    def __init__(self) -> None:
        self.state = Latest(NodeState())
        self.unpublished: Latest[frozenset[str]] = Latest(frozenset())
        self.lost: Latest[str | None] = Latest(None)
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, object]]:
        """Return what was written, without the times."""
        return [json.loads(line) | {"time": ""} for line in self.stream.getvalue().splitlines()]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write while the body runs, and for a moment more."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(narrate("gpu.dra.example.com", self.state, self.unpublished, self.lost))
            yield
            await asyncio.sleep(0.01)
            task.cancel()


@pytest.fixture
def diary() -> Iterator[Diary]:
    """Give a diary that is written to memory; other tests get their logs back."""
    made = Diary()
    handlers, level = logging.root.handlers[:], logging.root.level
    logs.setup("info", "json", made.stream)
    yield made
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


async def test_a_problem_is_written_when_it_begins_and_when_it_is_over(diary: Diary) -> None:
    """Once each, with the device's name, however often it is looked at."""
    gone = after(look(1.0, {2: (FALLEN,)}), look(2.0))
    async with diary.running():
        for state in (after(look(1.0, {2: (FALLEN,)})), gone, settled(gone, 7.0, POLICY)):
            diary.state.set(state)
            await asyncio.sleep(0.01)
    common = {"time": "", "driver": "gpu.dra.example.com", "device": "gpu-2", "problem": "xid 79: " + FALLEN.message}
    assert diary.lines() == [
        {"level": "warning", "event": "device has a problem", **common},
        {"level": "info", "event": "problem is over", **common},
    ]


async def test_a_device_that_is_gone_still_has_its_name(diary: Diary) -> None:
    """What was known of it is remembered for that."""
    async with diary.running():
        diary.state.set(after(look(1.0), look(2.0, devices=GPUS[1:])))
    assert [line["device"] for line in diary.lines()] == ["gpu-0"]


async def test_what_is_left_out_is_written(diary: Diary) -> None:
    """Each time that it is something else, and when they are back; nothing is written of nothing."""
    async with diary.running():
        await asyncio.sleep(0.01)
        diary.unpublished.set(frozenset({"gpu-3", "gpu-1"}))
        await asyncio.sleep(0.01)
        diary.state.set(after(look(1.0)))
        await asyncio.sleep(0.01)
        diary.unpublished.set(frozenset({"gpu-1"}))
    assert [(line["level"], line["devices"]) for line in diary.lines()] == [
        ("warning", ["gpu-1", "gpu-3"]),
        ("info", ["gpu-3"]),
    ]


async def test_lost_memory_is_written_once(diary: Diary) -> None:
    """Also when it happened before the log was there."""
    diary.lost.set("problems.json cannot be read")
    async with diary.running():
        await asyncio.sleep(0.01)
        diary.state.set(after(look(1.0)))
    assert [line["reason"] for line in diary.lines()] == ["problems.json cannot be read"]
