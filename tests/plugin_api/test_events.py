"""Events: written once, never in the way."""

import asyncio
import time

import pytest

from dra_plugin.cluster import Selector
from dra_plugin.events import Events
from dra_plugin.resources import EVENT, Event, ObjectReference
from dra_plugin.testing import FakeCluster

pytestmark = pytest.mark.looptime
CLAIM = ObjectReference(api_version="resource.k8s.io/v1", kind="ResourceClaim", name="c", namespace="ns", uid="u")
NODE = ObjectReference(api_version="v1", kind="Node", name="n")


def events(cluster: FakeCluster) -> Events:
    return Events(cluster, "gpu.example.com", "pod-1")


async def stored(cluster: FakeCluster, namespace: str | None = None) -> tuple[Event, ...]:
    return (await cluster.list(EVENT, Selector(namespace=namespace))).items


async def test_what_an_event_says() -> None:
    """Who, about what, what and why; with the time in microseconds, as the API wants it."""
    cluster = FakeCluster()
    await events(cluster).emit(CLAIM, reason="UnprepareFailed", note="the device is gone")
    (event,) = await stored(cluster, "ns")
    assert (event.reporting_controller, event.reporting_instance) == ("gpu.example.com", "pod-1")
    assert (event.reason, event.note, event.type) == ("UnprepareFailed", "the device is gone", "Warning")
    assert event.regarding == CLAIM
    assert event.action
    assert len(event.event_time) == len("2026-11-30T12:00:00.123456Z")


async def test_events_of_nodes_go_to_default() -> None:
    """An object without namespace has its Events in ``default``."""
    cluster = FakeCluster()
    await events(cluster).emit(NODE, reason="Started", note="up", warning=False)
    (event,) = await stored(cluster, "default")
    assert event.type == "Normal"


async def test_repetitions_are_written_once_a_minute() -> None:
    """Equal Events within a minute are one; another text is another Event."""
    cluster = FakeCluster()
    ours = events(cluster)
    for _ in range(5):
        await ours.emit(CLAIM, reason="R", note="same")
    await ours.emit(CLAIM, reason="R", note="other")
    assert len(await stored(cluster)) == 2
    await asyncio.sleep(61)
    await ours.emit(CLAIM, reason="R", note="same")
    assert len(await stored(cluster)) == 3
    assert ours.dropped == 0


async def test_instances_repeat_nothing_of_each_other() -> None:
    """In a rolling update, or under another leader, two know the same: the server keeps it once, and neither fails."""
    cluster = FakeCluster()
    await asyncio.sleep(90 - _seconds_of_the_minute())  # not at its edge
    both = events(cluster), Events(cluster, "gpu.example.com", "pod-2")
    for each in both:
        await each.emit(CLAIM, reason="R", note="same")
    await both[1].emit(CLAIM, reason="R", note="only one knows this")
    assert sorted(event.note for event in await stored(cluster)) == ["only one knows this", "same"]
    assert [each.dropped for each in both] == [0, 0]


def _seconds_of_the_minute() -> float:
    return (time.time() + asyncio.get_running_loop().time() - time.monotonic()) % 60


async def test_a_pod_that_is_made_anew_is_told_too() -> None:
    """It has the name of the one before, and `kubectl describe` shows the Events of its UID."""
    cluster = FakeCluster()
    ours = events(cluster)
    for uid in ("first", "second"):
        pod = ObjectReference(api_version="v1", kind="Pod", name="web-0", namespace="ns", uid=uid)
        await ours.emit(pod, reason="R", note="same")
    assert {event.regarding.uid for event in await stored(cluster)} == {"first", "second"}


@pytest.mark.parametrize("name", ["n", "n" * 253, f"{'n' * 49}.x", f"{'n' * 49}-x"])
async def test_events_have_names_that_the_api_takes(name: str) -> None:
    """Whatever the object is called."""
    cluster = FakeCluster()
    ours = events(cluster)
    await ours.emit(ObjectReference(api_version="v1", kind="Node", name=name), reason="R", note="n")
    assert ours.dropped == 0


async def test_many_objects_each_have_their_events() -> None:
    """A machine that fails as a whole is told of on each of its Pods, and so is its recovery."""
    cluster = FakeCluster()
    ours = events(cluster)
    for note in ("fails", "well again"):
        for index in range(110):
            pod = ObjectReference(api_version="v1", kind="Pod", name=f"pod-{index}", namespace="ns", uid=f"{index}")
            await ours.emit(pod, reason="R", note=note)
    assert (len(await stored(cluster)), ours.dropped) == (220, 0)


async def test_a_flood_is_cut_off() -> None:
    """Many different Events about one object for one reason are limited; others, and later ones, get through."""
    cluster = FakeCluster()
    ours = events(cluster)
    for index in range(100):
        await ours.emit(CLAIM, reason="R", note=f"{index}")
    written = len(await stored(cluster))
    assert written == 20
    assert ours.dropped == 80
    await ours.emit(NODE, reason="R", note="about another object")
    await ours.emit(CLAIM, reason="Other", note="for another reason")
    assert len(await stored(cluster)) == (written := written + 2)
    await asyncio.sleep(30)
    await ours.emit(CLAIM, reason="R", note="99")
    assert len(await stored(cluster)) == written + 1


@pytest.mark.parametrize("code", [0, 403, 422, 500])
async def test_failures_stay_here(code: int) -> None:
    """No failed write reaches the caller, and the Event may be tried again."""
    cluster = FakeCluster()
    ours = events(cluster)
    cluster.faults.fail("create", code=code)
    await ours.emit(CLAIM, reason="R", note="n")
    assert (await stored(cluster), ours.dropped) == ((), 1)
    await ours.emit(CLAIM, reason="R", note="n")
    assert len(await stored(cluster)) == 1


async def test_a_hanging_server_holds_nobody_up() -> None:
    """A write that takes too long is given up."""
    cluster = FakeCluster()
    cluster.faults.latency = 3600.0
    started = asyncio.get_running_loop().time()
    await events(cluster).emit(CLAIM, reason="R", note="n")
    assert asyncio.get_running_loop().time() - started < 60


async def test_long_notes_are_cut() -> None:
    """The API takes a kilobyte; characters stay whole, and what was cut shows."""
    cluster = FakeCluster()
    await events(cluster).emit(CLAIM, reason="R", note="x" + "ü" * 1000)
    (event,) = await stored(cluster)
    assert event.note == "x" + "ü" * 510 + "…"
