"""_calls: work outlives its callers, one at a time per claim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dra_plugin._calls import Calls, Outcome, outcome
from dra_plugin.errors import ClaimError


@asynccontextmanager
async def working() -> AsyncIterator[Calls]:
    async with asyncio.TaskGroup() as group:
        calls = Calls(group)
        yield calls
        calls.cancel()


async def test_repeated_call_joins(working_steps: "Steps") -> None:
    """The second call for a claim gets the outcome of the work that the first one began."""
    async with working() as calls:
        one = calls.begin("prepare", "a", working_steps.work("x"))
        two = calls.begin("prepare", "a", working_steps.work("never"))
        assert one is two
        assert calls.in_flight == 1
        working_steps.go.set()
        assert await outcome(two) == Outcome("x")
        await calls.drain(1)
        assert calls.in_flight == 0
    assert working_steps.seen == ["x begins", "x ends"]


async def test_other_operation_waits_its_turn(working_steps: "Steps") -> None:
    """Unprepare begins when the Prepare has ended, and a Prepare after it begins anew; other claims do not wait."""
    async with working() as calls:
        calls.begin("prepare", "a", working_steps.work("p"))
        calls.begin("unprepare", "a", working_steps.work("u"))
        last = calls.begin("prepare", "a", working_steps.work("p2"))
        calls.begin("prepare", "b", working_steps.work("b"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert working_steps.seen == ["p begins", "b begins"]
        working_steps.go.set()
        assert await outcome(last) == Outcome("p2")
        assert [step for step in working_steps.seen if not step.startswith("b")] == [
            "p begins",
            "p ends",
            "u begins",
            "u ends",
            "p2 begins",
            "p2 ends",
        ]


async def test_caller_that_leaves_does_not_cancel(working_steps: "Steps") -> None:
    """A cancelled caller leaves the work running, and the next call gets its result."""
    async with working() as calls, asyncio.TaskGroup() as callers:
        task = calls.begin("prepare", "a", working_steps.work("x"))
        caller = callers.create_task(outcome(task))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        working_steps.go.set()
        assert await outcome(calls.begin("prepare", "a", working_steps.work("never"))) == Outcome("x")


async def test_deadline_answers_and_work_goes_on(working_steps: "Steps") -> None:
    """At the caller's deadline there is a readable error; the work is not touched."""
    async with working() as calls:
        task = calls.begin("prepare", "a", working_steps.work("x"))
        late = await outcome(task, asyncio.get_running_loop().time() + 0.01)
        assert "next call takes it up" in late.error
        working_steps.go.set()
        assert await outcome(task) == Outcome("x")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ClaimError("two\n lines"), "two lines"),
        (ClaimError(), "ClaimError"),
        (KeyError("k"), "internal error: KeyError: 'k'"),
    ],
)
async def test_errors_are_outcomes(error: Exception, text: str) -> None:
    """Whatever is raised becomes the claim's one line, and nobody else's."""

    async def fail() -> None:
        raise error

    async with working() as calls:
        assert (await outcome(calls.begin("prepare", "a", fail))).error == text


async def test_drain_and_cancel(working_steps: "Steps") -> None:
    """Drain waits for the work; what is cut off tells its callers that the driver stops."""
    async with asyncio.TaskGroup() as group:
        calls = Calls(group)
        task = calls.begin("prepare", "a", working_steps.work("x"))
        assert not await calls.drain(0.01)
        assert calls.in_flight == 1
        calls.cancel()
        assert "stopping" in (await outcome(task)).error
        assert await calls.drain(1)


class Steps:
    """Work that notes when it begins and ends, and waits for ``go``."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: list[str] = []

    def work(self, name: str):  # type: ignore[no-untyped-def] # noqa: ANN201 - a small closure
        async def run() -> str:
            self.seen.append(f"{name} begins")
            await self.go.wait()
            self.seen.append(f"{name} ends")
            return name

        return run


@pytest.fixture
def working_steps() -> Steps:
    return Steps()


async def test_nothing_begins_after_the_end(working_steps: "Steps") -> None:
    """A call that slips in while the server closes is told that the driver stops, and holds up nobody."""
    async with asyncio.TaskGroup() as group:
        calls = Calls(group)
        calls.cancel()
        assert "stopping" in (await outcome(calls.begin("prepare", "a", working_steps.work("x")))).error
    assert working_steps.seen == []
