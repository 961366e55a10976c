"""A node of a fake cluster: its folders, its kubelet, and `drasim node` in this process or in its own."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint, Record
from dra_plugin.claims import ClaimRef
from dra_plugin.cluster import Selector
from dra_plugin.resources import EVENT, RESOURCE_SLICE, Event, ResourceSlice
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.kubelet import Answer, FakeKubelet
from drasim.config import Config, load
from drasim.node import Node, running

NODE = "node-a"
GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
BOTH = (GPU, NIC)
KINDS = {GPU: "GpuConfig", NIC: "NicConfig"}


class World:
    """One node and its cluster. Folders outlive every process that is started on them."""

    def __init__(self, folder: Path, cluster: FakeCluster | None = None) -> None:
        self.folder = folder
        self.cluster = cluster or FakeCluster()
        self.kubelet = FakeKubelet(folder / "reg")
        for name in ("reg", "plugins"):
            (folder / name).mkdir()
        self.boot("boot-1")

    def boot(self, boot_id: str) -> None:
        """Begin another boot."""
        (self.folder / "boot_id").write_text(boot_id + "\n")

    def settings(self, **more: str) -> dict[str, str]:
        """Return the flags of a `drasim node` on these folders; a key's dots are written as two underscores."""
        paths = {"paths.registry": "reg", "paths.plugins": "plugins", "paths.cdi": "cdi", "paths.bootID": "boot_id"}
        return {
            "nodeName": NODE,
            "probes.address": "",
            "simulation.profile": "small",
            "log.level": "error",
            **{key: str(self.folder / name) for key, name in paths.items()},
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    def config(self, **more: str) -> Config:
        """Return the configuration of a `drasim node` on these folders."""
        return load(None, self.settings(**more))

    @asynccontextmanager
    async def node(self, pod_uid: str = "pod-1", **more: str) -> AsyncIterator[Node]:
        """Run `drasim node` in this process until left; afterwards the kubelet knows that it is gone.

        What the kubelet is registering is not taken away from it: it would wait for it, 10 seconds.
        """
        async with running(self.config(podUID=pod_uid, **more), self.cluster) as node:
            yield node
            if self.kubelet.plugins.value or any(status.registered for status in node.statuses()):
                await until_registered(node)
        await self.kubelet.plugins.wait(lambda plugins: all(plugin.socket.exists() for plugin in plugins))

    async def published(self, gpus: int = 4) -> list[ResourceSlice]:
        """Return the slices, once all NICs and that many GPUs are published."""
        while True:
            slices = await self.slices()
            if [_count(slices, driver) for driver in BOTH] == [gpus, 4]:
                return slices
            await asyncio.sleep(0.02)

    async def slices(self) -> list[ResourceSlice]:
        """Return the slices of this node."""
        listing = await self.cluster.list(RESOURCE_SLICE, Selector(fields={"spec.nodeName": NODE}))
        return list(listing.items)

    async def events(self, count: int) -> list[Event]:
        """Return the Events, once there are that many."""
        while True:
            events = (await self.cluster.list(EVENT)).items
            if len(events) >= count:
                return list(events)
            await asyncio.sleep(0.02)

    async def claim(self, name: str, *devices: str, parameters: Mapping[str, object] | None = None) -> ClaimRef:
        """Store a claim that the scheduler has allocated: ``gpu-0`` is a device of the GPU driver."""
        stored = await self.cluster.put_json(allocated(name, devices, parameters))
        return ClaimRef(namespace="default", name=name, uid=stored["metadata"]["uid"])

    async def prepare(self, driver: str, *refs: ClaimRef) -> list[Answer]:
        """Ask as the kubelet does: one call for these claims."""
        await self.kubelet.plugin(driver)
        answers = await self.kubelet.prepare(driver, refs)
        return [answers[ref.uid] for ref in refs]

    async def unprepare(self, driver: str, *refs: ClaimRef) -> list[Answer]:
        """Ask as the kubelet does."""
        await self.kubelet.plugin(driver)
        answers = await self.kubelet.unprepare(driver, refs)
        return [answers[ref.uid] for ref in refs]

    def resolves(self, answers: Iterable[Answer]) -> bool:
        """Tell whether a container runtime would find everything that was answered."""
        ids = [name for answer in answers for device in answer.devices for name in device.cdi_ids]
        return bool(ids) and CdiFolder(self.folder / "cdi").resolves(ids)

    def edits(self, cdi_id: str) -> dict[str, Any]:
        """Return what a container gets by this CDI id."""
        kind, _, name = cdi_id.partition("=")
        for path in (self.folder / "cdi").glob("*.json"):
            spec = json.loads(path.read_text())
            for device in spec["devices"] if spec["kind"] == kind else ():
                if device["name"] == name:
                    edits: dict[str, Any] = device["containerEdits"]
                    return edits
        raise KeyError(cdi_id)

    def records(self, driver: str = GPU) -> Mapping[str, Record]:
        """Return the records of a driver, as its next process would read them."""
        return Checkpoint(self.folder / "plugins" / driver / "claims").load(fresh=False).records

    def machine(self) -> dict[str, Any]:
        """Return what is set in the simulated machine: by hardware identity, then claim."""
        path = self.folder / "plugins" / "drasim" / "machine.json"
        settings: dict[str, Any] = json.loads(path.read_text()).get("settings", {}) if path.exists() else {}
        return settings

    def leftovers(self) -> list[str]:
        """Return the claim specs and sockets that are there."""
        specs = (self.folder / "cdi").glob("*-claim_*.json")
        return sorted(path.name for path in (*specs, *self.sockets()))

    def sockets(self) -> list[Path]:
        """Return all sockets, hidden ones included."""
        return [path for path in self.folder.rglob("*") if path.is_socket()]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the function returns True."""
    while not condition():  # noqa: ASYNC110 - it looks at files and other processes
        await asyncio.sleep(0.01)


async def until_registered(node: Node, *, known: bool = True) -> None:
    """Wait until all drivers of the node are registered, or none is."""
    for driver in node.drivers:
        server = driver.server.value
        assert server is not None
        await server.registered.wait(lambda registered: registered is known)


@asynccontextmanager
async def world_at(folder: Path, cluster: FakeCluster | None = None) -> AsyncIterator[World]:
    """Give a node with a running kubelet."""
    world = World(folder, cluster)
    await world.cluster.put_json({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    async with world.kubelet:
        yield world


def allocated(name: str, devices: Iterable[str], parameters: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return a claim as the scheduler leaves it, each device for a request ``r-<device>``."""
    results = [
        {"request": f"r-{each}", "driver": driver_of(each), "pool": f"{NODE}-{each[:3]}", "device": each}
        for each in devices
    ]
    config = [] if parameters is None else [_parameters(results[0]["driver"], parameters)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results, "config": config}}},
    }


def driver_of(device: str) -> str:
    """Return the driver of a device, by its name."""
    return GPU if device.startswith("gpu") else NIC


def _parameters(driver: str, given: Mapping[str, object]) -> dict[str, Any]:
    parameters = {"apiVersion": "dra.example.com/v1alpha1", "kind": KINDS[driver], **given}
    return {"source": "FromClaim", "opaque": {"driver": driver, "parameters": parameters}}


def _count(slices: Iterable[ResourceSlice], driver: str) -> int:
    return sum(len(each.spec.devices or ()) for each in slices if each.spec.driver == driver)
