"""Leader election in virtual time: who leads when, over servers and networks that fail."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from dra_plugin.cluster import Cluster
from dra_plugin.errors import Retryable
from dra_plugin.latest import follow
from dra_plugin.leader import Election, Times
from dra_plugin.resources import LEASE, Kind, Lease, LeaseSpec
from dra_plugin.testing import FakeCluster

pytestmark = pytest.mark.looptime

T = TypeVar("T")
NAME, NAMESPACE = "controller", "system"


class Line:
    """One candidate's connection to the API server, as far as an election uses it; it can be cut, or swallow answers.

    ``state``: "up"; "cut": nothing arrives, at once an error; "deaf": what is sent is done, the answer is lost; "hung":
    nothing arrives and no call ever ends.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.state = cluster, "up"
        self.calls: list[tuple[float, str]] = []

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        await self._sent("get")
        return await self._answered(self.cluster.get(kind, name, namespace))

    async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False) -> T:
        await self._sent("create")
        return await self._answered(self.cluster.create(kind, obj, dry_run=dry_run))

    async def replace(self, kind: Kind[T], obj: T) -> T:
        await self._sent("replace")
        return await self._answered(self.cluster.replace(kind, obj))

    async def _sent(self, verb: str) -> None:
        self.calls.append((now(), verb))
        if self.state == "cut":
            raise Retryable(f"{verb}: no route to host")
        if self.state == "hung":
            await asyncio.Event().wait()

    async def _answered(self, call: Awaitable[T]) -> T:
        answer = await call
        if self.state == "deaf":
            raise Retryable("connection reset")
        return answer


class Candidate:
    """An election that runs, and what it said."""

    def __init__(self, cluster: FakeCluster, identity: str) -> None:
        self.line = Line(cluster)
        port: Cluster = self.line  # type: ignore[assignment]  # an election uses three verbs of it
        self.election = Election(port, name=NAME, namespace=NAMESPACE, identity=identity)
        self.identity = identity
        self.task: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        return self.election.leading.value

    async def until_it(self, leads: bool) -> float:
        """Wait for it to lead, or not to; return the time."""
        await self.election.leading.wait(lambda leading: leading is leads)
        return now()

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def candidates(cluster: FakeCluster, *identities: str) -> AsyncIterator[list[Candidate]]:
    """Elections that run, one more each tenth of a second."""
    made = [Candidate(cluster, identity) for identity in identities]
    async with asyncio.TaskGroup() as tasks:
        for each in made:
            each.task = tasks.create_task(each.election.run())
            await asyncio.sleep(0.1)
        yield made
        for each in made:
            if each.task:
                each.task.cancel()


async def record(cluster: FakeCluster) -> LeaseSpec:
    found = await cluster.get(LEASE, NAME, NAMESPACE)
    assert found is not None
    return found.spec


def now() -> float:
    return asyncio.get_running_loop().time()


# ------------------------------------------------------------------------------------------------ in good weather


async def test_the_first_leads_at_once_and_the_others_know_it() -> None:
    """Without a Lease one is made; whoever comes later stands by and sees the holder."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b") as (a, b):
        await asyncio.sleep(60)
        assert [a.leads, b.leads] == [True, False]
        assert [a.election.holder.value, b.election.holder.value] == ["a", "a"]
        assert [a.election.error.value, b.election.error.value] == [None, None]
        spec = await record(cluster)
        assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("a", 15, 0)


async def test_the_leader_renews_without_reading() -> None:
    """A renewal is one write every two seconds, and keeps the time since which it leads."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        first = await record(cluster)
        a.line.calls.clear()
        await asyncio.sleep(20)
        assert [verb for _, verb in a.line.calls] == ["replace"] * 10
        later = await record(cluster)
    assert later.acquire_time == first.acquire_time
    assert later.renew_time != first.renew_time


async def test_leaving_hands_over_within_a_few_seconds() -> None:
    """A cancelled leader gives the Lease back, so nobody waits for its end; the change is counted."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b") as (a, b):
        await asyncio.sleep(5)
        left = now()
        await a.stop()
        assert not a.leads
        assert (await record(cluster)).holder_identity is None
        assert await b.until_it(leads=True) - left < 5
        assert (await record(cluster)).lease_transitions == 1


async def test_who_only_stood_by_leaves_the_lease_alone() -> None:
    """A candidate that leaves does not touch what is another's."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b") as (a, b):
        await asyncio.sleep(5)
        asked = len(b.line.calls)
        await b.stop()
        assert len(b.line.calls) == asked
        await asyncio.sleep(30)
        assert a.leads


