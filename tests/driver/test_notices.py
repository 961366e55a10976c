"""notices: what users would not hear of otherwise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dra_plugin.events import Events
from dra_plugin.observe import CallDone, ClaimFailed
from dra_plugin.resources import EVENT, Event
from dra_plugin.testing import FakeCluster
from drasim.notices import FAILED_UNPREPARE, Notices

DRIVER = "gpu.dra.example.com"


def failed(error: str = "device gpu-0: busy", operation: str = "unprepare") -> ClaimFailed:
    """Return what is observed when a claim fails."""
    return ClaimFailed(driver=DRIVER, operation=operation, namespace="ns", name="claim", uid="uid", error=error)


def done(error: str | None = None) -> CallDone:
    """Return what is observed when an Unprepare ends."""
    return CallDone(driver=DRIVER, operation="unprepare", uid="uid", error=error, seconds=0.1)


@asynccontextmanager
async def telling() -> AsyncIterator[tuple[Notices, FakeCluster]]:
    """Run notices against a fake cluster."""
    cluster = FakeCluster()
    notices = Notices(Events(cluster, "drasim", "node-a/pod"), "node-a")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(notices.run())
        yield notices, cluster
        running.cancel()


async def events(cluster: FakeCluster, count: int) -> list[Event]:
    """Return the Events, once there are that many."""
    while True:
        found = (await cluster.list(EVENT)).items
        if len(found) >= count:
            return list(found)
        await asyncio.sleep(0.005)


async def test_a_failed_unprepare_is_told_on_claim_and_node() -> None:
    """Both Events name driver, node and error; that of the Node names the claim as well."""
    async with telling() as (notices, cluster):
        notices.observe(failed())
        claim, node = sorted(await events(cluster, 2), key=lambda event: event.regarding.kind, reverse=True)
    assert (claim.regarding.kind, claim.regarding.namespace, claim.regarding.uid) == ("ResourceClaim", "ns", "uid")
    assert (node.regarding.kind, node.regarding.name) == ("Node", "node-a")
    assert {claim.reason, node.reason} == {FAILED_UNPREPARE}
    assert claim.note == f"{DRIVER} on node-a: device gpu-0: busy"
    assert "claim ns/claim cannot be unprepared" in node.note


async def test_the_same_failure_is_told_once() -> None:
    """The kubelet tries again every ten seconds; only another reason is another Event."""
    async with telling() as (notices, cluster):
        notices.observe(failed())
        await events(cluster, 2)
        notices.observe(failed())
        notices.observe(failed("device gpu-0: broken"))
        assert len(await events(cluster, 4)) == 4


async def test_a_success_settles_it() -> None:
    """After an Unprepare that went well nothing is remembered; one that failed keeps the failure."""
    async with telling() as (notices, _):
        notices.observe(failed())
        notices.observe(done("device gpu-0: busy"))
        assert list(notices.failures.value) == ["uid"]
        notices.observe(done())
        assert notices.failures.value == {}


async def test_a_failed_prepare_is_the_kubelets_to_tell() -> None:
    """The Pod's own event says why a Prepare failed."""
    async with telling() as (notices, _):
        notices.observe(failed(operation="prepare"))
        assert notices.failures.value == {}
