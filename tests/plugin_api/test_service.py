"""_service: per-claim errors, the check of the answer, registration as state, health that goes stale by itself."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin._calls import Calls
from dra_plugin._proto import dra_health_v1_pb2 as health_pb
from dra_plugin._proto import dra_v1_pb2 as pb
from dra_plugin._proto import pluginregistration_v1_pb2 as registration_pb
from dra_plugin._service import ClaimService, HealthService, Registration, due, verified
from dra_plugin.claims import Claim, ClaimRef, Result
from dra_plugin.errors import ClaimError
from dra_plugin.health import DeviceHealth, Health, HealthReport
from dra_plugin.latest import Latest
from dra_plugin.observe import CallDone, ClaimFailed, Observation
from dra_plugin.plugin import PreparedDevice
from dra_plugin.testing import FakeCluster
from tests.plugin_api.served_plugin import DRIVER, Prepared, add_claim, new_cluster, result


class Caller:
    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    def time_remaining(self) -> float | None:
        return self.seconds


@asynccontextmanager
async def service(
    cluster: FakeCluster, plugin: Prepared, seen: list[Observation] | None = None
) -> AsyncIterator[ClaimService]:
    async with asyncio.TaskGroup() as group:
        calls = Calls(group)
        seen = [] if seen is None else seen
        yield ClaimService(plugin, DRIVER, cluster, calls, seen.append)
        calls.cancel()


def asked(refs: Iterable[ClaimRef]) -> pb.NodePrepareResourcesRequest:
    return pb.NodePrepareResourcesRequest(
        claims=[pb.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]
    )


def asked_back(refs: Iterable[ClaimRef]) -> pb.NodeUnprepareResourcesRequest:
    return pb.NodeUnprepareResourcesRequest(
        claims=[pb.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]
    )


async def test_each_claim_has_its_own_answer() -> None:
    """Of one batch, what is wrong with a claim is that claim's error; the others are prepared."""
    cluster, plugin, seen = await new_cluster(), Prepared(), list[Observation]()
    good = await add_claim(cluster, "good", result("gpu-0"), result("eth0", driver="other", request="nic"))
    waiting = await add_claim(cluster, "waiting", allocated=False)
    foreign = await add_claim(cluster, "foreign", result(driver="nic.dra.example.com"))
    replaced = ClaimRef("default", "good", "11111111-old")
    missing = ClaimRef("default", "missing", "22222222")
    async with service(cluster, plugin, seen) as claims:
        answer = (await claims.prepare(asked([good, waiting, foreign, replaced, missing]), Caller())).claims
    assert {uid: entry.error.partition(" ")[2] for uid, entry in answer.items() if entry.error} == {
        waiting.uid: "default/waiting is not allocated",
        foreign.uid: f"default/foreign has no device of driver {DRIVER} in its allocation",
        replaced.uid: f"default/good was replaced: its UID is {good.uid}, not 11111111-old",
        missing.uid: "default/missing does not exist",
    }
    (device,) = answer[good.uid].devices
    assert (device.pool_name, device.device_name, list(device.request_names)) == ("node-gpu", "gpu-0", ["gpu"])
    assert set(plugin.held) == {good.uid}
    done = [each for each in seen if isinstance(each, CallDone)]
    assert {each.uid for each in done if each.error is None} == {good.uid}
    assert len(done) == 5
    assert len([each for each in seen if isinstance(each, ClaimFailed)]) == 4


async def test_main_request_and_share_id() -> None:
    """The kubelet is told main request names; share ids pass through in v1 and are left out in v1beta1."""
    cluster = await new_cluster()
    ref = await add_claim(cluster, "c", result("gpu-0", request="gpu/small", shareID="0c1d"), result("gpu-1"))
    async with service(cluster, Prepared()) as claims:
        new = (await claims.prepare(asked([ref]), Caller())).claims[ref.uid].devices
        old = (await claims.prepare_without_shares(asked([ref]), Caller())).claims[ref.uid].devices
    assert [list(device.request_names) for device in new] == [["gpu"], ["gpu"]]
    assert [(device.HasField("share_id"), device.share_id) for device in new] == [(True, "0c1d"), (False, "")]
    assert [device.HasField("share_id") for device in old] == [False, False]