async def test_the_same_identity_after_a_restart_leads_at_once() -> None:
    """The record of an earlier run of the same process is no obstacle, and no change of leader."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        a.line.state = "cut"  # it cannot give the Lease back
    async with candidates(cluster, "a") as (again,):
        assert again.leads
        assert not (await record(cluster)).lease_transitions


# ---------------------------------------------------------------------------------------------- the leader is away


async def test_a_dead_leader_is_followed_when_its_lease_ends() -> None:
    """The next one comes when the record has stood still for its duration, not before, and soon after."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b", "c") as (a, b, c):
        await asyncio.sleep(7)
        renewed = max(at for at, verb in a.line.calls if verb in ("create", "replace"))
        a.line.state = "cut"
        async for _ in follow(b.election.leading, c.election.leading):
            if b.leads or c.leads:
                break
        assert 15 <= now() - renewed < 15 + 2 * 2.2 + 0.5
        assert not a.leads
        assert [b.leads, c.leads].count(True) == 1


@pytest.mark.parametrize("state", ["cut", "hung", "deaf"])
async def test_a_leader_that_cannot_renew_leads_no_more(state: str) -> None:
    """It stops ten seconds after the last renewal was sent, before the Lease ends, even when its calls never end."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        await asyncio.sleep(7)
        sent = max(at for at, _ in a.line.calls)
        a.line.state = state
        stopped = await a.until_it(leads=False)
        assert 10 <= stopped - sent < 10.01
        assert a.election.error.value
        a.line.state = "up"
        assert await a.until_it(leads=True) - stopped < 10
        assert a.election.error.value is None


async def test_a_lost_answer_costs_nothing() -> None:
    """A renewal that was done, though nobody heard of it, is recognised as our own."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        seen: list[bool] = []
        await asyncio.sleep(1)
        a.line.state = "deaf"
        await asyncio.sleep(4)
        a.line.state = "up"
        for _ in range(20):
            await asyncio.sleep(0.5)
            seen.append(a.leads)
        assert all(seen)


async def test_clocks_of_others_do_not_count() -> None:
    """A record whose times lie far away is judged by how long it stands still here."""
    for year in ("1999", "2099"):
        cluster = FakeCluster()
        stamp = f"{year}-01-01T00:00:00.000000Z"
        spec = {"holderIdentity": "ghost", "leaseDurationSeconds": 7, "renewTime": stamp, "acquireTime": stamp}
        await cluster.put_json(lease(spec))
        started = now()
        async with candidates(cluster, "a") as (a,):
            assert 7 <= await a.until_it(leads=True) - started < 10


async def test_a_lease_without_duration_counts_ours() -> None:
    """A record that names no duration stands for as long as our own would."""
    cluster = FakeCluster()
    await cluster.put_json(lease({"holderIdentity": "ghost"}))
    started = now()
    async with candidates(cluster, "a") as (a,):
        assert await a.until_it(leads=True) - started >= 15


def lease(spec: Mapping[str, object]) -> dict[str, Any]:
    meta = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": dict(spec)}


# ------------------------------------------------------------------------------------------------- bad weather


async def test_an_api_server_that_is_away_leaves_no_leader() -> None:
    """For a minute nobody can renew: the leader stops after ten seconds, nobody follows; then one leads again."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b") as both:
        await asyncio.sleep(5)
        for each in both:
            each.line.state = "cut"
        await asyncio.sleep(11)
        assert not any(each.leads for each in both)
        await asyncio.sleep(49)
        assert not any(each.leads for each in both)
        for each in both:
            each.line.state = "up"
        await asyncio.sleep(20)
        assert [each.leads for each in both].count(True) == 1


async def test_a_deleted_lease_is_made_again() -> None:
    """The leader goes on leading when somebody deletes the Lease."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        found = await cluster.get(LEASE, NAME, NAMESPACE)
        assert found is not None
        await cluster.delete(LEASE, found)
        await asyncio.sleep(3)
        assert a.leads
        assert (await record(cluster)).holder_identity == "a"


