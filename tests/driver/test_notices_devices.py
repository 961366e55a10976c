"""notices: problems and recoveries of devices, on the Node and on the Pods that use them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.checkpoint import HeldDevice, Record
from dra_plugin.events import Events
from dra_plugin.latest import Latest
from dra_plugin.resources import EVENT, Event
from dra_plugin.testing import FakeCluster
from drasim.config import ProblemsConfig
from drasim.hardware import Gpu
from drasim.notices import (
    DEVICE_DEGRADED,
    DEVICE_HEALTH_UNKNOWN,
    DEVICE_RECOVERED,
    DEVICE_UNHEALTHY,
    DEVICE_UNPUBLISHED,
    DeviceNotices,
    Watched,
)
from drasim.notices.news import News, known_at_start, news, stands
from drasim.problems import Problem
from drasim.state import NodeState
from tests.driver.builders import small_machine

DRIVER, NODE = "gpu.dra.example.com", "node-a"
STARTED = 1_000_000.0
CONFIG = ProblemsConfig()
GPUS: Mapping[str, Gpu] = {gpu.id: gpu for gpu in small_machine().gpus}
A, B, *_ = GPUS


def problem(kind: str, code: str = "", since: float = STARTED + 5, cleared: float | None = None) -> Problem:
    """Return a problem that began after the start."""
    return Problem(kind=kind, code=code, message=f"{kind}!", since=since, cleared=cleared)


def state(a: tuple[Problem, ...] = (), b: tuple[Problem, ...] = (), gone: tuple[str, ...] = ()) -> NodeState:
    """Return a state in which the devices A and B have these problems."""
    return NodeState(
        devices={name: gpu for name, gpu in GPUS.items() if name not in gone},
        missing={name: gpu for name, gpu in GPUS.items() if name in gone},
        looked_at=STARTED + 10,
        problems={name: each for name, each in ((A, a), (B, b)) if each},
    )


def said(found: tuple[News, ...]) -> list[tuple[str, str, str]]:
    """Return the news as plain text."""
    return [(each.hardware, each.reason, each.text) for each in found]


# ------------------------------------------------------------------------------------------------------------ the news

XID, HOT, HANGS = problem("xid", "79"), problem("thermal"), problem("probe-hangs")


@pytest.mark.parametrize(
    ("begun", "reason", "text"),
    [
        (XID, DEVICE_UNHEALTHY, "xid 79: xid!"),
        (problem("xid", "13"), DEVICE_DEGRADED, "xid 13: xid!"),
        (HOT, DEVICE_DEGRADED, "thermal: thermal!"),
        (HANGS, DEVICE_HEALTH_UNKNOWN, "probe-hangs: probe-hangs!"),
    ],
)
def test_what_a_problem_means_decides_the_reason(begun: Problem, reason: str, text: str) -> None:
    """What keeps claims away is unhealthy, a warning is degraded, a device that does not answer is unknown."""
    assert said(news(frozenset(), state(a=(begun,)), CONFIG)) == [(A, reason, text)]


def test_a_problem_is_news_once() -> None:
    """However often it is looked at."""
    now = state(a=(XID,))
    assert news(stands(now), now, CONFIG) == ()


def test_a_recovery_says_what_is_left() -> None:
    """A Pod that reads of a recovery knows whether its device is well."""
    before, after = state(a=(XID, HOT)), state(a=(HOT,))
    assert said(news(stands(before), after, CONFIG)) == [
        (A, DEVICE_RECOVERED, "over: xid 79; still there: thermal: thermal!")
    ]
    assert said(news(stands(before), state(), CONFIG)) == [
        (A, DEVICE_RECOVERED, "over: thermal, xid 79; no problem is left")
    ]


def test_a_problem_that_comes_back_is_told_apart() -> None:
    """Equal Events are written once a minute: the last one that stands there must be the truth all the same."""
    again = Problem(kind="xid", code="79", message="xid!", since=int(STARTED + 9), relapses=1)
    over = Problem(kind="xid", code="79", message="xid!", since=int(STARTED + 9), relapses=1, cleared=STARTED + 20)
    (begun,) = news(frozenset(), state(a=(again,)), CONFIG)
    (ended,) = news(stands(state(a=(again,))), state(a=(over,)), CONFIG)
    assert begun.text == "xid 79: xid! (seen 2 times)"
    assert ended.text == "over: xid 79 (seen 2 times); no problem is left"


def test_a_device_that_is_gone_has_not_recovered() -> None:
    """What stood on a device that was taken out is nobody's any more; that it is gone is a problem of its own."""
    before, after = state(a=(XID,)), state(gone=(A,), a=(problem("unplugged"),))
    assert said(news(stands(before), after, CONFIG)) == [(A, DEVICE_UNHEALTHY, "unplugged: unplugged!")]


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (problem("xid", "79", since=STARTED - 60), True),
        (problem("xid", "79", since=STARTED - 0.1), True),
        (problem("xid", "79", since=STARTED + 0.1), False),
        (problem("xid", "79", since=STARTED - 60, cleared=STARTED - 30), False),
        (problem("xid", "79", since=STARTED - 60, cleared=STARTED + 1), True),
    ],
)
def test_what_is_known_at_the_start(found: Problem, known: bool) -> None:
    """Who ran before told of what began before; it may be over since, which nobody has told."""
    assert known_at_start(state(a=(found,)), STARTED) == ({(A, "xid", "79")} if known else frozenset())


