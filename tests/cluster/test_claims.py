"""Claims that are written badly, vanish, take long, or cannot be unprepared."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hack.tour.clients import Failed
from tests.cluster.faulting import now, wait_event, wait_node_event
from tests.cluster.objects import FAILED_PREPARE, GPU, LIMITED, NIC, TUNED, Space, claim, pod
from tests.cluster.onnode import CDI, OnNode, left
from tests.cluster.outside import outside
from tests.cluster.real import RealCluster

NODE = 2
FAILED_UNPREPARE = "FailedUnprepareDynamicResources"
SLOW = 65.0  # seconds that a setting takes: the kubelet gives up after 45 and comes again 15 s later at the latest
MISSPELT = {"kind": "GpuConfig", "powerLimit": 300}


@pytest.fixture
def space(real_cluster: RealCluster) -> Iterator[Space]:
    """A namespace of the test's own."""
    with real_cluster.namespace("claims") as name:
        yield Space(real_cluster, name)


@contextmanager
def admission_off(cluster: RealCluster) -> Iterator[None]:
    """Take the policy for parameters out of the release, and put it back."""
    cluster.install({"admissionPolicies": {"slices": True, "parameters": False}})
    try:
        yield
    finally:
        cluster.install({})


def refusal(space: Space, manifest: dict[str, object]) -> str:
    """Return what the server says against an object; empty if nothing."""
    words = ["create", "--namespace", space.name, "--dry-run=server", "--filename", "-"]
    try:
        space.cluster.clients.run(*words, given=json.dumps(manifest))
    except Failed as refused:
        return str(refused)
    return ""


def test_misspelt_parameters_are_named(real_cluster: RealCluster, space: Space) -> None:
    """The server refuses them and names the key; with admission off the Pod's event does."""
    wrong = claim("wrong", {GPU: 1}, {GPU: MISSPELT})
    real_cluster.wait_for("the server refuses it", lambda: "powerLimit: unknown key" in refusal(space, wrong))
    with admission_off(real_cluster):
        real_cluster.wait_for("the server takes it", lambda: not refusal(space, wrong))
        space.create(wrong, pod("pod", "wrong", NODE))
        (message, *_) = real_cluster.wait_for("an event", lambda: space.events("pod", FAILED_PREPARE))
        assert "NodePrepareResources failed for ResourceClaim wrong: opaque parameters: powerLimit: " in message
        assert "powerLimitWatts" in message
        stored = space.claim("wrong")
        space.delete_pods("pod")
    real_cluster.wait_for("the server refuses it again", lambda: "powerLimit: unknown key" in refusal(space, wrong))
    assert left([OnNode(real_cluster, NODE, GPU)], stored) == []


def test_a_claim_deleted_by_force_is_unprepared(real_cluster: RealCluster, space: Space) -> None:
    """Its finalizer is taken away while the Pod runs; when the Pod goes, no record and no CDI spec is left."""
    places = [OnNode(real_cluster, NODE, driver) for driver in (GPU, NIC)]
    space.create(claim("gone", {GPU: 1, NIC: 1}, {GPU: LIMITED, NIC: TUNED}))
    space.started("pod", "gone", NODE)
    gone = space.claim("gone")
    assert len(left(places, gone)) == 4
    clients, where = real_cluster.clients, ["--namespace", space.name]
    clients.run("delete", "resourceclaim", "gone", *where, "--wait=false")
    clients.run("patch", "resourceclaim", "gone", *where, "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')
    assert clients.find("resourceclaim", "gone", *where) is None
    assert len(left(places, gone)) == 4, "nothing is released by guesswork"
    space.delete_pods("pod")
    assert left(places, gone) == []


def test_a_slow_prepare_is_joined_by_the_next_call(real_cluster: RealCluster, space: Space, tmp_path: Path) -> None:
    """The kubelet's call ends before the hardware is ready; the next call waits for the same work, and the Pod runs."""
    profile = tmp_path / "slow.yaml"
    profile.write_text(yaml.safe_dump({"roots": [{"gpus": 1, "nics": 1}], "stepSeconds": SLOW}))
    with outside(real_cluster, "slow", tmp_path, {"simulation.profile": str(profile)}, space) as driver:
        gpu = driver.gpu
        space.create(claim("slow", {gpu.driver: 1}, {gpu.driver: LIMITED}), pod("pod", "slow", NODE))
        (message, *_) = real_cluster.wait_for("an event", lambda: space.events("pod", FAILED_PREPARE))
        assert "still being worked on when the call's time was over" in message
        space.running("pod")
        assert space.printed("pod").variables["DRASIM_GPU_0_POWER_LIMIT_WATTS"] == "300"
        (first, *_), (last,) = driver.entries("prepare failed"), driver.entries("prepared")
        print(f"first call: {first['error']!r}; the last one waited {last['seconds']} s of {SLOW} s")
        assert last["seconds"] < SLOW / 2, "the last call did not begin anew"
        slow = space.claim("slow")
        space.delete_pods("pod")
        assert left([gpu], slow) == []
        assert "settings" not in driver.machine()


def test_a_failed_unprepare_is_told(real_cluster: RealCluster, space: Space) -> None:
    """The kubelet says nothing of it: the driver writes an Event on the claim and on the Node, and goes on trying."""
    gpu, began = OnNode(real_cluster, NODE, GPU), now()
    space.create(claim("stuck", {GPU: 1}))
    space.started("pod", "stuck", NODE)
    stuck = space.claim("stuck")
    obstacle = f"{CDI}/k8s.{GPU}-claim_{stuck['metadata']['uid']}.json"
    gpu.run("mkdir", obstacle)
    try:
        real_cluster.clients.run("delete", "pod", "pod", "--namespace", space.name, "--wait=false")
        wanted = f"{GPU} on node{NODE}: CDI spec {obstacle} cannot be removed"
        message = wait_event(space, "stuck", FAILED_UNPREPARE, wanted)
        assert message.startswith(wanted)
        told = f"claim {space.name}/stuck cannot be unprepared: {message}"
        assert wait_node_event(real_cluster, f"node{NODE}", began, FAILED_UNPREPARE, told) == told
        assert space.events("stuck", FAILED_UNPREPARE) == [message], "told once"
    finally:
        gpu.run("rmdir", obstacle)
    space.delete_pods("pod")
    assert left([gpu], stuck) == []
