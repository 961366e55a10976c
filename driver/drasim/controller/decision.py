"""What becomes of each sick device: the whole behaviour of the controller, as a function of the world and the time.

A rule is made for a device that is published with a problem of the policy for long enough, that a claim holds, and that
the budget allows. Once the device is published without that problem, the rule evicts nobody any more and only keeps
claims away. It is lifted when the device has been published like that for long enough, when its Node is gone, when the
device has been missing for long enough and no claim holds it, or when the policy does not want it any more. Not to be
seen is not to be well: slices vanish whenever a kubelet or a driver restarts. Deciding again after a decision was
carried out changes nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from dra_plugin.resources import DeviceTaintRule
from drasim.controller.budget import Ledger
from drasim.controller.objects import Place, outlives_its_pods
from drasim.controller.policy import Policy, Standing
from drasim.controller.rules import Ruled, believed, missing, new_rule, recovering, saying, unclocked
from drasim.controller.status import BudgetUse, DeviceState
from drasim.controller.world import World

__all__ = ["Change", "Decision", "Verdict", "decide"]


_NOTHING: Mapping[Place, str] = {}


class Change(msgspec.Struct, frozen=True):
    """A write: ``rule`` is what is to be stored, or what is stored and is to go."""

    verb: Literal["create", "update", "delete"]
    rule: DeviceTaintRule

    @property
    def evicts(self) -> bool:
        """Eviction begins with it, or begins anew: the server is to say when the taint was added."""
        taint = self.rule.spec.taint
        return self.verb != "delete" and taint.effect == "NoExecute" and taint.time_added is None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one device.

    Attributes:
        place, node: the device.
        kind, code: the problem: of its rule where there is one.
        since: since when that stands, Unix time; None when it does not.
        state: see ``status.DeviceState``.
        reason: for people.
        until: Unix time at which to look again, None when only a change matters.
        rule: the name of its rule; empty where there is and will be none.
        change: what is to be written.
        named: claims that hold the device and outlive their Pods.
    """

    place: Place
    node: str
    kind: str
    code: str = ""
    since: int | None = None
    state: DeviceState
    reason: str = ""
    until: float | None = None
    rule: str = ""
    change: Change | None = None
    named: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """The problem, for people."""
        return f"{self.kind} {self.code}".rstrip()

    @property
    def is_ruled(self) -> bool:
        """Its rule stands already."""
        return bool(self.rule) and (self.change is None or self.change.verb != "create")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done now, and when to look again (Unix time; None: when something changes)."""

    verdicts: tuple[Verdict, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
    next: float | None = None

    @property
    def changes(self) -> tuple[tuple[Verdict, Change], ...]:
        """What is to be written: what goes first makes room for what comes."""
        order = ("delete", "update", "create")
        changes = [(verdict, verdict.change) for verdict in self.verdicts if verdict.change]
        return tuple(sorted(changes, key=lambda pair: order.index(pair[1].verb)))


def decide(world: World, policy: Policy, now: float, barred: Mapping[Place, str] = _NOTHING) -> Decision:
    """Return what becomes of all devices that have a rule, or a problem of the policy and a holder.

    ``barred``: devices for which no rule can be made now, and why; they use no budget that others wait for.
    """
    court = _Court(world, policy, now, barred)
    verdicts = (
        *(court.of_rule(rule) for _, rule in sorted(world.rules.items())),
        *(court.of_device(place, problems) for place, problems in _candidates(world)),
    )
    times = (*(verdict.until for verdict in verdicts if verdict.until is not None), *court.upcoming())
    return Decision(verdicts=verdicts, budgets=court.ledger.uses(), next=min(times, default=None))


def _candidates(world: World) -> Iterator[tuple[Place, tuple[Standing, ...]]]:
    """Yield the held devices with a problem and no rule, on Nodes that there are; the worst first, then the oldest."""
    found: list[tuple[Standing, Place, tuple[Standing, ...]]] = []
    for driver, name in world.sick:
        pool = world.pools[driver, name]
        for device, problems in pool.sick.items():
            place = Place(driver, name, device)
            is_there = not pool.node or pool.node in world.racks
            if is_there and place in world.holders and place not in world.rules:
                found.append((problems[0], place, problems))
    for _, place, problems in sorted(found):
        yield place, problems


class _Court:
    """One decision: what it is made from, and the budget that it has used."""

    def __init__(self, world: World, policy: Policy, now: float, barred: Mapping[Place, str]) -> None:
        self.ledger = Ledger(world, policy.budget, counting=not policy.dry_run)
        self._world, self._policy, self._now, self._barred = world, policy, now, barred

    def of_rule(self, rule: Ruled) -> Verdict:
        """Judge a device that has a rule."""
        verdict = self._of_rule(replace(rule, node=self._world.node_of(rule)))
        return replace(verdict, named=self._named(rule.place))

    def _of_rule(self, rule: Ruled) -> Verdict:
        over = self._over(rule)
        if over:
            return _lifted(rule, over)
        standing = self._world.standing(rule.place)
        rank = self._policy.rank(rule.place.driver, rule.kind, rule.code)
        due = self._due(standing)
        if due is not None and (rank is None or due.rank <= rank):
            return _evicting(rule, due, due)
        own = next((problem for problem in standing if problem.rank == rank), None)
        if own is not None:  # it came back within its time, and need not stand for long once more
            return _evicting(rule, own, None)
        if rank is None:
            return self._unwanted(rule, standing)
        return self._quiet(rule, rank, standing)

    def of_device(self, place: Place, problems: tuple[Standing, ...]) -> Verdict:
        """Judge a held device that has a problem and no rule."""
        due = self._due(problems)
        if due is None:
            first = min(problems, key=self._policy.due_at)
            waiting = self._unruled(place, first, "waiting", f"stands for less than {self._after(first)}")
            return replace(waiting, until=self._policy.due_at(first))
        named = self._named(place)
        if named and self._policy.hold_named:
            reason = f"claim {', '.join(named)} outlives its Pods and would bring the next ones to this device"
            return self._unruled(place, due, "named-claim", reason)
        evicting = self._unruled(place, due, "evicting")
        if place in self._barred:
            return replace(evicting, reason=self._barred[place])
        used_up = self.ledger.grants(evicting.node)
        if used_up is not None:
            scope, limit = " ".join(used_up).rstrip(), self.ledger.limit(used_up)
            return replace(evicting, state="budget", reason=f"the budget of the {scope} ({limit} at once) is used up")
        if self._policy.dry_run:
            return replace(evicting, state="would-evict")
        rule = new_rule(place, evicting.node, due)
        return replace(evicting, rule=rule.metadata.name or "", change=Change("create", rule))

    def upcoming(self) -> Iterator[float]:
        """Yield the times at which another problem of a device with a rule will have stood for long enough."""
        for place in self._world.rules:
            for problem in self._world.standing(place):
                if self._policy.due_at(problem) > self._now:
                    yield self._policy.due_at(problem)

    def _over(self, rule: Ruled) -> str:
        """Return why a rule goes whatever its device is like; empty when there is no such reason."""
        if rule.node and rule.node not in self._world.racks:
            return "its Node is gone"
        return "dry run" if self._policy.dry_run else ""

    def _quiet(self, rule: Ruled, rank: int, standing: tuple[Standing, ...]) -> Verdict:
        """Judge a device of which nobody says that it has the problem of its rule, or a worse one that is due."""
        published = self._world.publishes(rule.place)
        if published is None:
            return self._unknown(rule)
        return self._recovering(rule, rank, standing) if published else self._missing(rule)

    def _unknown(self, rule: Ruled) -> Verdict:
        """Judge a device that nobody can tell of: it has not been well all the time, and it is not missing either."""
        verdict = _kept(rule, _as_before(rule), "a part of its pool is missing: nobody knows how the device is")
        if rule.recovering is None:
            return verdict
        return replace(verdict, change=Change("update", unclocked(rule)))

    def _unwanted(self, rule: Ruled, standing: tuple[Standing, ...]) -> Verdict:
        """Lift a rule for a problem that the policy does not have any more, unless another one will be due."""
        if not standing:
            return _lifted(rule, "the policy does not evict for it any more")
        return _kept(rule, _as_before(rule), "another problem stands", self._soonest(standing))

    def _missing(self, rule: Ruled) -> Verdict:
        """Judge a device that is not published: its driver may be away for a moment, or it may be gone."""
        since, wait = believed(rule.missing, self._now), self._policy.gone_after
        if since is None or rule.recovering is not None:
            start = self._now if since is None else since
            change = Change("update", missing(rule, start))
            return replace(_kept(rule, "missing", "not published", start + wait), change=change)
        if rule.place in self._world.holders:
            return _kept(rule, "missing", "not published, and a claim holds it")
        if self._now >= since + wait:
            return _lifted(rule, f"missing for {wait:g} s, and no claim holds it")
        return _kept(rule, "missing", "not published", since + wait)

    def _recovering(self, rule: Ruled, rank: int, standing: tuple[Standing, ...]) -> Verdict:
        """Judge a device that is published and well, as far as its rule is concerned."""
        since, wait = believed(rule.recovering, self._now), float(self._policy.evict[rank].recover_after)
        start = self._now if since is None else since
        if self._now < start + wait:
            return _well(rule, start, f"well for less than {wait:g} s", start + wait)
        if not standing:
            return _lifted(rule, "the device is well again")
        due = self._due(standing)
        if due is not None:
            return _evicting(rule, due, due)
        return _well(rule, start, "another problem stands", self._soonest(standing))

    def _unruled(self, place: Place, problem: Standing, state: DeviceState, reason: str = "") -> Verdict:
        return Verdict(
            place=place,
            node=self._world.pools[place.driver, place.pool].node,
            kind=problem.kind,
            code=problem.code,
            since=problem.since,
            state=state,
            reason=reason,
            named=self._named(place),
        )

    def _named(self, place: Place) -> tuple[str, ...]:
        claims = self._world.holders.get(place, {}).items()
        return tuple(sorted(name for name, claim in claims if outlives_its_pods(claim)))

    def _due(self, standing: tuple[Standing, ...]) -> Standing | None:
        """Return the worst problem that has stood for long enough."""
        return next((problem for problem in standing if self._policy.due_at(problem) <= self._now), None)

    def _soonest(self, standing: tuple[Standing, ...]) -> float:
        return min(self._policy.due_at(problem) for problem in standing)

    def _after(self, problem: Standing) -> str:
        return f"{float(self._policy.evict[problem.rank].after):g} s"


def _kept(rule: Ruled, state: DeviceState, reason: str = "", until: float | None = None) -> Verdict:
    return Verdict(
        place=rule.place,
        node=rule.node,
        kind=rule.kind,
        code=rule.code,
        state=state,
        reason=reason,
        until=until,
        rule=rule.name,
    )


def _evicting(rule: Ruled, stands: Standing, problem: Standing | None) -> Verdict:
    """Keep the rule for what ``stands``, without a clock; ``problem`` is what it is to say from now on, if not None."""
    verdict = replace(_kept(rule, "evicting"), since=stands.since)
    if problem is not None:
        verdict = replace(verdict, kind=problem.kind, code=problem.code)
    return _saying(verdict, rule, saying(rule, problem))


def _well(rule: Ruled, since: float, reason: str, until: float) -> Verdict:
    """Keep the rule for a device that is well since then: it keeps claims away, and evicts nobody."""
    return _saying(_kept(rule, "recovering", reason, until), rule, recovering(rule, since))


def _as_before(rule: Ruled) -> DeviceState:
    """Return the state of a device whose rule goes on doing what it does."""
    return "evicting" if rule.rule.spec.taint.effect == "NoExecute" else "recovering"


def _saying(verdict: Verdict, rule: Ruled, wanted: DeviceTaintRule) -> Verdict:
    return verdict if wanted == rule.rule else replace(verdict, change=Change("update", wanted))


def _lifted(rule: Ruled, reason: str) -> Verdict:
    return replace(_kept(rule, "recovering", reason), change=Change("delete", rule.rule))