async def test_unprepare_needs_no_claim_object() -> None:
    """Unprepare answers every UID, known or not, and says a failure both to the kubelet and to the observer."""
    cluster, plugin, seen = await new_cluster(), Prepared(), list[Observation]()
    unknown = ClaimRef("default", "gone", "33333333")
    async with service(cluster, plugin, seen) as claims:
        answer = await claims.unprepare(asked_back([unknown]), Caller())
        assert {uid: entry.error for uid, entry in answer.claims.items()} == {"33333333": ""}
        plugin.broken = "device is stuck"
        answer = await claims.unprepare(asked_back([unknown]), Caller())
        assert answer.claims["33333333"].error == "device is stuck"
    (failed,) = [each for each in seen if isinstance(each, ClaimFailed)]
    assert (failed.operation, failed.name, failed.error) == ("unprepare", "gone", "device is stuck")


async def test_transient_read_is_tried_again() -> None:
    """An API server that fails for a moment costs the Pod nothing."""
    cluster = await new_cluster()
    ref = await add_claim(cluster, "c", result())
    cluster.faults.fail("get", code=500, times=2)
    async with service(cluster, Prepared()) as claims:
        assert not (await claims.prepare(asked([ref]), Caller())).claims[ref.uid].error


async def test_deadline_leaves_the_work_running() -> None:
    """Shortly before the caller's deadline it gets an answer; the repeated call takes up the same work."""
    cluster, plugin = await new_cluster(), Prepared()
    ref = await add_claim(cluster, "c", result())
    plugin.wait.set(False)
    async with service(cluster, plugin) as claims:
        late = await claims.prepare(asked([ref]), Caller(0.05))
        assert "next call takes it up" in late.claims[ref.uid].error
        plugin.wait.set(True)
        assert not (await claims.prepare(asked([ref]), Caller(5))).claims[ref.uid].error
    assert plugin.begun == 1


CLAIM = Claim(
    ref=ClaimRef("ns", "c", "u"),
    results=(
        Result(request="a/sub", driver=DRIVER, pool="p", device="d"),
        Result(request="b", driver=DRIVER, pool="p", device="d", share_id="s"),
    ),
)


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (PreparedDevice(requests=("a",), pool="p", device="d"), ""),
        (PreparedDevice(requests=("a/sub",), pool="p", device="d"), ""),
        (PreparedDevice(requests=(), pool="p", device="d", share_id="s"), ""),
        (PreparedDevice(requests=("b",), pool="p", device="d"), "not allocated for request b"),
        (PreparedDevice(requests=("a",), pool="q", device="d"), "q/d is not in the allocation"),
        (PreparedDevice(requests=("b",), pool="p", device="d", share_id="t"), "is not in the allocation"),
    ],
)
def test_answer_must_match_the_allocation(device: PreparedDevice, problem: str) -> None:
    """A plugin that names what was not allocated is found out here; the kubelet would not notice."""
    if not problem:
        assert verified(CLAIM, (device,)) == (device,)
        return
    with pytest.raises(ClaimError, match=problem):
        verified(CLAIM, (device,))


def seen_at(looked_at: int, health: Health = Health.HEALTHY, device: str = "d", timeout: int = 0) -> DeviceHealth:
    return DeviceHealth(pool="p", device=device, health=health, looked_at=looked_at, timeout=timeout)


def test_a_report_is_not_made_fresh_by_sending() -> None:
    """HEALTHY goes out once per look and never when it is too old; bad news and words without a look are repeated."""
    healthy, sick, spoken = seen_at(100), seen_at(10, Health.UNHEALTHY, "s"), seen_at(0, device="w")
    report: HealthReport = (healthy, sick, spoken)
    sent = {(each.pool, each.device): each for each in report}
    assert due(report, {}, 101.0) == report
    assert due(report, sent, 102.0) == ()
    assert due(report, sent, 102.0, repeat=True) == (sick, spoken)
    assert due((seen_at(105),), sent, 106.0) == (seen_at(105),)
    assert due((seen_at(105),), {}, 136.0) == ()
    assert due((seen_at(105, timeout=60),), {}, 136.0) == (seen_at(105, timeout=60),)


