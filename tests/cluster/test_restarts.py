"""Pods keep their devices when the driver, the kubelet or the whole node is started again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.tour.clients import Failed, Object
from hack.tour.devices import Seen
from tests.cluster.objects import FAILED_PREPARE, GPU, LIMITED, NIC, TUNED, Space, claim, devices, identity, pod
from tests.cluster.onnode import CDI, OnNode, cdi_ids, left
from tests.cluster.outside import Outside, outside
from tests.cluster.real import RealCluster
from tests.cluster.watching import pool_of, watching

NODE = 2


@pytest.fixture
def space(real_cluster: RealCluster) -> Iterator[Space]:
    """A namespace of the test's own."""
    with real_cluster.namespace("restarts") as name:
        yield Space(real_cluster, name)


def drivers(cluster: RealCluster) -> tuple[OnNode, OnNode]:
    """Return the drivers of the chart on the node that these tests disturb."""
    return OnNode(cluster, NODE, GPU), OnNode(cluster, NODE, NIC)


def driver_container(cluster: RealCluster, restarts: int = 0) -> Object:
    """Return the status of the driver's container on that node, once it is ready and was restarted so often."""

    def ready() -> Object:
        status: Object = cluster.driver_pod(f"node{NODE}")["status"]["containerStatuses"][0]
        if not status["ready"] or int(status["restartCount"]) < restarts:
            raise Failed(f"restarts: {status['restartCount']}, ready: {status['ready']}, {status['state']}")
        return status

    return cluster.wait_for("the driver's container is ready", ready)


def prepared_by(cluster: RealCluster, uid: str) -> int:
    """Return how often the driver's present container answered a Prepare of the claim with success."""
    meta = cluster.driver_pod(f"node{NODE}")["metadata"]
    log = cluster.clients.run("logs", meta["name"], "--namespace", meta["namespace"])
    return sum('"event":"prepared"' in line.replace(" ", "") and uid in line for line in log.splitlines())


def test_a_killed_driver_finds_its_claims_again(real_cluster: RealCluster, space: Space) -> None:
    """SIGKILL under a running Pod: the claim stays prepared with the same CDI ids, the Pod notices nothing."""
    gpu, nic = places = drivers(real_cluster)
    space.create(claim("kept", {GPU: 1, NIC: 1}, {GPU: LIMITED, NIC: TUNED}))
    before = identity(space.started("pod", "kept", NODE))
    kept = space.claim("kept")
    uid = kept["metadata"]["uid"]
    answers, files = [place.prepare(kept) for place in places], left(places, kept)
    assert len(files) == 4, "a record and a CDI spec of each driver"
    old = driver_container(real_cluster)
    real_cluster.on_node(
        NODE, "ctr", "-n", "k8s.io", "task", "kill", "--signal", "SIGKILL", old["containerID"].rpartition("/")[2]
    )
    driver_container(real_cluster, int(old["restartCount"]) + 1)
    assert [place.prepare(kept) for place in places] == answers
    assert [name for answer in answers for name in cdi_ids(answer)] == [
        name for place in places for device in place.record(uid)["devices"] for name in device["cdiIds"]
    ]
    assert (identity(space.pod("pod")), left(places, kept)) == (before, files)
    space.delete_pods("pod")
    assert left((gpu, nic), kept) == []


def test_a_restarted_kubelet_disturbs_no_pod(real_cluster: RealCluster, space: Space) -> None:
    """Slices come back; a new Pod never meets an unregistered driver; a second Pod of the claim gets the same."""
    places = drivers(real_cluster)
    space.create(claim("shared", {GPU: 1, NIC: 1}, {GPU: LIMITED}), claim("late", {GPU: 1}))
    before = identity(space.started("one", "shared", NODE))
    shared = space.claim("shared")
    uid, files = shared["metadata"]["uid"], left(places, shared)
    asked = real_cluster.wait_for("both drivers log it", lambda: (told := prepared_by(real_cluster, uid)) >= 2 and told)
    with watching(real_cluster) as seen:
        real_cluster.launcher("restart", "kubelet", "--node", str(NODE))
        pools = [pool_of(NODE, place.driver) for place in places]
        seen.wait_wiped(*pools)
        space.started("late", "late", NODE)
        seen.wait_complete(*pools)
    assert space.events("late", FAILED_PREPARE) == []
    assert identity(space.pod("one")) == before
    space.started("two", "shared", NODE)
    real_cluster.wait_for("the kubelet asks both drivers again", lambda: prepared_by(real_cluster, uid) >= asked + 2)
    assert space.printed("two").variables == space.printed("one").variables
    assert (identity(space.pod("one")), left(places, shared)) == (before, files)
    space.delete_pods("one", "two", "late")
    assert left(places, shared) == []


def test_a_rebooted_node_prepares_again(real_cluster: RealCluster, space: Space, tmp_path: Path) -> None:
    """Another boot id, an empty CDI directory, a machine that forgot its settings: the next Prepare makes it all."""
    with outside(real_cluster, "reboot", tmp_path, space=space) as driver:
        places = driver.gpu, driver.nic
        space.create(claim("kept", dict.fromkeys([p.driver for p in places], 1), {driver.gpu.driver: LIMITED}))
        space.started("before", "kept", NODE)
        kept, first = space.claim("kept"), space.printed("before")
        reboot(driver)
        assert driver.gpu.specs() == ["/".join((CDI, f"k8s.{driver.gpu.driver}-device.json"))]
        space.started("after", "kept", NODE)
        check_made_again(driver, kept, first, space)
        space.delete_pods("before", "after")
        assert left(places, kept) == []


def reboot(driver: Outside) -> None:
    """Do to the driver what a reboot of its node does."""
    with watching(driver.cluster) as seen:  # a kubelet deletes the slices half a minute after the end, too
        driver.end("KILL")
        for place in (driver.gpu, driver.nic):
            place.run("rm", "-f", *place.specs())
        driver.boot("second-boot")
        driver.cluster.launcher("restart", "kubelet", "--node", str(NODE))
        seen.wait_wiped(*[pool_of(NODE, place.driver) for place in (driver.gpu, driver.nic)])
        driver.start()


def check_made_again(driver: Outside, kept: Object, first: Seen, space: Space) -> None:
    """The same devices with the same settings, made in this boot."""
    uid = kept["metadata"]["uid"]
    assert space.printed("after").variables == first.variables
    assert [place.record(uid)["bootId"] for place in (driver.gpu, driver.nic)] == ["second-boot"] * 2
    (settings,) = driver.machine()["settings"].values()
    assert (driver.machine()["bootID"], settings) == ("second-boot", {uid: {"powerLimitWatts": 300}})
    assert devices(space.claim("kept")) == devices(kept)


def test_a_pod_that_comes_while_the_kubelet_is_away(real_cluster: RealCluster, space: Space) -> None:
    """It was bound while the old slices stood; the kubelet that comes back finds the driver, and it runs.

    Which it comes to first, the Pod or the driver's socket, is the kubelet's own affair.
    """
    space.create(claim("meanwhile", {GPU: 1}))
    real_cluster.launcher("stop", "kubelet", "--node", str(NODE))
    try:
        space.create(pod("meanwhile", "meanwhile", NODE))
        real_cluster.wait_for("the Pod is bound", lambda: space.pod("meanwhile")["spec"].get("nodeName"))
    finally:
        real_cluster.launcher("start", "kubelet", "--node", str(NODE))
    space.running("meanwhile")
    failures = space.events("meanwhile", FAILED_PREPARE)
    assert [message for message in failures if f"DRA driver {GPU} is not registered" not in message] == []
