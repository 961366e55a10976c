"""DeviceFaults on the chart's drivers: what the node publishes and says, and what is refused."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby

import msgspec
import pytest

from dra_plugin.kube import KubeCluster, from_kubeconfig
from dra_plugin.resources import Kind, ObjectMeta
from hack.tour.clients import Failed, Object
from tests.cluster.faulting import (
    FAULTS,
    TEST,
    Faults,
    device,
    fault,
    faults,
    now,
    published,
    wait_event,
    wait_node_event,
    wait_pod_health,
    wait_taints,
    writes,
)
from tests.cluster.objects import GPU, NIC, Space, claim, devices
from tests.cluster.real import PATIENCE, RealCluster
from tests.cluster.watching import FAULTS as FAULTS_PATH
from tests.cluster.watching import Pool, Watching, pool_of, watching

NODE = "node1"
BURST = 100
FEW = 12  # writes of one pool during a burst, however long that takes: its eight devices fail once each


@pytest.fixture
def space(real_cluster: RealCluster) -> Iterator[Space]:
    """A namespace of the test's own."""
    with real_cluster.namespace("faults") as name:
        yield Space(real_cluster, name)


@pytest.fixture
def given(real_cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[Faults]:
    """The faults of a test; nothing of them is left in the slices afterwards."""
    with faults(real_cluster, request.node.originalname.removeprefix("test_").replace("_", "-")[:40]) as found:
        yield found


EVERYTHING = [pool_of(node, driver) for driver in (GPU, NIC) for node in (1, 2)]
"""All pools of the chart's drivers."""


def test_a_fault_is_seen_by_everybody(real_cluster: RealCluster, space: Space, given: Faults) -> None:
    """Taint and health in one write of one slice, the Pod's status, Events on Node and Pod; and back."""
    space.create(claim("held", {GPU: 1}))
    space.started("pod", "held", 1)
    name = devices(space.claim("held"))[0].partition("/")[2]
    place, began = (GPU, NODE, name), now()
    wait_pod_health(space, "pod", "Healthy")
    with watching(real_cluster) as seen:
        given.create(fault("sick", NODE, name, "xid", "79"))
        assert wait_taints(real_cluster, place, {"xid": ("79", "NoSchedule")}).health == "Unhealthy"
        wait_pod_health(space, "pod", "Unhealthy", "xid 79")
        wait_node_event(real_cluster, NODE, began, "DeviceUnhealthy", name, "xid 79")
        wait_event(space, "pod", "DeviceUnhealthy", name, "xid 79")
    assert written(seen) == {each: ["MODIFIED"] * (each == pool_of(1, GPU)) for each in EVERYTHING}
    assert given.wait("sick", "Active")["devices"] == [name]
    with watching(real_cluster) as seen:
        given.repair()
        assert wait_taints(real_cluster, place, {}).health == "Healthy"
        wait_pod_health(space, "pod", "Healthy")
        wait_event(space, "pod", "DeviceRecovered", name)
        wait_node_event(real_cluster, NODE, began, "DeviceRecovered", name)
    assert writes(seen, pool_of(1, GPU)) == ["MODIFIED"]


def written(seen: Watching) -> dict[Pool, list[str]]:
    """Return what happened to the slices of each pool of the chart's drivers."""
    return {each: writes(seen, each) for each in EVERYTHING}


def test_problems_of_a_device_hold_and_clear_alone(real_cluster: RealCluster, given: Faults) -> None:
    """Each has a taint with an effect of its own; one that goes leaves the other with the time that it had."""
    place = (NIC, NODE, "nic-5")
    both = {"link-down": ("", "NoSchedule"), "crc-errors": ("", "None")}
    given.create(*[fault(kind, NODE, "nic-5", kind) for kind in both])
    sick = wait_taints(real_cluster, place, both)
    assert (sick.health, sick.attribute("linkState")) == ("Unhealthy", "down")
    given.repair("link-down")
    left = wait_taints(real_cluster, place, {"crc-errors": ("", "None")})
    assert (left.health, left.attribute("linkState")) == ("Healthy", "up")
    assert left.since["crc-errors"] == sick.since["crc-errors"]


def test_another_effect_gives_another_time(real_cluster: RealCluster, given: Faults) -> None:
    """A harmless XID informs only; when a bad one joins it, the taint of the kind is of the bad one's time."""
    place, began = (GPU, NODE, "gpu-6"), _now(real_cluster)
    given.create(fault("harmless", NODE, "gpu-6", "xid", "13"))
    before = wait_taints(real_cluster, place, {"xid": ("13", "None")})
    assert before.health == "Healthy"
    started: str = given.wait("harmless", "Active")["firstSeen"]
    real_cluster.wait_for("another second", lambda: _now(real_cluster) > before.since["xid"])
    given.create(fault("bad", NODE, "gpu-6", "xid", "79"))
    after = wait_taints(real_cluster, place, {"xid": ("79", "NoSchedule")})
    assert after.health == "Unhealthy"
    assert after.since["xid"] > before.since["xid"]
    assert began <= started <= before.since["xid"], "given, told to the machine, and found there by a look"
    assert given.wait("harmless", "Active")["firstSeen"] == started


def _now(cluster: RealCluster) -> str:
    return cluster.on_node(1, "date", "-u", "+%Y-%m-%dT%H:%M:%SZ").strip()


def test_a_root_that_is_down_takes_both_devices(real_cluster: RealCluster, given: Faults) -> None:
    """GPU and NIC below it are tainted with the root's name, each slice with one write; nothing else is touched."""
    down = {"down": ("pci0000-d7", "NoSchedule")}
    below = [
        (driver, name)
        for driver in (GPU, NIC)
        for name, found in published(real_cluster.slices(driver, NODE)).items()
        if found.attribute("resource.kubernetes.io/pcieRoot") == "pci0000:d7"
    ]
    assert len(below) == 2
    with watching(real_cluster) as seen:
        given.create(fault("root", NODE, "pci0000:d7", "down"))
        for driver, name in below:
            wait_taints(real_cluster, (driver, NODE, name), down)
    assert written(seen) == {each: ["MODIFIED"] * each[1].startswith(NODE) for each in EVERYTHING}
    assert sorted(given.wait("root", "Active")["devices"]) == sorted(name for _, name in below)


def test_a_fault_with_a_time_line(real_cluster: RealCluster, given: Faults) -> None:
    """It waits for `after`, stands for `duration`, and is over by itself; its status says so."""
    with watching(real_cluster, FAULTS_PATH) as told, watching(real_cluster) as seen:
        given.create(
            fault("short", NODE, "nic-6", "lost", after="8s", duration="8s")
        )  # long enough to write of each phase
        cleared = given.wait("short", "Cleared")
        wait_taints(real_cluster, (NIC, NODE, "nic-6"), {})
    objects = [change.object for change in told.changes if change.object["metadata"]["name"] == given.named("short")]
    statuses = [entry["status"] for entry in objects if "status" in entry]
    assert [phase for phase, _ in groupby(status["phase"] for status in statuses)] == ["Pending", "Active", "Cleared"]
    assert statuses[0]["reason"]
    taints = [published(slices)["nic-6"].brief for _, slices in seen.states(pool_of(1, NIC))]
    assert [brief for brief, _ in groupby(taints)] == [{}, {"lost": ("", "NoSchedule")}, {}]
    assert cleared["firstSeen"] <= cleared["lastSeen"]
    columns = real_cluster.clients.run("get", FAULTS, given.named("short")).splitlines()
    assert columns[0].split()[:6] == ["NAME", "NODE", "DEVICE", "KIND", "CODE", "PHASE"]
    assert columns[1].split()[1:4] == [NODE, "nic-6", "lost"]


def unheard_of(cluster: RealCluster) -> dict[str, tuple[Object, str]]:
    """Return faults that only the node, or nobody, can judge, each with what is wrong with it."""
    address = str(device(cluster, NIC, NODE, "nic-4").attribute("resource.kubernetes.io/pciBusID"))
    return {
        "unknown-device": (fault("unknown-device", NODE, "gpu-99", "lost"), "gpu-99"),
        "wrong-kind": (fault("wrong-kind", NODE, address, "xid", "79"), "xid"),
        "wrong-root": (fault("wrong-root", NODE, "pci0000:ff", "down"), "pci0000:ff"),
        "unknown-node": (fault("unknown-node", "node99", "gpu-0", "lost"), "node99"),
    }


def test_faults_that_cannot_be_are_refused(real_cluster: RealCluster, given: Faults) -> None:
    """Unknown devices, kinds that a device cannot have, unknown nodes: refused with a reason, and no slice changes."""
    wrong = unheard_of(real_cluster)
    with watching(real_cluster) as seen:
        given.create(*[entry for entry, _ in wrong.values()])
        reasons = {name: given.wait(name, "Refused")["reason"] for name in wrong}
    print("\n".join(reasons.values()))
    assert {name: reason for name, reason in reasons.items() if wrong[name][1] not in reason} == {}
    assert written(seen) == {each: [] for each in EVERYTHING}


BAD: dict[str, tuple[Object, str]] = {
    "kind": ({"device": "gpu-0", "kind": "explodes"}, "spec.kind"),
    "no device": ({"kind": "lost"}, "device"),
    "two devices": ({"device": "gpu-0", "all": "gpu", "kind": "lost"}, "device"),
    "kind that a GPU cannot have": ({"device": "gpu-0", "kind": "link-down"}, "spec.kind"),
    "root": ({"device": "gpu-0", "kind": "down"}, "spec.device"),
    "all": ({"all": "fpga", "kind": "lost"}, "spec.all"),
    "xid without code": ({"device": "gpu-0", "kind": "xid"}, "code"),
    "xid that is no number": ({"device": "gpu-0", "kind": "xid", "code": "x"}, "code"),
    "code that says nothing": ({"device": "gpu-0", "kind": "lost", "code": "1"}, "code"),
    "duration": ({"device": "gpu-0", "kind": "lost", "duration": "soon"}, "duration"),
    "unknown key": ({"device": "gpu-0", "kind": "lost", "severity": "high"}, "severity"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_faults_are_refused_by_the_server(real_cluster: RealCluster, case: str) -> None:
    """The message names the field; kubectl says it before anything is stored."""
    spec, field = BAD[case]
    bad = {**fault("bad", NODE, "x", "lost"), "spec": {"node": NODE, **spec}}
    with pytest.raises(Failed) as refused:
        real_cluster.clients.run("create", "--dry-run=server", "--filename", "-", given=json.dumps(bad))
    assert field in str(refused.value)
    print(str(refused.value).partition("failed: ")[2])


def test_the_command_line_writes_the_same_objects(real_cluster: RealCluster) -> None:
    """`drasim fault inject`, `list` and `clear` work on a cluster; what cannot be is refused before it is written."""

    def drasim(*words: str) -> "subprocess.CompletedProcess[str]":
        command, env = (
            [sys.executable, "-m", "drasim", *words],
            {**os.environ, "KUBECONFIG": str(real_cluster.kubeconfig)},
        )
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=env)

    refused = drasim("fault", "inject", "--node", NODE, "gpu-99", "lost")
    assert refused.returncode != 0
    assert "gpu-99" in refused.stderr
    injected = drasim("fault", "inject", "--node", NODE, "gpu-4", "ecc-uncorrectable")
    assert injected.returncode == 0, injected.stderr
    try:
        wait_taints(real_cluster, (GPU, NODE, "gpu-4"), {"ecc-uncorrectable": ("", "NoSchedule")})
        listed = drasim("fault", "list", "--node", NODE, "-o", "json")
        assert "gpu-4" in listed.stdout, listed.stderr
        shown = drasim("status", "--node", NODE, "-o", "json")
        assert "ecc-uncorrectable" in shown.stdout, shown.stderr
    finally:
        cleared = drasim("fault", "clear", "--node", NODE, "gpu-4")
    assert cleared.returncode == 0, cleared.stderr
    wait_taints(real_cluster, (GPU, NODE, "gpu-4"), {})


class Written(msgspec.Struct, frozen=True, kw_only=True, rename={"api_version": "apiVersion"}):
    """A DeviceFault as this module writes it."""

    api_version: str = "dra.example.com/v1alpha1"
    kind: str = "DeviceFault"
    metadata: ObjectMeta
    spec: dict[str, str]


WRITTEN = Kind("dra.example.com", "v1alpha1", "devicefaults", "DeviceFault", False, Written)


def test_a_burst_of_faults_needs_few_writes(real_cluster: RealCluster, given: Faults) -> None:
    """A hundred faults at once: each is told Active, and the slice is written a few times, not a hundred."""
    specs = {
        f"{number}": {"node": NODE, "device": f"gpu-{number % 8}", "kind": "xid", "code": f"{100 + number}"}
        for number in range(BURST)
    }
    with watching(real_cluster) as seen:
        asyncio.run(_create(real_cluster, given, specs))

        def active() -> bool:
            found = real_cluster.clients.items(FAULTS, "--selector", f"{TEST}={given.purpose}")
            phases = [entry.get("status", {}).get("phase") for entry in found]
            if phases.count("Active") != BURST:
                raise Failed(f"phases {dict.fromkeys(phases)}, {phases.count('Active')} Active")
            return True

        real_cluster.wait_for("all faults are Active", active)
        real_cluster.wait_for("every GPU is published as sick", lambda: health_of_all(real_cluster) == {"Unhealthy"})
    found = writes(seen, pool_of(1, GPU))
    print(f"{BURST} faults: {len(found)} writes")
    assert 1 <= len(found) <= FEW
    assert set(found) == {"MODIFIED"}


def health_of_all(cluster: RealCluster) -> set[object]:
    """Return the health that the GPUs of the node are published with."""
    return {found.health for found in published(cluster.slices(GPU, NODE)).values()}


async def _create(cluster: RealCluster, given: Faults, specs: dict[str, dict[str, str]]) -> None:
    async with KubeCluster(from_kubeconfig(cluster.kubeconfig)) as client, asyncio.TaskGroup() as group:
        for name, spec in specs.items():
            meta = ObjectMeta(name=given.named(name), labels={TEST: given.purpose})
            group.create_task(client.create(WRITTEN, Written(metadata=meta, spec=spec)))
