"""Sick hardware below a driver of its own: restarts, devices that come and go, probes and Prepare that fail."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from hack.tour.clients import Failed, Object
from tests.cluster.faulting import (
    HASTY,
    FaultFile,
    allocated_by_hand,
    device,
    node_events,
    published,
    wait_node_event,
    wait_pod_health,
    wait_taints,
)
from tests.cluster.objects import Space, claim, devices
from tests.cluster.onnode import OnNode
from tests.cluster.outside import Outside, outside
from tests.cluster.real import RealCluster
from tests.cluster.watching import complete, watching

NODE = "node2"
EVERY = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
LOST = {"lost": ("", "NoSchedule")}
UNPLUGGED = {"unplugged": ("", "NoSchedule")}


@dataclass(frozen=True)
class Sick:
    """A driver on node 2, the file of its faults, and a namespace."""

    driver: Outside
    faults: FaultFile
    space: Space

    @property
    def cluster(self) -> RealCluster:
        """The cluster."""
        return self.driver.cluster

    def place(self, name: str) -> tuple[str, str, str]:
        """Return where a GPU is published."""
        return self.driver.gpu.driver, NODE, name

    def gpus(self) -> set[str]:
        """Return the names of the GPUs that are published now."""
        return set(published(self.driver.slices(self.driver.gpu.driver)))

    def well(self) -> None:
        """Repair everything and wait until every GPU is published without a taint."""
        self.faults.repair()
        for name in sorted(EVERY):
            wait_taints(self.cluster, self.place(name), {})


@pytest.fixture(scope="module")
def module_sick(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sick]:
    """One driver for all tests of this module."""
    folder = tmp_path_factory.mktemp("sick")
    faults = FaultFile(folder / "faults.yaml", NODE)
    with real_cluster.namespace("sick") as name:
        space, settings = Space(real_cluster, name), {"simulation.faults": str(faults.path), **HASTY}
        with outside(real_cluster, "sick", folder, settings, space) as driver:
            yield Sick(driver, faults, space)


@pytest.fixture
def sick(module_sick: Sick) -> Iterator[Sick]:
    """That driver, with everything repaired and unprepared in the end."""
    yield module_sick
    module_sick.faults.repair()
    module_sick.space.delete_pods()
    module_sick.well()


def held(sick: Sick, name: str) -> str:
    """Start a Pod of that name with a GPU and return the GPU's name."""
    sick.space.create(claim(name, {sick.driver.gpu.driver: 1}))
    sick.space.started(name, name, 2)
    return devices(sick.space.claim(name))[0].partition("/")[2]


def prepared(place: OnNode, wanted: Object) -> str:
    """Prepare a claim and return the error, empty if there is none."""
    return str(place.prepare(wanted).get("error", ""))


def test_a_killed_driver_comes_back_with_the_taint(sick: Sick) -> None:
    """Killed, and its slices deleted: the first slice that the new process writes has the taint, of the same time."""
    cluster, place = sick.cluster, sick.place("gpu-0")
    sick.faults.put("gone", "gpu-0", "lost")
    before = wait_taints(cluster, place, LOST)
    sick.driver.end("KILL")
    with watching(cluster) as seen:
        cluster.clients.run("delete", "resourceslices", "--field-selector", f"spec.driver={place[0]}")
        sick.driver.start()
        wait_taints(cluster, place, LOST)
        states = [slices for _, slices in seen.states((place[0], f"{NODE}-gpu")) if slices]
    assert len(states) >= 2, "the slices of before, and the new ones"
    for slices in states:
        found = published(slices)["gpu-0"]
        assert (found.brief, found.since, found.health) == (LOST, before.since, "Unhealthy")


def test_a_reboot_drops_problems_by_a_fresh_look(sick: Sick) -> None:
    """Another boot id and a repaired device: the first looks of the new boot find it well, and the taint goes."""
    sick.faults.put("gone", "gpu-1", "lost")
    wait_taints(sick.cluster, sick.place("gpu-1"), LOST)
    sick.driver.end("KILL")
    sick.faults.repair()
    sick.driver.boot("second-boot")
    sick.driver.start()
    assert wait_taints(sick.cluster, sick.place("gpu-1"), {}).health == "Healthy"


def test_an_unplugged_device_stays_listed_while_it_is_held(sick: Sick) -> None:
    """Its Pod keeps it listed with a taint; when the Pod goes it goes, and plugged in again it is back."""
    name = held(sick, "pod")
    wait_pod_health(sick.space, "pod", "Healthy")
    with watching(sick.cluster) as seen:
        sick.faults.put("out", name, "unplugged")
        assert wait_taints(sick.cluster, sick.place(name), UNPLUGGED).health == "Unhealthy"
        wait_pod_health(sick.space, "pod", "Unhealthy", "unplugged")
        sick.space.delete_pods("pod")
        sick.cluster.wait_for("it is not published", lambda: sick.gpus() == EVERY - {name})
        sick.faults.repair()
        wait_taints(sick.cluster, sick.place(name), {})
        states = [slices for _, slices in seen.states((sick.driver.gpu.driver, f"{NODE}-gpu"))]
    assert all(complete(slices) for slices in states)
    assert {frozenset(published(slices)) for slices in states} == {frozenset(EVERY), frozenset(EVERY - {name})}
    assert sick.gpus() == EVERY


