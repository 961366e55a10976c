"""What people see of a fault: Events, metrics, the detail of /readyz, and `drasim status`."""

import asyncio
import json
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dra_plugin.claims import ClaimRef
from dra_plugin.resources import EVENT, Event
from dra_plugin.testing import FakeCluster
from drasim.hardware import Fault, Gpu
from drasim.node import Node
from drasim.probes import readiness
from tests.flow.nodes import GPU, NIC, NODE, World, until, world_at
from tests.flow.processes import call, flags, over_http, start

QUICK = {"periods__look": "0.05", "problems__clearAfter": "0.05", "problems__clearAfterMost": "1"}


def gpu(node: Node, index: int) -> str:
    """Return the hardware identity of a GPU of the node."""
    devices = node.drivers[0].state.value.devices.values()
    return next(device.id for device in devices if isinstance(device, Gpu) and device.index == index)


async def break_gpu(node: Node, index: int, *kinds: str, code: str = "") -> None:
    """Let a GPU have exactly these faults."""
    await until(lambda: bool(node.drivers[0].state.value.devices))
    await node.machine.set_faults("test", [Fault(device=gpu(node, index), kind=kind, code=code) for kind in kinds])


async def in_use(world: World, name: str, device: str, pod: str) -> ClaimRef:
    """Prepare a claim that is reserved for a Pod."""
    ref = await world.claim(name, device)
    stored = world.cluster.store.get(
        world.cluster.catalog.named("resource.k8s.io/v1", "ResourceClaim"), "default", name
    )
    consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
    await world.cluster.put_json({**stored, "status": {**stored["status"], "reservedFor": consumers}})
    (answer,) = await world.prepare(GPU, ref)
    assert answer.error == ""
    return ref


async def events(world: World, *reasons: str) -> list[Event]:
    """Return the Events, once there is one of each of these reasons on the Node."""
    while True:
        found = (await world.cluster.list(EVENT)).items
        if {event.reason for event in found if event.regarding.kind == "Node"} >= set(reasons):
            return list(found)
        await asyncio.sleep(0.01)


async def test_a_fault_is_seen_everywhere(world: World) -> None:
    """Node and Pod have an Event, /readyz the reason, /metrics health, problem, taint and the time that it took."""
    async with world.node(**QUICK) as node:
        await world.published()
        await in_use(world, "train", "gpu-1", "train-0")
        await break_gpu(node, 1, "xid", code="79")
        await events(world, "DeviceUnhealthy")
        await until(lambda: b"drasim_fault_to_slice_seconds_count" in node.exposition())
        found = await events(world, "DeviceUnhealthy")
        text, body = node.exposition().decode(), readiness(node.statuses())[1]
    assert sorted((event.regarding.kind, event.regarding.name) for event in found) == [
        ("Node", NODE),
        ("Pod", "train-0"),
    ]
    assert all("gpu-1" in event.note and "xid 79" in event.note for event in found)
    (status, _) = json.loads(body)["drivers"]
    assert "xid 79" in status["unhealthy"]["gpu-1"]
    assert f'drasim_device_health{{device="gpu-1",driver="{GPU}",health="Unhealthy"}} 1.0' in text
    assert f'drasim_device_taints{{driver="{GPU}",effect="NoSchedule"}} 1.0' in text
    assert re.search(
        r'drasim_device_problem_start_time_seconds\{code="79",device="gpu-1".*kind="xid"\} 1\.\d+e\+09', text
    )
    assert f'drasim_fault_to_slice_seconds_count{{driver="{GPU}"}} 1.0' in text
    assert f'drasim_fault_to_slice_seconds_count{{driver="{NIC}"}}' not in text


async def test_a_recovery_is_told(world: World) -> None:
    """Once the problem is over, to the same ones; the other problem is not touched by that."""
    async with world.node(**QUICK) as node:
        await world.published()
        await break_gpu(node, 1, "thermal", "ecc-uncorrectable")
        await events(world, "DeviceUnhealthy", "DeviceDegraded")
        await break_gpu(node, 1, "thermal")
        found = await events(world, "DeviceRecovered")
    (note,) = [event.note for event in found if event.reason == "DeviceRecovered"]
    assert "gpu-1: over: ecc-uncorrectable; still there: thermal" in note


