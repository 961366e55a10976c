"""What the drivers publish: brought back, changed without a gap, split into many slices."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from drasim.profiles import path_of
from hack.tour import chart
from hack.tour.clients import Failed, Object
from tests.cluster.objects import GPU, NIC, Space, claim, device_names, devices, pod
from tests.cluster.onnode import OnNode, left
from tests.cluster.outside import outside
from tests.cluster.real import RealCluster
from tests.cluster.watching import Pool, Watching, complete, pool_of, watching

WITHIN = 2.0  # seconds in which deleted slices are back, on a machine with nothing else to do
LATE = 10.0  # seconds after which a driver undoes any other change: for deleted slices it must not wait for so long
WRITES = 4  # of one pool in one rolling update, generously
EVERY = 8  # devices of each kind in the profile dgx


@pytest.fixture
def space(real_cluster: RealCluster) -> Iterator[Space]:
    """A namespace of the test's own."""
    with real_cluster.namespace("slices") as name:
        yield Space(real_cluster, name)


def pools(*nodes: int) -> list[Pool]:
    """Return the pools of the chart's drivers on some nodes."""
    return [pool_of(node, driver) for node in nodes for driver in (GPU, NIC)]


def test_slices_that_somebody_deletes_come_back(real_cluster: RealCluster) -> None:
    """All slices of a node are deleted by hand; seconds later both pools can be allocated from again."""
    with watching(real_cluster) as seen:
        real_cluster.clients.run("delete", "resourceslices", "--field-selector", "spec.nodeName=node2")
        seen.wait_wiped(*pools(2))
        seen.wait_complete(*pools(2))
    for pool in pools(2):
        gone = max(change.at for change in seen.of(pool) if change.what == "DELETED")
        took = next(at for at, slices in seen.states(pool) if at > gone and complete(slices)) - gone
        print(f"slices of {pool[1]} were back after {took:.2f} s (goal: {WITHIN} s)")
        assert took < LATE


@contextmanager
def upgrading(cluster: RealCluster, values: Object) -> Iterator[threading.Thread]:
    """Upgrade the release in the background; leaving waits for the end."""
    failures: list[Exception] = []

    def upgrade() -> None:
        try:
            cluster.install(values)
        except Exception as failure:  # noqa: BLE001  raised again below, in the test's own thread
            failures.append(failure)

    thread = threading.Thread(target=upgrade)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
    for failure in failures:
        raise failure


@pytest.fixture
def other_machine() -> Object:
    """Values of the chart that publish other content for the same devices."""
    profile = yaml.safe_load(path_of("dgx").read_text())
    profile["gpu"]["model"], profile["nic"]["model"] = "SIM-NEXT-GPU", "SIM-NEXT-NIC"
    config = {"simulation": {"profile": "/etc/drasim/profiles/next.yaml"}}
    return {"profiles": {"next": profile}, "config": config}


def test_a_rolling_update_leaves_no_gap(real_cluster: RealCluster, space: Space, other_machine: Object) -> None:
    """Old and new publish different things: never a device fewer, no failed Prepare, no fight, no socket left."""
    places = [OnNode(real_cluster, node, driver) for node in (1, 2) for driver in (GPU, NIC)]
    space.create(claim("held", {GPU: 1, NIC: 1}))
    space.started("held", "held", 2)
    held = space.claim("held")
    try:
        with watching(real_cluster) as seen, upgrading(real_cluster, other_machine) as update:
            started = keep_starting(space, update)
        wait_models(real_cluster, {"SIM-NEXT-GPU", "SIM-NEXT-NIC"})
    finally:
        with watching(real_cluster) as seen_back, upgrading(real_cluster, {}):
            pass
    print(f"{started} Pods were started during the update")
    assert started > 0
    assert space.failures() == []
    for watched in (seen, seen_back):
        check_no_gap(watched)
    for place in places:
        check_sockets(real_cluster, place)
    space.delete_pods("held")
    assert left(places, held) == []


