"""Figures of a start: sockets, slices, and a Pod that was waiting for a device."""

import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc

from dra_plugin._proto import pluginregistration_v1_pb2 as pb
from dra_plugin._proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from hack.bench import objects
from hack.bench.api import Watch
from hack.bench.contestants import SMALL, Contestant
from hack.bench.figures import OURS
from hack.bench.instance import Place, sockets, started
from hack.bench.samples import Collected

PREFETCH = 1.0
"""Seconds that a driver has before the kubelet speaks to it, in the figure that begins with Notify."""


def measure(place: Place, pods: Watch, contestant: Contestant, count: int, collected: Collected) -> None:
    """Start the driver so many times while a Pod waits for its device; nothing is left of it in between."""
    for _ in range(count):
        _one_start(place, pods, contestant, collected)
        if contestant.name == OURS:  # others publish without waiting for the kubelet
            collected.add("notify", contestant.name, _after_notify(place, contestant) * 1000)


def _one_start(place: Place, pods: Watch, contestant: Contestant, collected: Collected) -> None:
    name = f"waits-{contestant.name}"
    claim = objects.claim(name, contestant.name)
    place.api.create(objects.CLAIMS, claim)
    place.api.create(objects.PODS, objects.pod(name, name))
    pods.until(lambda items: objects.unschedulable(items.get(name)))
    time.sleep(random.random())  # the kubelet looks for sockets once a second: meet it anywhere
    with started(place, contestant, SMALL) as instance:
        collected.add("sockets", contestant.name, instance.wait_sockets() - instance.started)
        collected.add("slices", contestant.name, instance.wait_slices() - instance.started)
        at = pods.until(lambda items: objects.running(items.get(name)), timeout=120)
        collected.add("start-pod", contestant.name, at - instance.started)
        remove_pod(place, pods, name)
    place.api.delete(f"{objects.CLAIMS}/{name}")


def remove_pod(place: Place, pods: Watch, name: str) -> None:
    """Delete a Pod and wait until it is gone, and its claim with it unprepared."""
    place.api.delete(f"{objects.PODS}/{name}")
    pods.until(lambda items: name not in items)


def _after_notify(place: Place, contestant: Contestant) -> float:
    """Return the seconds from NotifyRegistrationStatus to the slices of all drivers; we are the kubelet."""
    with tempfile.TemporaryDirectory() as folder:
        registry = Path(folder)
        with started(place, contestant, SMALL, registry) as instance:
            instance.wait_sockets()
            time.sleep(PREFETCH)
            paths = [next(sockets(registry, driver)) for driver in contestant.drivers]
            begin = asyncio.run(_notify(paths))
            return instance.wait_slices() - begin


async def _notify(paths: list[Path]) -> float:
    """Tell the drivers behind these registration sockets that they are registered; return when that began."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{path}")) for path in paths]
        stubs = [RegistrationStub(channel) for channel in channels]
        for stub in stubs:
            await stub.GetInfo(pb.InfoRequest(), timeout=10)
        begin = time.time()
        async with asyncio.TaskGroup() as group:
            for stub in stubs:
                group.create_task(_tell(stub))
    return begin


async def _tell(stub: RegistrationStub) -> None:
    await stub.NotifyRegistrationStatus(pb.RegistrationStatus(plugin_registered=True), timeout=10)