problems = st.lists(st.tuples(st.sampled_from([A, B]), st.sampled_from(["xid", "thermal", "probe-hangs"])), unique=True)


@given(st.lists(problems, max_size=8))
def test_whoever_reads_all_news_knows_what_stands(sequence: list[list[tuple[str, str]]]) -> None:
    """For any sequence of states: what was told to have begun and not to be over is what stands; nothing twice."""
    told, believed = stands(state()), set[tuple[str, str]]()
    for standing in sequence:
        now = state(
            a=tuple(problem(kind) for on, kind in standing if on == A),
            b=tuple(problem(kind) for on, kind in standing if on == B),
        )
        for each in news(told, now, CONFIG):
            kinds = {(each.hardware, kind) for kind in ("xid", "thermal", "probe-hangs") if kind in _subject(each)}
            if each.reason == DEVICE_RECOVERED:
                assert kinds <= believed
                believed -= kinds
            else:
                assert not kinds & believed
                believed |= kinds
        told = stands(now)
        assert believed == set(standing)


def _subject(each: News) -> str:
    """Return the part of the text that says what began or is over."""
    return each.text.removeprefix("over: ").partition(";" if each.reason == DEVICE_RECOVERED else ":")[0]


# ---------------------------------------------------------------------------------------------------------- the Events


class Scene:
    """One driver whose state the test sets."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.state = Latest(NodeState())
        self.unpublished: Latest[frozenset[str]] = Latest(frozenset())
        self.speaking = Latest(True)
        self.records: list[Record] = []

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Run the notices."""
        watched = Watched(
            driver=DRIVER,
            state=self.state,
            unpublished=self.unpublished,
            speaking=self.speaking,
            holders=lambda sick: tuple(
                each for each in self.records if any(device.hardware in sick for device in each.devices)
            ),
        )
        events = Events(self.cluster, "drasim", f"{NODE}/pod")
        notices = DeviceNotices(watched, self.cluster, events, NODE, CONFIG)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(notices.run(STARTED))
            await asyncio.sleep(0)
            yield
            running.cancel()

    async def hold(self, name: str, *hardware: str, consumers: list[dict[str, str]] | None = None) -> None:
        """Store a claim, and what the driver has on record of it."""
        metadata = {"name": name, "namespace": "ns"}
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {}}
        stored = await self.cluster.put_json({**claim, "status": {"reservedFor": consumers or []}})
        devices = tuple(HeldDevice(pool="p", device="d", hardware=each) for each in hardware)
        uid = stored["metadata"]["uid"]
        kept = Record(uid=uid, namespace="ns", name=name, phase="DONE", boot_id="b", devices=devices)
        self.records.append(kept)

    async def events(self, count: int) -> list[Event]:
        """Return the Events, the Node's first, once there are exactly that many and no more come."""
        while len((await self.cluster.list(EVENT)).items) < count:  # noqa: ASYNC110 - the fake has nothing to wait for
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.03)
        found = sorted((await self.cluster.list(EVENT)).items, key=lambda event: event.regarding.kind)
        assert len(found) == count
        return found


