"""What the tests of the server share: a plugin that is a few lines, claims, and both ends of the wire."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from dra_plugin.claims import RESOURCE_CLAIM, Claim, ClaimRef, ResourceClaim
from dra_plugin.errors import ClaimError
from dra_plugin.health import HealthReport
from dra_plugin.latest import Latest
from dra_plugin.plugin import PreparedDevice
from dra_plugin.resources import NODE, Device, Node, ObjectMeta, Pool
from dra_plugin.server import Server, Settings, serving
from dra_plugin.testing import FakeCluster

DRIVER = "gpu.dra.example.com"


class Prepared:
    """A plugin that keeps what it prepared."""

    def __init__(self) -> None:
        self.held: dict[str, Claim] = {}
        self.wait: Latest[bool] = Latest(True)
        self.broken = ""
        self.begun = 0

    async def prepare(self, claim: Claim) -> tuple[PreparedDevice, ...]:
        self.begun += 1
        await self.wait.wait(bool)
        if self.broken:
            raise ClaimError(self.broken)
        self.held[claim.ref.uid] = claim
        return tuple(
            PreparedDevice(
                requests=(each.request,),
                pool=each.pool,
                device=each.device,
                cdi_ids=(f"k8s.{DRIVER}/device={each.device}",),
                share_id=each.share_id,
            )
            for each in claim.results
        )

    async def unprepare(self, ref: ClaimRef) -> None:
        await self.wait.wait(bool)
        if self.broken:
            raise ClaimError(self.broken)
        self.held.pop(ref.uid, None)


def result(device: str = "gpu-0", **changes: object) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": "node-gpu", "device": device} | changes


async def add_claim(cluster: FakeCluster, name: str, *results: dict[str, Any], allocated: bool = True) -> ClaimRef:
    """Create a claim that is allocated as given; returns what the kubelet would ask for."""
    body: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
    }
    if allocated:
        body["status"] = {"allocation": {"devices": {"results": list(results)}}}
    await cluster.put_json(body)
    stored = await cluster.get(RESOURCE_CLAIM, name, "default")
    assert isinstance(stored, ResourceClaim)
    return ClaimRef("default", name, stored.metadata.uid or "")


async def new_cluster() -> FakeCluster:
    """A cluster with the one node of these tests."""
    cluster = FakeCluster()
    await cluster.create(NODE, Node(metadata=ObjectMeta(name="node-a")))
    return cluster


def settings(root: Path, instance: str = "pod-1", **changes: object) -> Settings:
    """Settings below ``root``, whose folders of the kubelet exist."""
    (root / "registry").mkdir(exist_ok=True)
    (root / "plugins").mkdir(exist_ok=True)
    values = Settings(
        driver=DRIVER,
        node_name="node-a",
        registry=root / "registry",
        folder=root / "plugins" / "gpu",
        instance=instance,
        drain=5.0,
    )
    return msgspec.structs.replace(values, **changes)


async def until(condition: Callable[[], Awaitable[object] | object]) -> None:
    """Wait until the condition holds, for what nobody tells: files, other processes."""
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        await asyncio.sleep(0.01)


POOLS = {"node-gpu": Pool(name="node-gpu", devices=(Device(name="gpu-0"),))}


@asynccontextmanager
async def served(
    root: Path, cluster: FakeCluster, plugin: Prepared | None = None, instance: str = "pod-1", **changes: object
) -> AsyncIterator[Server]:
    """A server of the plugin below ``root``."""
    own = {key: changes.pop(key) for key in ("drain", "driver", "registry", "folder") if key in changes}
    values = settings(root, instance, **own)
    health = cast("Latest[HealthReport] | None", changes.pop("health", None))
    async with serving(plugin or Prepared(), values, cluster, Latest(POOLS), health=health) as server:
        yield server
