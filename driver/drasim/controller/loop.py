"""The rounds: look, decide, ask the server whether it is still so, write. Only the leader writes."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from dra_plugin.backoff import backoff
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError, Conflict, Rejected, Retryable
from dra_plugin.latest import Latest, follow
from dra_plugin.leader import Election
from dra_plugin.publisher.pace import lost
from dra_plugin.resources import DeviceTaintRule, Kind, OwnerReference
from drasim.controller.decision import Change, Decision, Verdict, decide
from drasim.controller.objects import CLUSTER_ROLE, Claim, Place
from drasim.controller.policy import Policy
from drasim.controller.rules import read_rule
from drasim.controller.views import Views
from drasim.controller.world import Index

__all__ = ["Keeper", "Observe", "Outcome", "Store", "Written", "unix_time"]

T = TypeVar("T")

PACE = 0.1
"""Seconds between two rounds: a burst of faults is a few rounds, and the first one is at once."""

_TIMEOUT = 10.0  # seconds for one request
_SHUNNED = 60.0  # seconds until what the server refused, or somebody else has, is tried again
_TOGETHER = 20  # devices that are confirmed before the first of them is written: the worst must not wait for the last
_CONFLICT = 1.0  # seconds until a rule is tried again that somebody else has just written
_OWNER_LIFETIME = 1.0  # seconds: one read for a burst; a rule whose owner was made anew since would be collected
_FIRST_DELAY = 0.25  # seconds; doubles with each round in a row that the server did not carry out


def unix_time() -> float:
    """Return the time of day; it goes with the loop's clock where a test drives that."""
    return time.time() + asyncio.get_running_loop().time() - time.monotonic()


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One rule was written.

    Attributes:
        verb: create, update or delete.
        verdict: what it was decided by.
        rule: its name.
        claims: who uses the device.
        seconds: of a new rule, the time since the problem was seen first.
    """

    verb: str
    verdict: Verdict
    rule: str
    claims: tuple[Claim, ...] = ()
    seconds: float = 0.0


Observe = Callable[[Written], None]
"""Is told of each rule that was written; must not block or raise."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand after a round.

    Attributes:
        decision: the newest one.
        claims: who uses the devices that it is about, those that only look into them included.
        leads: this instance carries it out.
        problems: what keeps the controller from its work, for people.
    """

    decision: Decision = Decision()
    claims: Mapping[Place, tuple[Claim, ...]] = {}
    leads: bool = False
    problems: tuple[str, ...] = ()


class Keeper:
    """Keeps the rules equal to what the policy wants, while ``run`` runs.

    Attributes:
        outcome: of the newest round.
    """

    def __init__(
        self, views: Views, policy: Policy, index: Index, election: Election, store: "Store", observe: Observe
    ) -> None:
        """Decide by ``views``, write to ``store`` while ``election`` is won; ``observe`` is told of each rule."""
        self.outcome: Latest[Outcome] = Latest(Outcome())
        self._views, self._policy, self._index = views, policy, index
        self._election, self._store, self._observe = election, store, observe
        self._wake: float | None = None
        self._term = 0  # the term in which all that was written before us has been read; 0: none
        self._failures = 0
        self._ready = 0.0  # loop time before which nothing is written, after a failure
        self._problem: str | None = None
        self._shunned: dict[Place, tuple[float, str]] = {}  # until when (loop time) its rule is left, and why

    async def run(self) -> None:
        """Go round at once after each change, and when time alone changes something, until cancelled."""
        latests = (*self._views.latests, self._election.leading)
        async with aclosing(follow(*latests, until=lambda: self._wake)) as turns:
            async for _ in turns:
                self._wake = None
                await self._round()
                await asyncio.sleep(PACE)

    async def _round(self) -> None:
        blind = self._views.blind()
        if blind:
            self._term = 0
            self.outcome.set(replace(self.outcome.value, leads=self._election.holds, problems=blind))
            return
        decision = self._decide()
        if not (decision.changes and self._election.holds):
            self._failures, self._problem = 0, None
        elif asyncio.get_running_loop().time() >= self._ready:
            await self._try()
            decision = self._decide()
        self._tell(decision)

    async def _try(self) -> None:
        """Write what is to be written; when the server does not do it, come back later."""
        try:
            await self._write()
            self._failures, self._problem = 0, None
        except (ClusterError, TimeoutError) as error:
            self._failures += 1
            self._problem = f"rules cannot be written: {str(error) or 'the API server does not answer'}"
            asked = error.retry_after if isinstance(error, Retryable) else None
            delay = max(asked or 0.0, backoff(_FIRST_DELAY, self._failures))
            self._ready = asyncio.get_running_loop().time() + delay

    def _decide(self) -> Decision:
        views = self._views
        rules = views.rules.objects.value if views.rules else {}
        world = self._index.world(views.slices, views.claims.objects.value, views.nodes.objects.value, rules)
        now = asyncio.get_running_loop().time()
        barred = {place: why for place, (until, why) in self._shunned.items() if why and now < until}
        return decide(world, self._policy, unix_time(), barred)

    async def _write(self) -> None:
        """Carry out what was decided on a view and is decided again on what the server says. Raises ClusterError."""
        term = self._election.term
        if self._term != term:
            await self._in_time(self._views.reread_rules())
            self._term = term
        verdicts = [verdict for verdict, _ in self._decide().changes if not self._is_shunned(verdict.place)]
        for start in range(0, len(verdicts), _TOGETHER):
            await self._write_some(verdicts[start : start + _TOGETHER])

    async def _write_some(self, expected: Sequence[Verdict]) -> None:
        """Have the server confirm what these devices are like, decide again, and write what is for them."""
        for pool in dict.fromkeys((each.place.driver, each.place.pool, each.node) for each in expected):
            await self._in_time(self._views.confirm(*pool))
        places = {each.place for each in expected}
        for verdict, change in self._decide().changes:
            if verdict.place in places and not self._is_shunned(verdict.place):
                await self._carry_out(verdict, change)

    async def _carry_out(self, verdict: Verdict, change: Change) -> None:
        """Write one rule while we lead; what stands in the way of this one alone does not stop the others."""
        name = change.rule.metadata.name or ""
        if not self._election.holds or self._election.term != self._term:
            return
        try:
            await self._in_time(self._store.carry_out(change, self._views))
        except Conflict:
            await self._look_again(verdict.place, change)
        except Rejected as error:
            if change.verb == "update" and lost(error):  # somebody has just deleted it
                await self._look_again(verdict.place, change)
            else:
                self._shun(verdict.place, f"rule {name} was refused: {error}", _SHUNNED)
        else:
            seconds = unix_time() - (verdict.since or 0) if change.verb == "create" else 0.0
            claims = self._index.users_of(verdict.place)
            self._observe(Written(verb=change.verb, verdict=verdict, rule=name, claims=claims, seconds=seconds))

    async def _look_again(self, place: Place, change: Change) -> None:
        """Learn what the rule is like now; one of that name that is not ours stays as it is."""
        name = change.rule.metadata.name or ""
        stored = await self._in_time(self._store.read(name))
        if stored is None or stored.metadata.uid != change.rule.metadata.uid:
            self._views.forget_rule(change.rule)
        if stored is not None and read_rule(stored, self._policy.drivers) is None:
            self._shun(place, f"rule {name} exists and is not the controller's: it is left alone", _SHUNNED)
            return
        if stored is not None and stored.metadata.deletion_timestamp:
            self._shun(place, f"rule {name} is being deleted, and a finalizer holds it back", _SHUNNED)
            return
        if stored is not None:
            self._views.learn_rule(stored)
        self._shun(place, "", _CONFLICT)

    def _shun(self, place: Place, why: str, seconds: float) -> None:
        self._shunned[place] = (asyncio.get_running_loop().time() + seconds, why)

    def _is_shunned(self, place: Place) -> bool:
        until, _ = self._shunned.get(place, (0.0, ""))
        return asyncio.get_running_loop().time() < until

    async def _in_time(self, request: Coroutine[Any, Any, T]) -> T:
        """Give a request up when it takes too long, or our term ends: it must not be carried out in somebody else's."""
        latest = asyncio.get_running_loop().time() + _TIMEOUT
        async with asyncio.timeout_at(min(latest, self._election.until)):
            return await request

    def _tell(self, decision: Decision) -> None:
        """Set the outcome and the time of the next round."""
        now = asyncio.get_running_loop().time()
        self._shunned = {place: entry for place, entry in self._shunned.items() if now < entry[0]}
        times = [until for until, _ in self._shunned.values()]
        if decision.next is not None:
            times.append(now + decision.next - unix_time())
        is_open = any(not self._is_shunned(verdict.place) for verdict, _ in decision.changes)
        if now < self._ready or (is_open and self._election.holds):
            times.append(self._ready)
        self._wake = min(times, default=None)
        problems = ((self._problem,) if self._problem else ()) + tuple(
            sorted(why for _, why in self._shunned.values() if why)
        )
        self.outcome.set(
            Outcome(
                decision=decision,
                claims={verdict.place: self._index.users_of(verdict.place) for verdict in decision.verdicts},
                leads=self._election.holds,
                problems=problems,
            )
        )


