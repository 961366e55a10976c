"""What users learn of the controller's decisions: the status, kept current, and Events. Best effort, off the rounds."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from dra_plugin.backoff import backoff
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError
from dra_plugin.events import Events
from dra_plugin.latest import Latest, follow
from dra_plugin.resources import CONFIG_MAP
from drasim.controller.decision import Verdict
from drasim.controller.loop import Outcome, Written, unix_time
from drasim.controller.objects import Claim, Place
from drasim.controller.pods import PodRef, grace, pods_named, pods_of
from drasim.controller.status import (
    STATUS_KEY,
    ControllerStatus,
    DeviceState,
    DeviceStatus,
    encode_status,
    status_name,
)
from drasim.controller.times import stamp
from drasim.notices.references import node_reference

__all__ = ["EVICTION", "EVICTION_HELD", "EVICTION_OVER", "LISTED", "NAMED_CLAIM", "WOULD_EVICT", "Frame", "Narrator"]

EVICTION = "DeviceEviction"
EVICTION_OVER = "DeviceEvictionOver"
EVICTION_HELD = "DeviceEvictionHeld"
NAMED_CLAIM = "NamedClaimOnSickDevice"
WOULD_EVICT = "DeviceWouldEvict"

LISTED = 1000
"""Devices that a status lists at most: a ConfigMap holds 1 MiB."""

_PACE = 1.0  # seconds between two statuses
_REFRESH = 30.0  # seconds until the Pods of PodGroups are looked up again
_LIFETIME = 300.0  # seconds until a status is written again though it says nothing new: somebody may have deleted it
_TIMEOUT = 10.0  # seconds for one request
_FIRST_DELAY = 0.5
_COMES_BACK = "a Pod that is made anew gets this device again: nobody looks at the taints of a claim that is allocated"

Pods = Mapping[Place, tuple[PodRef, ...]]
_Said = tuple[DeviceState, bool, str, tuple[str, ...], frozenset[PodRef]]


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What a status says beside the outcome.

    Attributes:
        name, namespace: of the controller, for its ConfigMap.
        identity: this instance.
        rules_api: the version of the rules; empty when none is served.
        dry_run: the policy's.
    """

    name: str
    namespace: str
    identity: str
    rules_api: str
    dry_run: bool


