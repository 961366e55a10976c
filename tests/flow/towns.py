"""A cluster in which controllers run: its Nodes, slices, claims and rules, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from dra_plugin.cluster import Cluster, Selector
from dra_plugin.errors import Retryable
from dra_plugin.latest import Latest
from dra_plugin.resources import (
    CONFIG_MAP,
    DEVICE_TAINT_RULE,
    EVENT,
    RESOURCE_SLICE,
    DeviceTaint,
    DeviceTaintRule,
    Event,
)
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.catalog import Catalog, Resource
from drasim.config import Config, GpuConfig
from drasim.config.controller import ControllerConfig
from drasim.controller import Controller, running
from drasim.controller.loop import unix_time
from drasim.controller.objects import CLAIM, CLUSTER_ROLE
from drasim.controller.rules import LABELS
from drasim.controller.status import STATUS_KEY, ControllerStatus, decode_status
from drasim.faults import DEVICE_FAULT
from tests.driver.controlling import config, part, place, taint

__all__ = ["Line", "Town", "fault"]

OWNER = "drasim-controller"


def fault(problem: str, effect: str = "NoSchedule") -> DeviceTaint:
    """Return the taint of a problem that begins now."""
    return taint(problem, int(unix_time()), effect)


class Town:
    """An API server with a Node ``node-a`` of two healthy GPUs, each held by the claim of a Pod."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        role = Resource(CLUSTER_ROLE.group, CLUSTER_ROLE.version, CLUSTER_ROLE.plural, CLUSTER_ROLE.name)
        self.cluster = cluster or FakeCluster(catalog=Catalog(extra=(role, Resource.custom(DEVICE_FAULT, "spec.node"))))

    async def build(self) -> None:
        """Make the Node, its devices, their claims and the owner of the rules."""
        await self.put("rbac.authorization.k8s.io/v1", "ClusterRole", {"name": OWNER})
        await self.put("v1", "Node", {"name": "node-a", "labels": {"topology.kubernetes.io/rack": "r1"}})
        await self.publish()
        for index in range(2):
            await self.hold(f"c{index}", f"gpu-{index}", pods=(f"p{index}",))

    async def put(self, api_version: str, kind: str, meta: Mapping[str, object], **members: object) -> dict[str, Any]:
        """Store an object as it is."""
        return await self.cluster.put_json({"apiVersion": api_version, "kind": kind, "metadata": dict(meta), **members})

    async def publish(self, node: str = "node-a", **taints: Iterable[DeviceTaint]) -> None:
        """Publish the two GPUs of a Node: ``gpu_0`` are the taints of ``gpu-0``."""
        devices = {f"gpu-{index}": tuple(taints.get(f"gpu_{index}", ())) for index in range(2)}
        spec = msgspec.to_builtins(part(node, devices).spec)
        await self.put("resource.k8s.io/v1", "ResourceSlice", {"name": f"{node}-gpu"}, spec=spec)

    async def wipe(self, node: str = "node-a") -> None:
        """Delete the slices of a Node, as a kubelet does that starts or has missed its driver for 30 s."""
        for each in (await self.cluster.list(RESOURCE_SLICE, Selector(fields={"spec.nodeName": node}))).items:
            await self.cluster.delete(RESOURCE_SLICE, each)

    async def hold(
        self,
        name: str,
        device: str,
        node: str = "node-a",
        *,
        pods: Iterable[str] = (),
        named: bool = False,
        **more: Any,  # noqa: ANN401 - members of a result
    ) -> None:
        """Store an allocated claim: made for a Pod, or (``named``) by people."""
        where = place(device, node)
        result = {"request": "r", "driver": where.driver, "pool": where.pool, "device": device, **more}
        owners = [] if named else [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}]
        consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        await self.put(
            "resource.k8s.io/v1",
            "ResourceClaim",
            {"name": name, "namespace": "default", "ownerReferences": owners},
            spec={},
            status={"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers},
        )

    async def free(self, name: str) -> None:
        """Delete a claim."""
        stored = await self.cluster.get(CLAIM, name, "default")
        assert stored is not None
        await self.cluster.delete(CLAIM, stored)

    async def rules(self) -> dict[str, DeviceTaintRule]:
        """Return the controller's rules, by device."""
        stored = (await self.cluster.list(DEVICE_TAINT_RULE, Selector(labels=LABELS))).items
        return {(rule.spec.device_selector and rule.spec.device_selector.device) or "": rule for rule in stored}

    async def status(self) -> ControllerStatus:
        """Return what the controller says of itself."""
        stored = await self.cluster.get(CONFIG_MAP, "drasim-controller-status", "drasim")
        assert stored is not None
        return decode_status((stored.data or {})[STATUS_KEY])

    async def events(self, reason: str) -> list[Event]:
        """Return the Events with that reason."""
        return [event for event in (await self.cluster.list(EVENT)).items if event.reason == reason]

    def writes(self) -> list[str]:
        """Return what was asked to be written of rules, since that was last cleared."""
        requests = self.cluster.faults.requests
        verbs = ("create", "replace", "delete", "apply")
        return [each.verb for each in requests if each.plural == DEVICE_TAINT_RULE.plural and each.verb in verbs]

    @asynccontextmanager
    async def controller(
        self,
        identity: str = "one",
        through: Cluster | None = None,
        gpu: GpuConfig | None = None,
        **more: Any,  # noqa: ANN401 - members of the configuration
    ) -> AsyncIterator[Controller]:
        """Run a controller; it leads after a moment if nobody else does."""
        told: ControllerConfig = config(owner=OWNER, **more)
        given = Config(probes=_NO_PROBES, controller=told, gpu=gpu or GpuConfig())
        async with running(given, through or self.cluster, identity) as controller:
            await asyncio.sleep(1)
            yield controller


class Line:
    """The connection of one process to the API server.

    Cut, nothing goes through: for others that process is dead. Deaf, it hears nothing and does not know it, as behind a
    router that has lost the connection of a watch: requests go through.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.is_cut = False
        self.is_deaf = Latest(False)
        self._cluster = cluster

    def __getattr__(self, verb: str) -> Any:  # noqa: ANN401 - whatever the verb takes and gives
        """Return a verb of the cluster that works while the line does."""
        plain = getattr(self._cluster, verb)

        async def over_the_line(*given: object, **named: object) -> object:
            self._check()
            return await plain(*given, **named)

        return self._watch if verb == "watch" else over_the_line

    async def _watch(self, *given: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - whatever the verb takes and gives
        async with aclosing(self._cluster.watch(*given)) as changes:
            async for change in changes:
                self._check()
                await self.is_deaf.wait(lambda is_deaf: not is_deaf)
                yield change

    def _check(self) -> None:
        if self.is_cut:
            raise Retryable("the line is cut")


_NO_PROBES = msgspec.structs.replace(Config().probes, address="")
