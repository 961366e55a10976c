"""Sick hardware below a driver of its own: restarts, devices that come and go, probes and Prepare that fail."""

import json
from concurrent.futures import Future, ThreadPoolExecutor

from hack.tour.clients import Failed, Object
from tests.cluster.faulting import (
    allocated_by_hand,
    device,
    node_events,
    now,
    published,
    wait_node_event,
    wait_pod_health,
    wait_taints,
)
from tests.cluster.ground import EVERY, LOST, Ground
from tests.cluster.objects import claim, devices
from tests.cluster.onnode import OnNode
from tests.cluster.watching import complete, pool_of, watching

UNPLUGGED = {"unplugged": ("", "NoSchedule")}


def held(ground: Ground, name: str) -> str:
    """Start a Pod of that name with a GPU and return the GPU's name."""
    ground.space.create(claim(name, {ground.gpu: 1}))
    ground.space.started(name, name, 2)
    return devices(ground.space.claim(name))[0].partition("/")[2]


def prepared(place: OnNode, wanted: Object) -> str:
    """Prepare a claim and return the error, empty if there is none."""
    return str(place.prepare(wanted).get("error", ""))


def test_a_killed_driver_comes_back_with_the_taint(ground: Ground) -> None:
    """Killed, and its slices deleted: the first slice that the new process writes has the taint, of the same time."""
    cluster, place = ground.cluster, ground.place("gpu-0")
    ground.faults.put("gone", "gpu-0", "lost")
    before = wait_taints(cluster, place, LOST)
    ground.driver.end("KILL")
    with watching(cluster) as seen:
        cluster.clients.run("delete", "resourceslices", "--field-selector", f"spec.driver={place[0]}")
        ground.driver.start()
        wait_taints(cluster, place, LOST)
    states = [slices for _, slices in seen.states(pool_of(2, ground.gpu)) if slices]
    assert len(states) >= 2, "the slices of before, and the new ones"
    for slices in states:
        found = published(slices)["gpu-0"]
        assert (found.brief, found.since, found.health) == (LOST, before.since, "Unhealthy")


def test_a_reboot_drops_problems_by_a_fresh_look(ground: Ground) -> None:
    """Another boot id and a repaired device: the first looks of the new boot find it well, and the taint goes."""
    ground.faults.put("gone", "gpu-1", "lost")
    wait_taints(ground.cluster, ground.place("gpu-1"), LOST)
    ground.driver.end("KILL")
    ground.faults.repair()
    ground.driver.boot("second-boot")
    ground.driver.start()
    assert wait_taints(ground.cluster, ground.place("gpu-1"), {}).health == "Healthy"


def test_an_unplugged_device_stays_listed_while_it_is_held(ground: Ground) -> None:
    """Its Pod keeps it listed with a taint; when the Pod goes it goes, and plugged in again it is back."""
    name = held(ground, "pod")
    wait_pod_health(ground.space, "pod", "Healthy")
    with watching(ground.cluster) as seen:
        ground.faults.put("out", name, "unplugged")
        assert wait_taints(ground.cluster, ground.place(name), UNPLUGGED).health == "Unhealthy"
        wait_pod_health(ground.space, "pod", "Unhealthy", "unplugged")
        ground.space.delete_pods("pod")
        ground.wait_gpus(EVERY - {name})
        ground.faults.repair()
        wait_taints(ground.cluster, ground.place(name), {})
    states = [slices for _, slices in seen.states(pool_of(2, ground.gpu))]
    assert all(complete(slices) for slices in states)
    assert {frozenset(published(slices)) for slices in states} == {frozenset(EVERY), frozenset(EVERY - {name})}
    assert ground.gpus() == EVERY


def test_unplugged_between_allocation_and_prepare(ground: Ground) -> None:
    """The claim names a device that went: the error says so; plugged in again, the same claim is prepared."""
    gpu = ground.driver.gpu
    wanted = allocated_by_hand(ground.space, "late", gpu, "gpu-3")
    ground.faults.put("out", "gpu-3", "unplugged")
    ground.wait_gpus(EVERY - {"gpu-3"})
    error = prepared(gpu, wanted)
    assert "gpu-3" in error
    assert "unplugged" in error
    ground.faults.repair()
    wait_taints(ground.cluster, ground.place("gpu-3"), {})
    assert prepared(gpu, wanted) == ""
    release(ground, wanted)