def test_unplugged_between_allocation_and_prepare(sick: Sick) -> None:
    """The claim names a device that went: the error says so; plugged in again, the same claim is prepared."""
    gpu = sick.driver.gpu
    wanted = allocated_by_hand(sick.space, "late", gpu, "gpu-3")
    sick.faults.put("out", "gpu-3", "unplugged")
    sick.cluster.wait_for("it is not published", lambda: "gpu-3" not in sick.gpus())
    error = prepared(gpu, wanted)
    assert "gpu-3" in error
    assert "unplugged" in error
    sick.faults.repair()
    wait_taints(sick.cluster, sick.place("gpu-3"), {})
    assert prepared(gpu, wanted) == ""
    release(sick, wanted)


def release(sick: Sick, wanted: Object) -> None:
    """Unprepare a claim that was allocated and prepared by hand, and delete it."""
    gpu, meta = sick.driver.gpu, wanted["metadata"]
    assert gpu.unprepare(wanted) == {}
    assert gpu.of_claim(meta["uid"]) == []
    sick.cluster.clients.run("delete", "resourceclaim", meta["name"], "--namespace", meta["namespace"])


def test_a_device_that_cannot_be_prepared_delays_no_other(sick: Sick) -> None:
    """One fails until it is repaired, one is slow, one's probe hangs: a claim on the fourth is prepared at once."""
    gpu = sick.driver.gpu
    names = {"fails": "gpu-1", "slow": "gpu-2", "quick": "gpu-0"}
    wanted = {name: allocated_by_hand(sick.space, name, gpu, given) for name, given in names.items()}
    sick.faults.put_all(
        {
            "fails": ("gpu-1", "prepare-fails", ""),
            "slow": ("gpu-2", "prepare-slow", "8"),
            "hangs": ("gpu-3", "probe-hangs", ""),
        }
    )
    wait_taints(sick.cluster, sick.place("gpu-3"), {"probe-hangs": ("", "NoSchedule")})
    with ThreadPoolExecutor() as threads:
        waiting: dict[str, Future[str]] = {
            name: threads.submit(prepared, gpu, wanted[name]) for name in ("fails", "slow")
        }
        assert prepared(gpu, wanted["quick"]) == ""
        assert not any(call.done() for call in waiting.values())
        sick.faults.repair("fails")
        assert {name: call.result() for name, call in waiting.items()} == {"fails": "", "slow": ""}
    for entry in wanted.values():
        release(sick, entry)


def test_a_probe_that_hangs_makes_a_device_unknown(sick: Sick) -> None:
    """Its health is Unknown, for the slice and the Pod; faults of other devices are seen all the same."""
    name = held(sick, "pod")
    wait_pod_health(sick.space, "pod", "Healthy")
    other = min(EVERY - {name})
    sick.faults.put("hangs", name, "probe-hangs")
    assert wait_taints(sick.cluster, sick.place(name), {"probe-hangs": ("", "NoSchedule")}).health == "Unknown"
    wait_pod_health(sick.space, "pod", "Unknown")
    sick.faults.put("other", other, "lost")
    assert wait_taints(sick.cluster, sick.place(other), LOST).health == "Unhealthy"
    assert device(sick.cluster, *sick.place(name)).health == "Unknown"
    sick.faults.repair()
    wait_pod_health(sick.space, "pod", "Healthy")
    assert wait_taints(sick.cluster, sick.place(name), {}).health == "Healthy"


def test_known_problems_are_not_told_again(sick: Sick) -> None:
    """A restart of the driver repeats no Event of a problem that was told before it."""
    sick.faults.put("old", "gpu-2", "thermal")
    wait_node_event(sick.cluster, NODE, "DeviceDegraded", sick.driver.gpu.driver, "gpu-2")
    told = len(_degraded(sick))
    sick.driver.end()
    sick.driver.start()
    sick.faults.put("new", "gpu-3", "thermal")
    wait_node_event(sick.cluster, NODE, "DeviceDegraded", sick.driver.gpu.driver, "gpu-3")
    assert len(_degraded(sick)) == told


def _degraded(sick: Sick) -> list[str]:
    told = node_events(sick.cluster, NODE, "DeviceDegraded")
    return [message for message in told if "gpu-2" in message and sick.driver.gpu.driver in message]


def test_a_file_that_cannot_be_read_changes_nothing(sick: Sick) -> None:
    """A broken file of faults is told of, and the faults of before stand until it can be read again."""
    sick.faults.put("gone", "gpu-0", "lost")
    before = wait_taints(sick.cluster, sick.place("gpu-0"), LOST)
    text = sick.faults.path.read_text()
    sick.faults.path.write_text("kind: [")

    def told() -> bool:
        lines = [line for line in sick.driver.log.read_text().splitlines() if line.startswith("{")]
        if not any(str(sick.faults.path) in line and json.loads(line)["level"] != "info" for line in lines):
            raise Failed("the log does not speak of it")
        return True

    sick.cluster.wait_for("the log names the file", told)
    found = device(sick.cluster, *sick.place("gpu-0"))
    assert (found.brief, found.since) == (LOST, before.since)
    sick.faults.path.write_text(text)
