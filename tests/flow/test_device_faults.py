"""DeviceFaults, from the object or the command line to the slice, with the whole `drasim node` in this process."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dra_plugin.resources import ObjectMeta
from drasim.faults import DEVICE_FAULT, DeviceFault, DeviceFaultSpec, DeviceFaultStatus
from drasim.faults.manifests import write_manifests
from tests.driver.faulting import cluster, fault
from tests.flow.nodes import GPU, NIC, NODE, World, world_at
from tests.flow.processes import call, flags, over_http, start

QUICK = {"problems__clearAfter": "100ms", "problems__clearAfterMost": "100ms"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Give a node of a cluster that has the CRD."""
    with TemporaryDirectory(prefix="flow-") as folder:
        async with world_at(Path(folder), cluster()) as world:
            yield world


async def put(world: World, name: str = "a", **spec: str) -> DeviceFault:
    given = DeviceFaultSpec(node=NODE, **spec)
    return await world.cluster.create(DEVICE_FAULT, DeviceFault(metadata=ObjectMeta(name=name), spec=given))


async def taints(world: World, driver: str = GPU) -> dict[str, list[str]]:
    """Return key, value and effect of the taints that are published, by device."""
    return {
        device.name: [f"{taint.key}={taint.value or ''}:{taint.effect}" for taint in device.taints]
        for part in await world.slices()
        if part.spec.driver == driver
        for device in part.spec.devices or ()
        if device.taints
    }


async def tainted(world: World, expected: dict[str, list[str]], driver: str = GPU) -> None:
    """Wait until exactly these taints are published."""
    while await taints(world, driver) != expected:  # noqa: ASYNC110 - asks an API server
        await asyncio.sleep(0.01)


async def status_of(world: World, phase: str, name: str = "a") -> DeviceFaultStatus:
    while True:
        stored = await world.cluster.get(DEVICE_FAULT, name)
        if stored is not None and stored.status is not None and stored.status.phase == phase:
            return stored.status
        await asyncio.sleep(0.01)


async def test_a_fault_taints_its_device_and_no_other_slice(world: World) -> None:
    """One write of one slice, no new generation; the status says when and where; deleting it is the repair."""
    async with world.node(**QUICK):
        before = {part.spec.driver: part for part in await world.published()}
        obj = await put(world, device="gpu-1", kind="xid", code="79")
        await tainted(world, {"gpu-1": [f"{GPU}/xid=79:NoSchedule"]})
        after = {part.spec.driver: part for part in await world.slices()}
        assert after[NIC] == before[NIC]
        assert after[GPU].spec.pool.generation == before[GPU].spec.pool.generation
        assert after[GPU].metadata.generation == 2
        assert (await status_of(world, "Active")).devices == ("gpu-1",)
        await world.cluster.delete(DEVICE_FAULT, (await world.cluster.get(DEVICE_FAULT, "a")) or obj)
        await tainted(world, {})


async def test_a_root_takes_gpu_and_nic_down(world: World) -> None:
    """Both drivers publish it, with the root as value."""
    async with world.node(**QUICK):
        parts = {part.spec.driver: part for part in await world.published()}
        attributes = (parts[GPU].spec.devices or ())[0].attributes or {}
        root = attributes["resource.kubernetes.io/pcieRoot"].string or ""
        await put(world, device=root, kind="down")
        value = root.replace(":", "-")
        await tainted(world, {"gpu-0": [f"{GPU}/down={value}:NoSchedule"]})
        await tainted(world, {"nic-0": [f"{NIC}/down={value}:NoSchedule"]}, NIC)


async def test_a_restart_has_no_untainted_moment(world: World) -> None:
    """The fault outlives the process: what the next one publishes first carries the taint."""
    expected = {"gpu-1": [f"{GPU}/lost=:NoSchedule"]}
    async with world.node(**QUICK):
        await world.published()
        await put(world, device="gpu-1", kind="lost")
        await tainted(world, expected)
    world.cluster.faults.fail("list", code=500, times=2, plural="devicefaults")
    version = world.cluster.store.version.value
    async with world.node("pod-2", **QUICK):
        await status_of(world, "Active")
        await asyncio.sleep(0.3)
    written = [
        entry.after for entry in world.cluster.store.since(version) if entry.resource.startswith("resourceslices")
    ]
    assert all(
        device.get("taints")
        for part in written
        if part and part["spec"]["driver"] == GPU
        for device in part["spec"]["devices"]
        if device["name"] == "gpu-1"
    )
    assert await taints(world) == expected