@given(st.integers(1, 50), st.integers(1, 40), st.integers(0, 200))
def test_healthy_is_never_received_after_its_time(looked_at: int, timeout: int, now: int) -> None:
    """Whatever the times, a HEALTHY report that is sent is younger than its timeout."""
    each = seen_at(looked_at, timeout=timeout)
    assert all(now - sent.looked_at < timeout for sent in due((each,), {}, float(now), repeat=True))


async def test_health_stream_follows_and_returns() -> None:
    """The stream sends at once and at changes, counts as the kubelet's presence, and ends when the server stops."""
    health: Latest[HealthReport] = Latest((seen_at(0),))
    stopping, registration = Latest(False), Registration(DRIVER, "/dra.sock", lambda: None)
    await registration.notify(registration_pb.RegistrationStatus(plugin_registered=True), Caller())
    stream = HealthService(health, registration, stopping).watch(health_pb.NodeWatchResourcesRequest(), Caller())
    first = await anext(stream)
    assert [each.health for each in first.devices] == [health_pb.HEALTHY]
    health.set((seen_at(0, Health.UNHEALTHY),))
    assert [each.health for each in (await anext(stream)).devices] == [health_pb.UNHEALTHY]
    assert registration.registered.value
    stopping.set(True)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert not registration.registered.value


async def test_registration_is_state() -> None:
    """Registered from Notify(true) until the last stream ends; a stream that comes again proves that we are known."""
    announced: list[int] = []
    registration = Registration(DRIVER, "/dra.sock", lambda: announced.append(1))
    accepted = registration_pb.RegistrationStatus(plugin_registered=True)

    def state() -> tuple[bool, str | None]:
        return registration.registered.value, registration.refusal.value

    registration.stream_opened()
    assert state() == (False, None)
    registration.stream_ended()
    await registration.notify(registration_pb.RegistrationStatus(error="endpoint already registered"), Caller())
    assert (state(), announced) == ((False, "endpoint already registered"), [])
    await registration.notify(accepted, Caller())
    assert state() == (True, None)
    registration.stream_opened()
    registration.stream_opened()
    registration.stream_ended()
    assert state() == (True, None)
    registration.stream_ended()
    assert state() == (False, None)
    registration.stream_opened()
    assert state() == (True, None)
    registration.lost()
    registration.stream_opened()
    assert (state(), announced) == ((False, None), [1])


async def test_failed_announcement_fails_the_call() -> None:
    """When the instance cannot say that it is there, the kubelet's call fails and it starts over."""

    def fail() -> None:
        raise ClaimError("disk")

    registration = Registration(DRIVER, "/dra.sock", fail)
    with pytest.raises(ClaimError):
        await registration.notify(registration_pb.RegistrationStatus(plugin_registered=True), Caller())
    assert not registration.registered.value


@pytest.mark.looptime
async def test_a_busy_neighbour_does_not_keep_a_report_from_being_repeated() -> None:
    """Bad news that nothing changes is repeated every few seconds, however often another device has news."""
    sick = seen_at(10, Health.UNHEALTHY, "sick")
    health: Latest[HealthReport] = Latest((sick,))
    service = HealthService(health, Registration(DRIVER, "/dra.sock", lambda: None), stopping := Latest(False))
    told: list[set[str]] = []

    async def listen() -> None:
        answers = service.watch(health_pb.NodeWatchResourcesRequest(), Caller())
        told.extend([{each.device.device_name for each in answer.devices} async for answer in answers])

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        for turn in range(20):
            await asyncio.sleep(2)
            health.set((sick, seen_at(turn, Health.UNHEALTHY, "busy")))
        stopping.set(True)
    assert sum("sick" in devices for devices in told) >= 6


async def test_failed_announcement_is_told() -> None:
    """Who asks why the driver is not registered finds the reason."""

    def fail() -> None:
        raise ClaimError("disk full")

    registration = Registration(DRIVER, "/dra.sock", fail)
    with pytest.raises(ClaimError):
        await registration.notify(registration_pb.RegistrationStatus(plugin_registered=True), Caller())
    assert registration.refusal.value == "disk full"