async def test_a_restart_tells_nothing_twice(world: World) -> None:
    """The next process knows what stood before; what begins then is told."""
    async with world.node(**QUICK) as node:
        await world.published()
        await break_gpu(node, 1, "xid", code="79")
        await events(world, "DeviceUnhealthy")
    await asyncio.sleep(1.1)  # times of problems are whole seconds
    async with world.node(pod_uid="pod-2", **QUICK) as node:
        await until(lambda: bool(node.drivers[0].state.value.looked_at))
        await node.machine.set_faults("other", [Fault(device=gpu(node, 2), kind="thermal")])
        found = await events(world, "DeviceUnhealthy", "DeviceDegraded")
    assert sorted(event.reason for event in found) == ["DeviceDegraded", "DeviceUnhealthy"]


async def test_a_device_that_is_left_out_is_seen(tmp_path: Path) -> None:
    """Where the server drops taints: an Event on the Node, the name in /readyz, a figure in /metrics."""
    async with (
        world_at(tmp_path, FakeCluster(disabled_gates=("DRADeviceTaints",))) as world,
        world.node(**QUICK) as node,
    ):
        await world.published()
        await break_gpu(node, 1, "lost")
        await world.published(gpus=3)
        found = await events(world, "DeviceUnhealthy", "DeviceUnpublished")
        text = node.exposition().decode()
        assert node.statuses()[0].unpublished == ("gpu-1",)
    (note,) = [event.note for event in found if event.reason == "DeviceUnpublished"]
    assert note.startswith(f"{GPU}: gpu-1: left out of its ResourceSlice")
    assert f'drasim_unpublished_devices{{driver="{GPU}"}} 1.0' in text


@pytest.mark.timeout(60)
async def test_status_of_a_running_node(world: World) -> None:
    """The command reads from the API server what the driver wrote there; --node and --all choose."""
    async with world.node(**QUICK) as node, over_http(world) as settings:
        await world.published()
        await in_use(world, "train", "gpu-1", "train-0")
        await break_gpu(node, 1, "xid", code="79")
        await until_tainted(world)
        kubeconfig = ("--kubeconfig", settings["kubeconfig"])
        code, out, err = await call("status", "-o", "json", *kubeconfig)
        table, nothing, everything = [
            (await call("status", *more, *kubeconfig))[1] for more in ((), ("--node", "node-b"), ("--all",))
        ]
    (row,) = json.loads(out)["devices"]
    assert (code, err) == (0, "")
    assert (row["node"], row["device"], row["health"], row["problems"][0]["code"]) == (NODE, "gpu-1", "Unhealthy", "79")
    assert row["usedBy"] == [{"namespace": "default", "claim": "train", "pods": ["train-0"]}]
    assert re.search(r"node-a +gpu-1 +Unhealthy +xid 79 +\d+s +NoSchedule +- +default/train +train-0\n", table)
    assert max(map(len, table.splitlines())) <= 120
    assert nothing.startswith("no slice of node-b-gpu or node-b-nic is published: is that the Node")
    assert everything.count("Healthy") == 7


@pytest.mark.timeout(60)
async def test_watching_ends_with_ctrl_c(world: World) -> None:
    """Each change is a line; Ctrl-C ends it with 0 and without a traceback."""
    async with world.node(**QUICK) as node, over_http(world) as settings:
        await world.published()
        process = await start("status", "--watch", "-o", "json", *flags({"kubeconfig": settings["kubeconfig"]}))
        await line(process, lambda document: document["others"] == 8)
        await break_gpu(node, 1, "xid", code="79")
        await line(process, lambda document: [row["device"] for row in document["devices"]] == ["gpu-1"])
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def until_tainted(world: World) -> None:
    """Wait until some device has a taint."""
    while not any(each.taints for part in await world.slices() for each in part.spec.devices or ()):  # noqa: ASYNC110 - the fake has nothing to wait for
        await asyncio.sleep(0.01)


async def line(process: asyncio.subprocess.Process, what: Callable[[Mapping[str, Any]], bool]) -> None:
    """Read lines until one is like that."""
    assert process.stdout is not None
    while not what(json.loads(await process.stdout.readline())):
        pass
