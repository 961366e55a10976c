"""Acceptance: whether the API server keeps the taints of devices."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from dra_plugin.latest import Latest
from dra_plugin.publisher import PoolState
from dra_plugin.testing import FakeCluster
from drasim.acceptance import Acceptance

WHOLE = PoolState(generation=1, slices=1, synced=True, error=None)
CUT = PoolState(generation=1, slices=1, synced=True, error=None, dropped=("devices[].taints",))

pytestmark = pytest.mark.looptime  # the times of this module are virtual


class Publishing:
    """What a publisher would say, and an API server whose gates can be switched."""

    def __init__(self, *, gate: bool) -> None:
        self.cluster = FakeCluster(disabled_gates=() if gate else ("DRADeviceTaints",))
        self.pools: Latest[Mapping[str, PoolState]] = Latest({})
        self.registered = Latest(False)
        self.unread: Latest[str | None] = Latest(None)
        self.acceptance = Acceptance("gpu.dra.example.com", "node-a")

    @property
    def kept(self) -> bool:
        """What is known now."""
        return self.acceptance.taints.value

    def asked(self) -> int:
        """Return how often the server was asked."""
        return sum(each.verb == "create" for each in self.cluster.faults.requests)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it, with the driver registered."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                self.acceptance.run(self.cluster, self.pools, self.registered, self.unread), name="acceptance"
            )
            self.registered.set(True)
            await asyncio.sleep(1)
            yield
            task.cancel()


async def test_a_server_that_keeps_taints() -> None:
    """It is asked once, as a dry run: nothing is stored."""
    publishing = Publishing(gate=True)
    async with publishing.running():
        assert (publishing.kept, publishing.asked()) == (True, 1)


async def test_a_server_that_drops_taints_is_known_before_the_first_problem() -> None:
    """The dry run tells, though no device is sick yet."""
    publishing = Publishing(gate=False)
    async with publishing.running():
        assert not publishing.kept


async def test_a_server_is_asked_before_anything_is_published() -> None:
    """Once, and not again when the kubelet says "registered": a sick device is not shown to find out."""
    publishing = Publishing(gate=False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            publishing.acceptance.run(publishing.cluster, publishing.pools, publishing.registered, publishing.unread)
        )
        await asyncio.sleep(1)
        assert (publishing.kept, publishing.asked()) == (False, 1)
        publishing.registered.set(True)
        await asyncio.sleep(1)
        assert publishing.asked() == 1
        task.cancel()


async def test_the_answer_to_a_write_tells_at_once() -> None:
    """Somebody switched the gate off: no dry run is needed to see it."""
    publishing = Publishing(gate=True)
    async with publishing.running():
        publishing.pools.set({"node-a-gpu": CUT})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (publishing.kept, publishing.asked()) == (False, 1)


async def test_a_pool_without_taints_is_no_sign_that_they_are_kept() -> None:
    """The sick devices were left out, so nothing is dropped any more: that must not bring them back."""
    publishing = Publishing(gate=False)
    async with publishing.running():
        publishing.pools.set({"node-a-gpu": CUT})
        await asyncio.sleep(1)
        publishing.pools.set({"node-a-gpu": WHOLE})
        await asyncio.sleep(1)
        assert not publishing.kept


async def test_the_gate_is_switched_on() -> None:
    """Seen in a few minutes, or as soon as the server was away; what it dropped before says nothing then."""
    for restarted in (False, True):
        publishing = Publishing(gate=False)
        async with publishing.running():
            publishing.pools.set({"node-a-gpu": CUT})
            await asyncio.sleep(1)
            publishing.cluster.store.disable_gates(())
            if restarted:
                publishing.unread.set("the connection broke")
                await asyncio.sleep(1)
                publishing.unread.set(None)
            await asyncio.sleep(1 if restarted else 400)
            assert publishing.kept
            publishing.pools.set({"node-a-gpu": CUT, "another": WHOLE})  # no write since could have told otherwise
            await asyncio.sleep(1)
            assert publishing.kept


async def test_it_is_asked_again_when_the_kubelet_comes_back() -> None:
    """Perhaps the whole node was upgraded; while it is away nothing is asked."""
    publishing = Publishing(gate=True)
    async with publishing.running():
        publishing.registered.set(False)
        await asyncio.sleep(1000)
        assert publishing.asked() == 1
        publishing.registered.set(True)
        await asyncio.sleep(1)
        assert publishing.asked() == 2


async def test_a_server_that_does_not_answer_changes_nothing() -> None:
    """Neither way; it is asked again soon."""
    publishing = Publishing(gate=False)
    async with publishing.running():
        publishing.cluster.faults.fail("create", code=503, times=1000)
        publishing.cluster.store.disable_gates(())
        await asyncio.sleep(1000)
        assert not publishing.kept
        publishing.cluster.faults.clear()
        await asyncio.sleep(40)
        assert publishing.kept


async def test_it_is_not_asked_often() -> None:
    """A few times in an hour, however often pools change."""
    publishing = Publishing(gate=True)
    async with publishing.running():
        for generation in range(3600):
            publishing.pools.set({"node-a-gpu": PoolState(generation=generation, slices=1, synced=True, error=None)})
            await asyncio.sleep(1)
        assert 8 <= publishing.asked() <= 17