class Narrator:
    """Tells of what the leader decides.

    Attributes:
        problem: what keeps the status from being written, or Pods from being read.
    """

    def __init__(self, cluster: Cluster, events: Events, outcome: Latest[Outcome], frame: Frame) -> None:
        """Tell of ``outcome`` once ``run`` runs."""
        self.problem: Latest[str | None] = Latest(None)
        self._cluster, self._events, self._outcome, self._frame = cluster, events, outcome, frame
        self._written: list[Written] = []
        self._told: dict[Place, _Said] = {}
        self._stored: ControllerStatus | None = None
        self._stored_at = 0.0
        self._failures = 0
        self._again: float | None = None

    def observe(self, written: Written) -> None:
        """Note a rule that was written; ``run`` tells of it. Never waits."""
        self._written.append(written)

    async def run(self) -> None:
        """Tell until cancelled; a status at most once a second, and what fails again later."""
        async with aclosing(follow(self._outcome, until=lambda: self._again)) as turns:
            async for (outcome,) in turns:
                self._again = None
                if outcome.leads:
                    await self._turn(outcome)
                else:
                    self._told, self._stored, self._written = {}, None, []
                    self.problem.set(None)
                await asyncio.sleep(_PACE)

    async def _turn(self, outcome: Outcome) -> None:
        """Tell what is new. What cannot be written is said, and keeps nothing else from being told."""
        problems = [problem async for problem in self._steps(outcome)]
        now = asyncio.get_running_loop().time()
        self.problem.set("; ".join(problems) or None)
        self._failures = self._failures + 1 if problems else 0
        if problems:
            self._again = now + backoff(_FIRST_DELAY, self._failures)
        else:
            self._again = now + (_REFRESH if _has_groups(outcome) else _LIFETIME)

    async def _steps(self, outcome: Outcome) -> AsyncIterator[str]:
        """Do what there is to do; yield what went wrong."""
        pods, problem = await self._pods(outcome)
        if problem:
            yield problem
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._publish(status_of(outcome, pods, self._frame))
        except (ClusterError, TimeoutError) as error:
            yield f"the status cannot be written: {_text(error)}"
        await self._tell(outcome, pods)

    async def _pods(self, outcome: Outcome) -> tuple[Pods, str]:
        """Return the Pods of each device, and why those of PodGroups are missing, if they are.

        In a dry run without those that tolerate the rule for ever.
        """
        found: dict[Place, tuple[PodRef, ...]] = {}
        problem = ""
        for verdict in outcome.decision.verdicts[:LISTED]:
            claims = outcome.claims.get(verdict.place, ())
            if verdict.state == "would-evict":
                claims = tuple(_leaving(claims, verdict))
            found[verdict.place] = pods_named(claims)
            if problem:  # one request that hangs is enough
                continue
            try:
                async with asyncio.timeout(_TIMEOUT):
                    found[verdict.place] = await pods_of(self._cluster, claims, verdict.node)
            except (ClusterError, TimeoutError) as error:
                problem = f"Pods cannot be read: {_text(error)}"
        return found, problem

    async def _publish(self, status: ControllerStatus) -> None:
        """Write the status if it says anything new, or is old."""
        now = asyncio.get_running_loop().time()
        if status == self._stored and now < self._stored_at + _LIFETIME:
            return
        text = encode_status(replace(status, written=stamp(int(unix_time()))))
        meta = {"name": status_name(self._frame.name), "namespace": self._frame.namespace}
        await self._cluster.apply(CONFIG_MAP, {"metadata": meta, "data": {STATUS_KEY: text}}, self._frame.name)
        self._stored, self._stored_at = status, now

    async def _tell(self, outcome: Outcome, pods: Pods) -> None:
        written, self._written = self._written, []
        for each in written:
            await self._tell_written(each)
        told = {}
        for verdict in outcome.decision.verdicts:
            affected = frozenset(pods.get(verdict.place, ()))
            said = (verdict.state, verdict.is_ruled, verdict.problem, verdict.named, affected)
            if self._told.get(verdict.place) != said:
                await self._tell_verdict(verdict, outcome.claims.get(verdict.place, ()), pods.get(verdict.place, ()))
            told[verdict.place] = said
        self._told = told

    async def _tell_written(self, written: Written) -> None:
        """Tell of a rule that evicts from now on, or that is gone: on the claims and on the Node."""
        verdict, rule = written.verdict, f"DeviceTaintRule {written.rule}"
        if written.verb == "delete":
            reason, note = EVICTION_OVER, f"{rule} is lifted: {verdict.reason}"
        elif verdict.change and verdict.change.evicts:
            anew = " anew" if written.verb == "update" else ""
            reason, note = EVICTION, f"{verdict.problem}: {rule} evicts its Pods{anew}"
        else:
            return
        note, warning = f"{_device(verdict)}: {note}", reason == EVICTION
        for reference in (*(claim.reference for claim in written.claims), node_reference(verdict.node)):
            await self._events.emit(reference, reason=reason, note=note, warning=warning)

    async def _tell_verdict(self, verdict: Verdict, claims: tuple[Claim, ...], pods: tuple[PodRef, ...]) -> None:
        """Tell of a device for which no rule is made, or one that does not help: why, and whom it concerns."""
        note = f"{_device(verdict)}: {verdict.problem}: "
        match verdict.state:
            case "budget":
                note += f"its Pods are not evicted yet: {verdict.reason}"
                for claim in claims:
                    await self._events.emit(claim.reference, reason=EVICTION_HELD, note=note)
            case "evicting" if verdict.is_ruled:
                await self._tell_named(verdict, claims, pods)
            case "named-claim":
                await self._tell_named(verdict, claims, pods)
            case "would-evict":
                note += "its Pods would be evicted if this were no dry run"
                for pod in pods:
                    await self._events.emit(pod.reference, reason=WOULD_EVICT, note=note)
            case _:
                return

    async def _tell_named(self, verdict: Verdict, claims: tuple[Claim, ...], pods: tuple[PodRef, ...]) -> None:
        """Tell, on claim and Pods, that eviction alone does not help; and whether it happens all the same."""
        named = [claim for claim in claims if claim.name in verdict.named]
        if not named:
            return
        what = "not evicted (onNamedClaim: hold)" if verdict.state == "named-claim" else "evicted"
        note = f"{_device(verdict)}: {verdict.problem}: its Pods are {what}; {_COMES_BACK}"
        own = {consumer.uid for claim in named for consumer in claim.consumers}
        others = {consumer.uid for claim in claims if claim not in named for consumer in claim.consumers} - own
        theirs = (pod.reference for pod in pods if pod.uid not in others)
        for reference in (*(claim.reference for claim in named), *theirs):
            await self._events.emit(reference, reason=NAMED_CLAIM, note=note)


def status_of(outcome: Outcome, pods: Pods, frame: Frame) -> ControllerStatus:
    """Return what the status says, the time apart."""
    decision = outcome.decision
    nothing = () if frame.rules_api else ("the API server serves no DeviceTaintRule: no Pod is evicted",)
    return ControllerStatus(
        leader=frame.identity,
        rules_api=frame.rules_api,
        dry_run=frame.dry_run,
        problems=(*nothing, *outcome.problems),
        budgets=decision.budgets,
        devices=tuple(_listed(verdict, outcome, pods) for verdict in decision.verdicts[:LISTED]),
        omitted=max(0, len(decision.verdicts) - LISTED),
    )


def _listed(verdict: Verdict, outcome: Outcome, pods: Pods) -> DeviceStatus:
    place = verdict.place
    is_pending = bool(verdict.rule) and not verdict.is_ruled
    return DeviceStatus(
        driver=place.driver,
        pool=place.pool,
        device=place.device,
        node=verdict.node,
        problem=verdict.kind,
        code=verdict.code,
        since="" if verdict.since is None else stamp(verdict.since),
        state=verdict.state,
        reason="its rule is not made yet" if is_pending else verdict.reason,
        until="" if verdict.until is None else stamp(verdict.until),
        rule="" if is_pending else verdict.rule,
        claims=tuple(claim.name for claim in outcome.claims.get(place, ())),
        pods=tuple(map(str, pods.get(place, ()))),
    )


def _leaving(claims: Iterable[Claim], verdict: Verdict) -> Iterable[Claim]:
    """Yield the claims whose Pods would have to leave, at once or after a while."""
    key = f"{verdict.place.driver}/{verdict.kind}"
    return (claim for claim in claims if grace(claim, verdict.place, key, verdict.code) < math.inf)


def _has_groups(outcome: Outcome) -> bool:
    claims = (claim for held in outcome.claims.values() for claim in held)
    return any(consumer.resource == "podgroups" for claim in claims for consumer in claim.consumers)


def _device(verdict: Verdict) -> str:
    return f"{verdict.place.device} of {verdict.place.driver} on {verdict.node}"


def _text(error: Exception) -> str:
    return str(error) or "the API server does not answer"