def keep_starting(space: Space, update: threading.Thread) -> int:
    """Start and end Pods on both nodes until the update is through; return how many."""
    number = 0
    while update.is_alive():
        number += 1
        name = f"meanwhile-{number}"
        space.create(claim(name, {GPU: 1, NIC: 1}), pod(name, name, 1 + number % 2))
        space.running(name)
        space.cluster.clients.run("delete", "pod", name, "--namespace", space.name, "--wait=false")
    return number


def wait_models(cluster: RealCluster, wanted: set[str]) -> None:
    """Wait until all devices of the chart's drivers are of these models."""

    def there() -> bool:
        found = [entry for driver in (GPU, NIC) for entry in cluster.slices(driver)]
        models = {device["attributes"]["model"]["string"] for entry in found for device in entry["spec"]["devices"]}
        if models != wanted:
            raise Failed(f"models {models}")
        return True

    cluster.wait_for(f"models {wanted}", there)


def check_no_gap(seen: Watching) -> None:
    """Every pool had all its devices at any time, and was written a few times only."""
    for pool in pools(1, 2):
        counts = [len(set(device_names(slices))) for _, slices in seen.states(pool)]
        assert set(counts) == {EVERY}, f"{pool}: {counts}"
        generations = [slices[0]["spec"]["pool"]["generation"] for _, slices in seen.states(pool)]
        written = [change.what for change in seen.of(pool)]
        print(f"{pool[1]}: generations {generations}, writes {written}")
        assert 1 <= len(written) <= WRITES
        assert generations[-1] - generations[0] <= 2, f"{pool}: {generations}"


def check_sockets(cluster: RealCluster, place: OnNode) -> None:
    """Nothing but the newest instance has sockets or an instance file on the node."""
    uid = cluster.driver_pod(f"node{place.node}")["metadata"]["uid"]

    def found() -> tuple[list[str], list[str], list[str]]:
        return *place.sockets(), place.listed(f"{place.folder}/instances/*")

    cluster.wait_for("what the old instance had is gone", lambda: [len(paths) for paths in found()] == [1, 1, 1])
    (dra,), (registration,), (instance,) = found()
    assert uid in dra
    assert uid in instance
    assert registration.endswith("-reg.sock")


def test_300_gpus_are_split_into_slices(real_cluster: RealCluster, space: Space, tmp_path: Path) -> None:
    """At most 64 devices a slice, one complete pool; one GPU and 32 GPUs can be had from it."""
    profile = tmp_path / "many.yaml"
    profile.write_text(yaml.safe_dump({"roots": [{"numaNode": 0, "gpus": 4, "nics": 1, "count": 75}]}))
    with outside(real_cluster, "many", tmp_path, {"simulation.profile": str(profile)}, space) as driver:
        gpu = driver.gpu.driver
        real_cluster.wait_for("a complete pool", lambda: complete(driver.slices(gpu)))
        slices = driver.slices(gpu)
        sizes = [len(device_names([entry])) for entry in slices]
        assert (len(sizes) >= 5, max(sizes) <= 64, sum(sizes)) == (True, True, 300)
        assert len(set(device_names(slices))) == 300
        assert len({entry["spec"]["pool"]["generation"] for entry in slices}) == 1
        space.create(claim("one", {gpu: 1}), claim("many", {gpu: 32}))
        space.create(pod("one", "one", 2), pod("many", "many", 2))
        for name, count in (("one", 1), ("many", 32)):
            space.running(name)
            assert len(space.printed(name).devices) == count
        given = [name for each in ("one", "many") for name in devices(space.claim(each))]
        assert len(set(given)) == 33, "no device twice"
        assert all(re.fullmatch(rf"{gpu}/gpu-\d+", name) for name in given)
        space.delete_pods("one", "many")


def test_the_release_is_what_it_was(real_cluster: RealCluster) -> None:
    """The tests above leave the chart's own machine behind."""
    assert chart.config(real_cluster.settings)["simulation"] == {"profile": "dgx"}
    wait_models(real_cluster, {"SIM-H100-80G", "SIM-CX7-400G"})