def release(ground: Ground, wanted: Object) -> None:
    """Unprepare a claim that was allocated and prepared by hand, and delete it."""
    gpu, meta = ground.driver.gpu, wanted["metadata"]
    assert gpu.unprepare(wanted) == {}
    assert gpu.of_claim(meta["uid"]) == []
    ground.cluster.clients.run("delete", "resourceclaim", meta["name"], "--namespace", meta["namespace"])


def test_a_device_that_cannot_be_prepared_delays_no_other(ground: Ground) -> None:
    """One fails and one is slow until repaired, one's probe hangs: a claim on the fourth is prepared meanwhile."""
    gpu = ground.driver.gpu
    names = {"fails": "gpu-1", "slow": "gpu-2", "quick": "gpu-0"}
    wanted = {name: allocated_by_hand(ground.space, name, gpu, given) for name, given in names.items()}
    ground.faults.put_all(
        {
            "fails": ("gpu-1", "prepare-fails", ""),
            "slow": ("gpu-2", "prepare-slow", "3600"),
            "hangs": ("gpu-3", "probe-hangs", ""),
        }
    )
    wait_taints(ground.cluster, ground.place("gpu-3"), {"probe-hangs": ("", "NoSchedule")})
    with ThreadPoolExecutor() as threads:
        waiting: dict[str, Future[str]] = {
            name: threads.submit(prepared, gpu, wanted[name]) for name in ("fails", "slow")
        }
        assert prepared(gpu, wanted["quick"]) == ""
        assert not any(call.done() for call in waiting.values())
        ground.faults.repair("fails", "slow")
        assert {name: call.result() for name, call in waiting.items()} == {"fails": "", "slow": ""}
    for entry in wanted.values():
        release(ground, entry)


def test_a_probe_that_hangs_makes_a_device_unknown(ground: Ground) -> None:
    """Its health is Unknown, for the slice and the Pod; faults of other devices are seen all the same."""
    name = held(ground, "pod")
    wait_pod_health(ground.space, "pod", "Healthy")
    other = min(EVERY - {name})
    ground.faults.put("hangs", name, "probe-hangs")
    assert wait_taints(ground.cluster, ground.place(name), {"probe-hangs": ("", "NoSchedule")}).health == "Unknown"
    wait_pod_health(ground.space, "pod", "Unknown")
    ground.faults.put("other", other, "lost")
    assert wait_taints(ground.cluster, ground.place(other), LOST).health == "Unhealthy"
    assert device(ground.cluster, *ground.place(name)).health == "Unknown"
    ground.faults.repair()
    wait_pod_health(ground.space, "pod", "Healthy")
    assert wait_taints(ground.cluster, ground.place(name), {}).health == "Healthy"


def test_known_problems_are_not_told_again(ground: Ground) -> None:
    """A restart of the driver repeats no Event of a problem that was told before it."""
    began = now()
    ground.faults.put("old", "gpu-2", "thermal")
    wait_node_event(ground.cluster, ground.node, began, "DeviceDegraded", ground.gpu, "gpu-2")
    ground.driver.end()
    ground.driver.start()
    ground.faults.put("new", "gpu-3", "thermal")
    wait_node_event(ground.cluster, ground.node, began, "DeviceDegraded", ground.gpu, "gpu-3")
    told = node_events(ground.cluster, ground.node, began, "DeviceDegraded")
    assert len([message for message in told if "gpu-2" in message and ground.gpu in message]) == 1


def test_a_file_that_cannot_be_read_changes_nothing(ground: Ground) -> None:
    """A broken file of faults is told of, and the faults of before stand until it can be read again."""
    ground.faults.put("gone", "gpu-0", "lost")
    before = wait_taints(ground.cluster, ground.place("gpu-0"), LOST)
    ground.faults.spoil()

    def told() -> bool:
        lines = [line for line in ground.driver.lines() if line["level"] != "info"]
        if not any(str(ground.faults.path) in json.dumps(line) for line in lines):
            raise Failed("the log does not speak of it")
        return True

    ground.cluster.wait_for("the log names the file", told)
    found = device(ground.cluster, *ground.place("gpu-0"))
    assert (found.brief, found.since) == (LOST, before.since)