class Store:
    """The rules on the server: in the version that it serves, with their owner."""

    def __init__(self, cluster: Cluster, kind: Kind[DeviceTaintRule], owner: str) -> None:
        """``owner`` names a ClusterRole; empty: rules have no owner."""
        self._cluster, self._kind, self._owner = cluster, kind, owner
        self._reference: OwnerReference | None = None
        self._read_at = float("-inf")

    async def read(self, name: str) -> DeviceTaintRule | None:
        """Return a rule, whoever has made it. Raises ClusterError."""
        return await self._cluster.get(self._kind, name)

    async def carry_out(self, change: Change, views: Views) -> None:
        """Write one change, and have the views know it at once. Raises ClusterError."""
        rule = replace(change.rule, api_version=self._kind.api_version)
        if change.verb == "delete":
            await self._cluster.delete(self._kind, rule)
            views.forget_rule(rule)
        elif change.verb == "update":
            views.learn_rule(await self._cluster.replace(self._kind, rule))
        else:
            owners = (await self._read_owner(),) if self._owner else None
            owned = replace(rule, metadata=replace(rule.metadata, owner_references=owners))
            views.learn_rule(await self._cluster.create(self._kind, owned))

    async def _read_owner(self) -> OwnerReference:
        """Return the owner; raises Retryable when there is none: the rule would outlive the chart."""
        now = asyncio.get_running_loop().time()
        if self._reference is None or now - self._read_at > _OWNER_LIFETIME:
            role = await self._cluster.get(CLUSTER_ROLE, self._owner)
            if role is None:
                self._reference = None
                raise Retryable(f"the ClusterRole {self._owner}, which is to own the rules, does not exist")
            uid = role.metadata.uid or ""
            self._reference = OwnerReference(
                api_version=CLUSTER_ROLE.api_version, kind=CLUSTER_ROLE.name, name=self._owner, uid=uid
            )
            self._read_at = now
        return self._reference