async def test_a_lease_that_somebody_else_holds_ends_our_term() -> None:
    """Whoever finds another one's name in the Lease leads no more from that moment."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        found = await cluster.get(LEASE, NAME, NAMESPACE)
        assert isinstance(found, Lease)
        await cluster.replace(LEASE, replace(found, spec=replace(found.spec, holder_identity="king")))
        await asyncio.sleep(2.5)
        assert not a.leads
        assert a.election.holder.value == "king"
        await asyncio.sleep(20)
        assert a.leads


async def test_terms_are_told_apart() -> None:
    """Renewals go on with a term; who leads again after it led no more knows that others may have led meanwhile."""
    cluster = FakeCluster()
    async with candidates(cluster, "a", "b") as (a, b):
        await asyncio.sleep(30)
        assert [a.election.term, b.election.term] == [1, 0]
        a.line.state = "cut"
        await a.until_it(leads=False)
        a.line.state = "up"
        await a.until_it(leads=True)
        assert [a.election.term, b.election.term] == [2, 0]


async def test_a_server_that_is_busy_is_left_alone() -> None:
    """Retry-After is kept, by candidates and by a leader."""
    cluster = FakeCluster()
    cluster.faults.fail("get", code=429, retry_after=7)
    started = now()
    async with candidates(cluster, "a") as (a,):
        await a.until_it(leads=True)
        assert [at - started for at, _ in a.line.calls[:2]] == [0, pytest.approx(7, abs=0.1)]
        cluster.faults.fail("replace", code=429, retry_after=5)
        a.line.calls.clear()
        await asyncio.sleep(9)
        first, second = (at for at, _ in a.line.calls[:2])
        assert second - first == pytest.approx(5, abs=0.1)
        assert a.leads


async def test_rights_that_are_missing_are_said_and_asked_for_again() -> None:
    """An installation may give the rights later; until then the error names what was refused."""
    cluster = FakeCluster()
    cluster.faults.fail("get", code=403, times=3)
    async with candidates(cluster, "a") as (a,):
        assert a.election.error.value is not None
        assert "Forbidden" in a.election.error.value
        await asyncio.sleep(15)
        assert a.leads


async def test_a_process_that_was_stopped_does_not_hold_what_it_thinks() -> None:
    """Before its tasks run again, a leader that slept through its term is none by the clock."""
    cluster = FakeCluster()
    async with candidates(cluster, "a") as (a,):
        await asyncio.sleep(1)
        assert a.election.holds
        a.election._until = now() - 1  # as if the process had been stopped all the while
        assert [a.leads, a.election.holds] == [True, False]


@pytest.mark.parametrize("seed", range(12))
async def test_never_two(seed: int) -> None:
    """Whatever happens to the lines of three candidates, at no time two of them lead; in the end one does."""
    chance, cluster = random.Random(seed), FakeCluster()
    async with candidates(cluster, "a", "b", "c") as all_:
        leading = [each.election.leading for each in all_]
        most = 0

        async def watch() -> None:
            nonlocal most
            async for values in follow(*leading):
                most = max(most, sum(values))

        watcher = asyncio.TaskGroup()
        async with watcher:
            task = watcher.create_task(watch())
            for _ in range(60):
                chance.choice(all_).line.state = chance.choice(["up", "up", "cut", "hung", "deaf"])
                await asyncio.sleep(chance.uniform(0.1, 12))
            for each in all_:
                each.line.state = "up"
            await asyncio.sleep(60)
            task.cancel()
        assert most == 1
        assert [each.leads for each in all_].count(True) == 1


@pytest.mark.parametrize(
    "times", [{"lease": 10}, {"renew": 2.4}, {"retry": 0}, {"lease": 3, "renew": 5}, {"renew": float("nan")}]
)
def test_times_that_would_not_work(times: dict[str, float]) -> None:
    """With these two could lead at once, or nobody: they are refused, with all three in the text."""
    with pytest.raises(ValueError, match=r"lease .* renew .* retry .* must be longer"):
        Times(**times)
