"""Latest and follow: the newest value, never a queue of old ones."""

import asyncio
from contextlib import aclosing

import pytest

from dra_plugin.latest import Latest, follow

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_follower_sees_the_value_at_once_and_then_each_newest_one() -> None:
    """Values that come while the follower is busy are skipped, the last one is never missed."""
    latest = Latest(0)
    seen: list[int] = []

    async def fill() -> None:
        for value in range(1, 10):
            latest.set(value)
        await asyncio.sleep(1)
        latest.set(10)

    async with asyncio.TaskGroup() as tasks, aclosing(follow(latest)) as values:
        async for (value,) in values:
            seen.append(value)
            if value == 0:
                tasks.create_task(fill())
            if value == 10:
                break
    assert seen == [0, 9, 10]


async def test_a_change_while_the_follower_works_wakes_it_again() -> None:
    """Nothing gets lost between reading and waiting."""
    one, other = Latest("a"), Latest(0)
    seen: list[tuple[str, int]] = []
    async with aclosing(follow(one, other)) as values:
        async for value in values:
            seen.append(value)
            if len(seen) == 1:
                other.set(1)
                one.set("b")
            else:
                break
    assert seen == [("a", 0), ("b", 1)]


async def test_an_equal_value_wakes_nobody() -> None:
    """State that did not change is no news."""
    latest = Latest([1])
    async with aclosing(follow(latest, until=lambda: now() + 5)) as values:
        await anext(values)
        started = now()
        latest.set([1])
        await anext(values)
        assert now() - started >= 5


async def test_until_is_past_when_the_follower_wakes() -> None:
    """Whoever waits for a time finds the clock beyond it, however coarse the timer; a past time does not block."""
    latest, due = Latest(0), 0.0
    async with aclosing(follow(latest, until=lambda: due)) as values:
        await anext(values)
        for step in range(1, 50):
            due = now() + step * 0.0123456789
            await anext(values)
            assert now() >= due
        await anext(values)


async def test_wait_returns_the_newest_value_that_fits() -> None:
    """A condition that holds already returns at once; followers leave nothing behind."""
    latest = Latest(0)
    assert await latest.wait(lambda value: value == 0) == 0
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(latest.wait(lambda value: value > 1))
        for value in (1, 2):
            await asyncio.sleep(1)
            latest.set(value)
    assert waiting.result() == 2
    assert not latest._wakers


async def test_a_cancelled_follower_leaves_nothing_behind() -> None:
    """Cancelling is how following ends."""
    latest = Latest(0)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(latest.wait(lambda value: value == 1))
        await asyncio.sleep(1)
        task.cancel()
    assert not latest._wakers