async def test_prepare_fails_while_it_should(world: World) -> None:
    """A fault of behaviour taints nothing: the claim waits inside its call and is prepared once the fault is gone."""
    async with world.node(**QUICK):
        await world.published()
        await put(world, device="gpu-1", kind="prepare-fails")
        await status_of(world, "Active")
        ref = await world.claim("a", "gpu-1")
        async with asyncio.TaskGroup() as group:
            preparing = group.create_task(world.prepare(GPU, ref))
            await asyncio.sleep(0.3)
            assert (preparing.done(), await taints(world)) == (False, {})
            stored = await world.cluster.get(DEVICE_FAULT, "a")
            assert stored is not None
            await world.cluster.delete(DEVICE_FAULT, stored)
        assert [answer.error for answer in preparing.result()] == [""]


async def test_a_cluster_without_the_crd(world: World) -> None:
    """The driver serves all the same; a file is a source of faults there, too."""
    world.cluster.catalog.withdraw("devicefaults")
    file = world.folder / "faults.yaml"
    write_manifests(file, (fault(device="nic-2", kind="link-down"),))
    async with world.node(simulation__faults=str(file), **QUICK):
        await world.published()
        await tainted(world, {"nic-2": [f"{NIC}/link-down=:NoSchedule"]}, NIC)
        file.unlink()
        await tainted(world, {}, NIC)


@pytest.mark.timeout(60)
async def test_the_command_line_on_a_cluster(world: World) -> None:
    """The only node need not be named; inject, list and clear work on objects; mistakes name what is allowed."""
    async with over_http(world) as settings, world.node(**QUICK):
        await world.published()
        used = flags({key: value for key, value in settings.items() if key != "nodeName"})
        code, out, err = await call("fault", "inject", "gpu-1", "xid", "79", *used)
        assert (code, out) == (0, f"injected {NODE}-gpu-1-xid-79 (xid 79 on gpu-1 of {NODE})\n"), err
        await tainted(world, {"gpu-1": [f"{GPU}/xid=79:NoSchedule"]})
        await status_of(world, "Active", f"{NODE}-gpu-1-xid-79")
        _, out, _ = await call("fault", "list", "-o", "json", *used)
        assert [item["status"]["phase"] for item in json.loads(out)["items"]] == ["Active"]
        for words, expected in (
            (
                ("gpu-9", "lost"),
                'DEVICE: "gpu-9" is no device of this machine; allowed: gpu-0, gpu-1, gpu-2, gpu-3, nic-0',
            ),
            (
                ("gpu-0", "lost", "--node", "node-z"),
                f'--node: "node-z" is no Node of this cluster (did you mean "{NODE}"?)',
            ),
        ):
            code, _, err = await call("fault", "inject", *words, *used)
            assert (code, expected in err) == (2, True), err
        code, out, _ = await call("fault", "clear", "gpu-1", *used)
        assert (code, out) == (0, f"cleared {NODE}-gpu-1-xid-79\n")
        await tainted(world, {})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_scenario_that_is_broken_off(world: World, signum: signal.Signals) -> None:
    """Ctrl-C repairs what the scenario injected, says what, and ends with exit code 1."""
    story = world.folder / "story.yaml"
    story.write_text("steps: [{at: 0s, inject: {device: gpu-2, kind: lost, duration: 1h}}]")
    async with over_http(world) as settings, world.node(**QUICK):
        await world.published()
        process = await start("fault", "run", str(story), *flags(settings))
        await tainted(world, {"gpu-2": [f"{GPU}/lost=:NoSchedule"]})
        process.send_signal(signum)
        out, err = await process.communicate()
        assert (process.returncode, out.decode()) == (1, f"+0.0s inject {NODE} gpu-2 lost\n"), err
        assert f"repaired: {NODE}-gpu-2-lost-story-1" in err.decode()
        await tainted(world, {})


async def test_a_burst_of_faults_is_few_writes(world: World) -> None:
    """Faults on all devices at once are published together, not one after the other."""
    async with world.node(**QUICK):
        await world.published()
        version = world.cluster.store.version.value
        for number in range(40):
            await put(world, f"f{number}", device=f"gpu-{number % 4}", kind="xid", code=str(900 + number))
        for number in range(40):
            await status_of(world, "Active", f"f{number}")
        while set(await taints(world)) != {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}:  # noqa: ASYNC110 - asks an API server
            await asyncio.sleep(0.01)
        entries = world.cluster.store.since(version)
        assert sum(entry.resource.startswith("resourceslices") for entry in entries) <= 4