def a_pod(name: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


async def test_the_node_and_the_pods_that_use_the_device_learn_of_it() -> None:
    """Driver, device, code and message; the Pod also reads through which claim it is concerned."""
    scene = Scene()
    await scene.hold("train", A, consumers=[a_pod("train-0"), a_pod("train-1")])
    await scene.hold("other", B, consumers=[a_pod("other-0")])
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        node, *pods = await scene.events(3)
    assert (node.regarding.kind, node.regarding.name, node.regarding.uid) == ("Node", NODE, NODE)
    assert (node.reason, node.type, node.note) == (DEVICE_UNHEALTHY, "Warning", f"{DRIVER}: gpu-0: xid 79: xid!")
    assert sorted((pod.regarding.name, pod.regarding.uid) for pod in pods) == [
        ("train-0", "uid-train-0"),
        ("train-1", "uid-train-1"),
    ]
    assert {pod.note for pod in pods} == {f"{DRIVER} on {NODE}: gpu-0 of claim train: xid 79: xid!"}


async def test_a_recovery_is_normal() -> None:
    """It is told to the same ones, and is no warning."""
    scene = Scene()
    await scene.hold("train", A, consumers=[a_pod("train-0")])
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        await scene.events(2)
        scene.state.set(state())
        found = [event for event in await scene.events(4) if event.reason == DEVICE_RECOVERED]
    assert [(event.regarding.kind, event.type) for event in found] == [("Node", "Normal"), ("Pod", "Normal")]


async def test_a_machine_that_fails_as_a_whole_is_one_event() -> None:
    """Everything that happens at once is told at once, by reason."""
    scene = Scene()
    await scene.hold("train", A, B, consumers=[a_pod("train-0")])
    async with scene.telling():
        scene.state.set(state(a=(XID,), b=(XID, HOT)))
        found = await scene.events(4)
    texts = {(event.regarding.kind, event.reason): event.note for event in found}
    assert texts["Node", DEVICE_UNHEALTHY] == f"{DRIVER}: gpu-0, gpu-1: xid 79: xid!"
    assert texts["Node", DEVICE_DEGRADED] == f"{DRIVER}: gpu-1: thermal: thermal!"
    assert texts["Pod", DEVICE_UNHEALTHY].count("of claim train") == 2


async def test_the_pods_of_a_pod_group_learn_of_it() -> None:
    """Those on this node: the others' devices are elsewhere."""
    scene = Scene()
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}
    await scene.hold("train", A, consumers=[group])
    for name, node, of in (("here", NODE, "gang"), ("there", "node-b", "gang"), ("other", NODE, "band")):
        spec: dict[str, Any] = {"nodeName": node, "schedulingGroup": {"podGroupName": of}}
        metadata = {"name": name, "namespace": "ns"}
        await scene.cluster.put_json({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        _, pod = await scene.events(2)
    assert (pod.regarding.kind, pod.regarding.name) == ("Pod", "here")


async def test_a_claim_of_the_same_name_is_another_one() -> None:
    """The record's claim is gone; whoever has its name now is not concerned."""
    scene = Scene()
    await scene.hold("train", A, consumers=[a_pod("train-0")])
    scene.records = [
        Record(uid="old", namespace="ns", name="train", phase="DONE", boot_id="b", devices=each.devices)
        for each in scene.records
    ]
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        await scene.events(1)


async def test_the_node_learns_though_claims_cannot_be_read() -> None:
    """What cannot be found out about Pods keeps nothing from the Node."""
    scene = Scene()
    await scene.hold("train", A, consumers=[a_pod("train-0")])
    scene.cluster.faults.fail("get", code=500, times=99)
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        (event,) = await scene.events(1)
    assert event.regarding.kind == "Node"


async def test_a_claim_that_cannot_be_looked_into_hides_no_other() -> None:
    """Nobody may list Pods here, which only a PodGroup needs: the Pods of the other claims learn of it."""
    scene = Scene()
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}
    await scene.hold("gang", A, consumers=[group])
    await scene.hold("train", A, consumers=[a_pod("train-0")])
    scene.cluster.faults.fail("list", code=403, times=1)
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        while not any(each.verb == "list" for each in scene.cluster.faults.requests):  # noqa: ASYNC110 - as in events
            await asyncio.sleep(0.005)
        _, pod = await scene.events(2)
    assert pod.regarding.name == "train-0"


async def test_after_a_restart_nothing_is_told_twice() -> None:
    """What stood before is known; that it is over since is news, and so is what began since."""
    scene = Scene()
    old = problem("xid", "79", since=STARTED - 60)
    async with scene.telling():
        scene.state.set(state(a=(old,)))
        await asyncio.sleep(0.03)
        scene.state.set(state(a=(old, HOT)))
        (event,) = await scene.events(1)
        assert event.reason == DEVICE_DEGRADED
        scene.state.set(state(a=(HOT,)))
        assert {event.reason for event in await scene.events(2)} == {DEVICE_DEGRADED, DEVICE_RECOVERED}


async def test_what_happens_before_the_kubelet_knows_us_is_kept() -> None:
    """Until then another instance may speak for the driver; when nobody does it is told afterwards."""
    scene = Scene()
    scene.speaking.set(False)
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        assert await scene.events(0) == []
        scene.speaking.set(True)
        await scene.events(1)


async def test_an_older_instance_is_silent() -> None:
    """The newer one tells; should it die the older one goes on from there, without repeating."""
    scene = Scene()
    async with scene.telling():
        scene.state.set(state())
        await asyncio.sleep(0.01)
        scene.speaking.set(False)
        scene.state.set(state(a=(XID,)))
        assert await scene.events(0) == []
        scene.speaking.set(True)
        scene.state.set(state(a=(XID, HOT)))
        (event,) = await scene.events(1)
    assert event.reason == DEVICE_DEGRADED


async def test_a_device_that_is_left_out_is_told_of() -> None:
    """Where the server drops taints users wonder why there is a device less: the Node says it, once."""
    scene = Scene()
    async with scene.telling():
        scene.state.set(state(a=(XID,)))
        scene.unpublished.set(frozenset({"gpu-0"}))
        found = {event.reason: event.note for event in await scene.events(2)}
        scene.unpublished.set(frozenset())
        await scene.events(2)
    assert "gpu-0: left out of its ResourceSlice: the server drops taints" in found[DEVICE_UNPUBLISHED]


async def test_flapping_does_not_flood() -> None:
    """A problem that comes and goes is told when it came and when it went; the same again is no news for a while."""
    scene = Scene()
    async with scene.telling():
        for _ in range(30):
            for now in (state(a=(XID,)), state()):
                scene.state.set(now)
                await asyncio.sleep(0.001)
        assert {event.reason for event in await scene.events(2)} == {DEVICE_UNHEALTHY, DEVICE_RECOVERED}
