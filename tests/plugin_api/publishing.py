"""What the tests of the publisher share: a fake cluster with one node, and a running publisher."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from dra_plugin.latest import Latest
from dra_plugin.observe import Observation, SliceWritten
from dra_plugin.publisher import PoolState, Publisher
from dra_plugin.resources import NODE, RESOURCE_SLICE, Device, DeviceTaint, Node, ObjectMeta, Pool, ResourceSlice
from dra_plugin.testing import FakeCluster

__all__ = ["POOL", "World", "now", "pause", "pool_of", "running", "world"]

DRIVER, POOL = "gpu.example.com", "node-a-gpu"


def pool_of(count: int, *, tainted: Iterable[int] = (), name: str = POOL) -> Pool:
    taints = (DeviceTaint(key="example.com/bad", value="x", effect="NoSchedule"),)
    bad = set(tainted)
    return Pool(
        name=name, devices=tuple(Device(name=f"gpu-{n}", taints=taints if n in bad else None) for n in range(count))
    )


class World:
    """A cluster with one node, and the inputs of publishers."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.pools: Latest[Mapping[str, Pool] | None] = Latest(None)
        self.enabled = Latest(False)
        self.seen: list[Observation] = []
        self.publisher = self.another(self.pools, self.enabled)

    def another(self, pools: Latest[Mapping[str, Pool] | None], enabled: Latest[bool]) -> Publisher:
        return Publisher(self.cluster, DRIVER, "node-a", pools, enabled, observer=self.seen.append)

    def want(self, *pools: Pool) -> None:
        self.pools.set({pool.name: pool for pool in pools})

    @property
    def writes(self) -> list[str]:
        return [each.verb for each in self.seen if isinstance(each, SliceWritten)]

    def state(self, name: str = POOL) -> PoolState:
        return self.publisher.state.value[name]

    async def slices(self) -> list[ResourceSlice]:
        items = (await self.cluster.list(RESOURCE_SLICE)).items
        return sorted(items, key=lambda each: each.metadata.name or "")

    async def devices(self) -> int:
        return sum(len(each.spec.devices or ()) for each in await self.slices())

    async def delete(self, *slices: ResourceSlice) -> None:
        for each in slices:
            assert await self.cluster.delete(RESOURCE_SLICE, each)

    async def make_node(self) -> Node:
        return await self.cluster.create(NODE, Node(metadata=ObjectMeta(name="node-a")))


@asynccontextmanager
async def running(publisher: Publisher) -> AsyncIterator[None]:
    """Run a publisher for a while."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(publisher.run())
        yield
        task.cancel()


@asynccontextmanager
async def world(*, enabled: bool = True, disabled_gates: Collection[str] = ()) -> AsyncIterator[World]:
    """A world with a running publisher."""
    made = World(FakeCluster(disabled_gates=disabled_gates))
    await made.make_node()
    made.enabled.set(enabled)
    async with running(made.publisher):
        yield made


async def pause(seconds: float) -> None:
    """Let (virtual) time pass."""
    await asyncio.sleep(seconds)


def now() -> float:
    return asyncio.get_running_loop().time()
