"""`drasim node` killed at random moments while the kubelet asks: nothing is promised twice, nothing is left."""

import asyncio
import random
from collections import Counter

import grpc.aio
import pytest

from dra_plugin.claims import ClaimRef
from dra_plugin.testing.kubelet import RegisteredPlugin
from tests.flow.nodes import GPU, World
from tests.flow.processes import node_process, over_http, slow_profile, terminate

ROUNDS = 6
CLAIMS = 12


async def claims(world: World, chance: random.Random) -> list[ClaimRef]:
    """Store claims on one or two of four GPUs; every other one has parameters."""
    refs = []
    for number in range(CLAIMS):
        devices = [f"gpu-{index}" for index in chance.sample(range(4), chance.choice((1, 1, 2)))]
        parameters = {"powerLimitWatts": 200 + number} if number % 2 else None
        refs.append(await world.claim(f"c{number}", *devices, parameters=parameters))
    return refs


async def registered(world: World, after: int) -> int:
    """Wait for a registration later than the one of that order, which is that of a killed process; returns its own."""

    def order(plugins: tuple[RegisteredPlugin, ...]) -> int:
        return max((plugin.order for plugin in plugins if plugin.info.name == GPU), default=0)

    return order(await world.kubelet.plugins.wait(lambda plugins: order(plugins) > after))


async def ask(world: World, operation: str, ref: ClaimRef) -> str | None:
    """Prepare or unprepare; returns the claim's error, or None where the connection broke."""
    call = world.kubelet.prepare if operation == "prepare" else world.kubelet.unprepare
    try:
        return (await call(GPU, [ref], timeout=10))[ref.uid].error
    except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError):
        return None


def held_twice(world: World) -> list[str]:
    """Return the devices that more than one record names."""
    holders = Counter(device.device for record in world.records().values() for device in record.devices)
    return [device for device, count in holders.items() if count > 1]


@pytest.mark.timeout(120)
async def test_killed_at_random_moments(world: World) -> None:
    """No device ever has two holders; once all claims are unprepared no record, spec or setting is left."""
    chance = random.Random(1)
    refs, last = await claims(world, chance), 0
    async with over_http(world) as usual:
        settings = {**usual, "simulation.profile": slow_profile(world, 0.01)}
        for _ in range(ROUNDS):
            async with node_process(settings) as process, asyncio.TaskGroup() as group:
                last = await registered(world, last)
                for ref in chance.sample(refs, 8):
                    group.create_task(ask(world, chance.choice(("prepare", "unprepare")), ref))
                await asyncio.sleep(chance.uniform(0, 0.1))
                process.kill()
            assert held_twice(world) == []
        async with node_process(settings) as process:
            await registered(world, last)
            assert [await ask(world, "unprepare", ref) for ref in refs] == [""] * CLAIMS
            assert await terminate(process) == 0
    assert (world.records(), world.machine(), world.leftovers()) == ({}, {}, [])
