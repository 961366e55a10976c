"""What becomes of a sick device: when a rule is made, what it says, when it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_plugin.resources import DeviceTaint
from drasim.config import ProblemsConfig
from drasim.config.controller import Budget, Eviction
from drasim.config.strict import Delay
from drasim.controller.decision import Verdict, decide
from drasim.controller.policy import Policy
from drasim.controller.rules import MISSING_SINCE, NODE_OF, REASON, RECOVERING_SINCE
from drasim.controller.times import stamp
from drasim.problems import Problem
from drasim.taints import taints_for
from tests.driver.controlling import EVICT, GPU, T0, Cluster, claim, part, place, policy, taint


def sick(*taints: DeviceTaint, told: Policy | None = None) -> Cluster:
    """Return a cluster of one device with these taints, which a Pod's claim holds."""
    cluster = Cluster(told)
    cluster.publish(part("node-a", {"gpu-0": taints}))
    cluster.hold(claim("c", place(), pods=["p"]))
    return cluster


def evicted(*taints: DeviceTaint, told: Policy | None = None) -> Cluster:
    """Return the same, with the rule made."""
    cluster = sick(*taints, told=told)
    cluster.settle()
    assert cluster.rule() is not None
    return cluster


def heal(cluster: Cluster, *taints: DeviceTaint) -> None:
    cluster.publish(part("node-a", {"gpu-0": taints}))


def vanish(cluster: Cluster) -> None:
    cluster.slices.clear()


def wait(cluster: Cluster, seconds: float) -> Verdict | None:
    """Let time pass, then decide and write; return what became of the device, if anything is said of it."""
    cluster.now += seconds
    return next(iter(cluster.settle().verdicts), None)


def clocks(cluster: Cluster) -> dict[str, str]:
    rule = cluster.rule()
    said = (rule.metadata.annotations or {}) if rule else {}
    return {name: said[name] for name in (RECOVERING_SINCE, MISSING_SINCE) if name in said}


def test_a_rule_says_which_device_and_why() -> None:
    """The rule names driver, pool and device, evicts, and tells people the reason; the server says since when."""
    decision = sick(taint("lost")).decide()
    ((_, change),) = decision.changes
    rule = change.rule
    selector = rule.spec.device_selector
    assert change.verb == "create"
    assert selector is not None
    assert (selector.driver, selector.pool, selector.device) == (GPU, "node-a-gpu", "gpu-0")
    assert rule.spec.taint == DeviceTaint(key=f"{GPU}/lost", effect="NoExecute")
    assert rule.metadata.annotations == {
        NODE_OF: "node-a",
        REASON: f"gpu-0 on node-a: lost since {stamp(T0)}",
    }
    assert rule.metadata.labels == {
        "app.kubernetes.io/managed-by": "drasim-controller",
        "dra.example.com/driver": GPU,
    }


def test_a_free_device_gets_no_rule() -> None:
    """The taint of its slice keeps Pods away; a rule would only have Kubernetes look at all claims."""
    cluster = sick(taint("lost"))
    cluster.claims.clear()
    assert cluster.settle().verdicts == ()


def test_admin_access_does_not_hold_a_device() -> None:
    """Who looks into a device is no reason to evict."""
    cluster = sick(taint("lost"))
    cluster.claims.clear()
    cluster.hold(claim("watcher", place(), admin=True))
    assert cluster.settle().verdicts == ()


@pytest.mark.parametrize(
    "harmless",
    [
        taint("lost", effect="None"),
        taint("lost", effect="Unheard"),
        taint("xid/13"),
        taint("thermal"),
        taint("lost", driver="other.example.com"),
    ],
)
def test_what_the_policy_does_not_speak_of_evicts_nobody(harmless: DeviceTaint) -> None:
    """Warnings, unknown effects, other codes, other problems and other domains are left alone."""
    assert sick(harmless).settle().verdicts == ()


def test_a_problem_must_have_stood_for_its_time() -> None:
    """Before ``after`` is over the device waits, and the decision says until when.

    It may have begun at the end of the second that its taint says.
    """
    cluster = sick(taint("xid/79"))
    verdict = wait(cluster, 10)
    assert verdict is not None
    assert (verdict.state, verdict.until, cluster.decide().next) == ("waiting", T0 + 11, T0 + 11)
    assert cluster.rule() is None
    wait(cluster, 1)
    assert cluster.rule() is not None


@given(st.floats(0, 0.9999), st.floats(9, 12))
def test_a_rule_never_comes_early(fraction: float, stood: float) -> None:
    """From the look to the rule: a part of a second that the taint's time does not say is not taken from ``after``."""
    problem = Problem(kind="xid", code="79", since=T0 + fraction)
    cluster = sick(*taints_for([problem], GPU, ProblemsConfig()))
    cluster.now = problem.since + stood
    made = bool(cluster.decide().changes)
    assert not made or stood >= 10 - 1e-6
    assert made or stood < 11


def test_at_once_means_at_once_whatever_the_clocks_say() -> None:
    """With ``after: 0`` a Node whose clock runs ahead gets its rule at once."""
    cluster = sick(taint("lost", T0 + 3000))
    assert cluster.settle().changes


def test_the_worst_problem_makes_the_rule() -> None:
    """Of several problems the one listed first counts, however long the others have stood."""
    cluster = evicted(taint("ecc-uncorrectable", T0 - 50), taint("lost"))
    rule = cluster.rule()
    assert rule is not None
    assert rule.spec.taint.key == f"{GPU}/lost"


def test_a_worse_problem_changes_the_rule_at_once() -> None:
    """It is another taint, so the seconds of tolerations begin anew; the reason follows."""
    cluster = evicted(taint("ecc-uncorrectable"))
    before = cluster.rule()
    heal(cluster, taint("ecc-uncorrectable"), taint("lost", T0 + 5))
    wait(cluster, 5)
    rule = cluster.rule()
    assert rule is not None
    assert before is not None
    assert (before.spec.taint.time_added, rule.spec.taint.time_added) == (stamp(T0), stamp(T0 + 5))
    assert rule.spec.taint.key == f"{GPU}/lost"
    assert (rule.metadata.annotations or {})[REASON].startswith("gpu-0 on node-a: lost since")


def test_another_code_keeps_the_time() -> None:
    """The same problem with another code is the same taint: no running toleration begins anew."""
    cluster = evicted(taint("xid/79", T0 - 20))
    heal(cluster, taint("xid/48", T0 - 20))
    wait(cluster, 5)
    rule = cluster.rule()
    assert rule is not None
    assert (rule.spec.taint.value, rule.spec.taint.time_added) == ("48", stamp(T0))


def test_a_worse_problem_that_is_not_due_changes_nothing_yet() -> None:
    """It must have stood for its own time first, and the one that the rule says stands all the same."""
    told = policy((replace(EVICT[0], after=Delay(60)), EVICT[2]))
    cluster = evicted(taint("ecc-uncorrectable"), told=told)
    heal(cluster, taint("ecc-uncorrectable"), taint("lost"))
    wait(cluster, 60)
    rule = cluster.rule()
    assert rule is not None
    assert rule.spec.taint.key == f"{GPU}/ecc-uncorrectable"
    wait(cluster, 1)
    changed = cluster.rule()
    assert changed is not None
    assert changed.spec.taint.key == f"{GPU}/lost"


def test_recovery_takes_its_time_and_is_told() -> None:
    """Published without the problem: the clock is an annotation, and the rule goes when it has run."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, verdict.until) == ("recovering", T0 + 30)
    assert clocks(cluster) == {RECOVERING_SINCE: stamp(T0)}
    wait(cluster, 29)
    assert cluster.rule() is not None
    wait(cluster, 1)
    assert cluster.rule() is None


def effect(cluster: Cluster) -> str:
    rule = cluster.rule()
    assert rule is not None
    return rule.spec.taint.effect


def test_a_device_that_is_well_again_evicts_nobody() -> None:
    """Until its rule goes it is kept from claims alone; not to be seen changes nothing, a relapse evicts again."""
    cluster = evicted(taint("lost"))
    assert effect(cluster) == "NoExecute"
    vanish(cluster)
    wait(cluster, 1)
    assert effect(cluster) == "NoExecute"
    heal(cluster)
    wait(cluster, 1)
    assert effect(cluster) == "NoSchedule"
    vanish(cluster)
    wait(cluster, 1)
    assert effect(cluster) == "NoSchedule"
    heal(cluster, taint("lost"))
    wait(cluster, 1)
    rule = cluster.rule()
    assert rule is not None
    assert (effect(cluster), rule.spec.taint.time_added) == ("NoExecute", stamp(T0 + 4)), "tolerations begin anew"


def test_a_rule_of_an_older_version_evicts_nobody_either() -> None:
    """There a device that recovers had a rule that evicts; the clock goes on."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0)
    ((name, rule),) = cluster.rules.items()
    spec = replace(rule.spec, taint=replace(rule.spec.taint, effect="NoExecute"))
    cluster.rules[name] = replace(rule, spec=spec)
    wait(cluster, 29)
    assert (effect(cluster), clocks(cluster)) == ("NoSchedule", {RECOVERING_SINCE: stamp(T0)})


def test_another_leader_goes_on_counting() -> None:
    """The clock is in the rule, not in the process."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0)
    wait(cluster, 20)
    cluster.restart()
    wait(cluster, 9)
    assert cluster.rule() is not None
    wait(cluster, 1)
    assert cluster.rule() is None


def test_a_relapse_stops_the_clock() -> None:
    """The problem came back: it must be gone for the whole time once more, and the rule was there all the while."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0)
    heal(cluster, taint("lost", T0 + 20))
    wait(cluster, 20)
    assert clocks(cluster) == {}
    heal(cluster)
    wait(cluster, 5)
    wait(cluster, 29)
    assert cluster.rule() is not None
    wait(cluster, 1)
    assert cluster.rule() is None


def test_a_relapse_need_not_stand_for_long() -> None:
    """A device whose rule stands is not well while its problem stands, be it younger than ``after``."""
    cluster = evicted(taint("xid/79", T0 - 11))
    heal(cluster)
    wait(cluster, 0)
    heal(cluster, taint("xid/79", T0 + 58))
    verdict = wait(cluster, 61)
    assert verdict is not None
    assert (verdict.state, clocks(cluster)) == ("evicting", {})


def test_a_lesser_problem_takes_over_when_the_worse_is_over() -> None:
    """The rule is not lifted in between: it says the problem that is left."""
    cluster = evicted(taint("lost"), taint("ecc-uncorrectable"))
    heal(cluster, taint("ecc-uncorrectable"))
    wait(cluster, 0)
    wait(cluster, 29)
    wait(cluster, 1)
    rule = cluster.rule()
    assert rule is not None
    assert rule.spec.taint.key == f"{GPU}/ecc-uncorrectable"
    assert clocks(cluster) == {}


def test_a_lesser_problem_that_is_not_due_keeps_the_rule() -> None:
    """A rule is never lifted from a device that the policy will evict from in a moment."""
    cluster = evicted(taint("lost"))
    heal(cluster, taint("xid/79", T0 + 29))
    wait(cluster, 0)
    verdict = wait(cluster, 31)
    assert verdict is not None
    assert (verdict.state, verdict.until, cluster.rule() is not None) == ("recovering", T0 + 40, True)
    wait(cluster, 9)
    rule = cluster.rule()
    assert rule is not None
    assert rule.spec.taint.key == f"{GPU}/xid"


def test_a_problem_that_is_not_due_evicts_nobody() -> None:
    """Nor does the rule for the one before it, which is over: it waits, even where recovery takes no time."""
    cluster = evicted(taint("ecc-uncorrectable"))
    heal(cluster, taint("xid/79"))
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, verdict.until, effect(cluster)) == ("recovering", T0 + 11, "NoSchedule")
    assert cluster.decide().changes == ()
    wait(cluster, 11)
    rule = cluster.rule()
    assert rule is not None
    assert (rule.spec.taint.key, effect(cluster), clocks(cluster)) == (f"{GPU}/xid", "NoExecute", {})


def test_slices_that_vanish_are_no_recovery() -> None:
    """A kubelet restart or a driver that is away lifts nothing, and what comes back sick was sick all the time."""
    cluster = evicted(taint("lost"))
    added = cluster.rule()
    vanish(cluster)
    wait(cluster, 1)
    assert list(clocks(cluster)) == [MISSING_SINCE]
    wait(cluster, 3600)
    assert cluster.rule() is not None
    heal(cluster, taint("lost"))
    wait(cluster, 1)
    rule = cluster.rule()
    assert rule is not None
    assert added is not None
    assert rule.spec == added.spec
    assert clocks(cluster) == {}


def test_missing_interrupts_the_recovery() -> None:
    """Only time in which the device is published and well counts."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0)
    vanish(cluster)
    wait(cluster, 20)
    assert list(clocks(cluster)) == [MISSING_SINCE]
    heal(cluster)
    wait(cluster, 20)
    wait(cluster, 29)
    assert cluster.rule() is not None
    wait(cluster, 1)
    assert cluster.rule() is None


def test_a_device_that_is_gone_for_good() -> None:
    """Missing for ``goneAfter`` and held by nobody: the rule goes; a claim that still holds it keeps the rule."""
    cluster = evicted(taint("lost"))
    vanish(cluster)
    wait(cluster, 0)
    verdict = wait(cluster, 600)
    assert verdict is not None
    assert (verdict.state, verdict.until, verdict.reason) == ("missing", None, "not published, and a claim holds it")
    cluster.claims.clear()
    wait(cluster, 0)
    assert cluster.rule() is None


def test_a_free_device_that_is_missing_waits_for_its_time() -> None:
    """The decision says when the rule goes."""
    cluster = evicted(taint("lost"))
    vanish(cluster)
    cluster.claims.clear()
    wait(cluster, 0)
    wait(cluster, 599)
    assert (cluster.rule() is not None, cluster.decide().next) == (True, T0 + 600)
    wait(cluster, 1)
    assert cluster.rule() is None


def test_a_node_that_is_gone_takes_its_rules_with_it() -> None:
    """Also when its slices are still there for a moment; no new rule is made for them."""
    cluster = evicted(taint("lost"))
    cluster.nodes.clear()
    wait(cluster, 0)
    assert (cluster.rules, cluster.settle().changes) == ({}, ())


def test_a_part_of_a_pool_says_nothing_of_what_it_does_not_show() -> None:
    """Neither the recovery's clock nor the other one begins, and one that runs stays as it is."""
    cluster = evicted(taint("lost"))
    cluster.publish(part("node-a", {"gpu-1": []}, generation=2, count=2))
    assert wait(cluster, 100) is not None
    assert clocks(cluster) == {}
    cluster.publish(part("node-a", {"gpu-0": []}, generation=2, count=2))
    wait(cluster, 100)
    assert clocks(cluster) == {}
    vanish(cluster)
    wait(cluster, 0)
    told = clocks(cluster)
    cluster.publish(part("node-a", {"gpu-1": []}, generation=3, count=2))
    wait(cluster, 1)
    assert (clocks(cluster), list(told)) == (told, [MISSING_SINCE])


def test_a_pool_in_parts_interrupts_the_recovery() -> None:
    """For how long nobody knew how the device is: it must be seen well for its whole time afterwards."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0)
    cluster.publish(part("node-a", {"gpu-1": []}, generation=2, count=2))
    wait(cluster, 1)
    assert (clocks(cluster), cluster.decide().changes) == ({}, ())
    assert [verdict.state for verdict in cluster.decide().verdicts] == ["recovering"], "what its rule does"
    cluster.publish(part("node-a", {"gpu-0": []}, generation=3))
    wait(cluster, 100)
    wait(cluster, 29)
    assert cluster.rule() is not None
    wait(cluster, 1)
    assert cluster.rule() is None


def test_a_part_of_a_pool_that_shows_a_problem_counts() -> None:
    """A taint of the newest generation is true, whatever is missing beside it; an older generation is not looked at."""
    cluster = sick()
    cluster.publish(part("node-a", {"gpu-0": [taint("lost")]}, name="old"))
    cluster.publish(part("node-a", {"gpu-0": []}, generation=2, count=2))
    assert cluster.settle().changes == ()
    cluster.publish(part("node-a", {"gpu-0": [taint("lost")]}, generation=2, count=2))
    assert [change.verb for _, change in cluster.settle().changes] == ["create"]


def test_a_claim_that_outlives_its_pods_holds_the_eviction_back() -> None:
    """By default nobody is moved back and forth: the claim is named, and no rule is made."""
    cluster = sick(taint("lost"))
    cluster.hold(claim("mine", place(), owner=""))
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, verdict.named, cluster.rules) == ("named-claim", ("default/mine",), {})


@pytest.mark.parametrize(("owner", "state"), [("Pod", "evicting"), ("PodGroup", "named-claim"), ("", "named-claim")])
def test_which_claims_outlive_their_pods(owner: str, state: str) -> None:
    """Made for one Pod (by a template or for an extended resource): no. Of a PodGroup, or made by people: yes."""
    cluster = sick(taint("lost"))
    cluster.hold(claim("c", place(), owner=owner))
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert verdict.state == state


def test_named_claims_are_evicted_if_the_policy_says_so() -> None:
    """They are named all the same, for the Event."""
    cluster = sick(taint("lost"), told=policy(hold_named=False))
    cluster.hold(claim("c", place(), owner=""))
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, verdict.named, cluster.rule() is not None) == ("evicting", ("default/c",), True)


def test_a_rule_that_stands_names_the_claims_that_outlive_their_pods() -> None:
    """Also when such a claim came later, or the policy holds them back only now: the rule does not help there."""
    cluster = evicted(taint("lost"))
    cluster.hold(claim("mine", place(), owner=""))
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, verdict.named, cluster.rule() is not None) == ("evicting", ("default/mine",), True)


def test_a_dry_run_makes_no_rule_and_lifts_those_that_stand() -> None:
    """It says who would be evicted; rules of before would evict, so they go."""
    cluster = evicted(taint("lost"))
    cluster.policy = policy(dry_run=True)
    wait(cluster, 0)
    verdict = wait(cluster, 0)
    assert verdict is not None
    assert (verdict.state, cluster.rules, cluster.decide().changes) == ("would-evict", {}, ())


def test_a_rule_that_the_policy_does_not_want_any_more_goes() -> None:
    """Another configuration lifts it at once, unless it wants one for something else on that device."""
    cluster = evicted(taint("lost"), taint("ecc-uncorrectable"))
    cluster.policy = policy(EVICT[2:])
    cluster.restart()
    wait(cluster, 0)
    rule = cluster.rule()
    assert rule is not None
    assert rule.spec.taint.key == f"{GPU}/ecc-uncorrectable"
    cluster.policy = policy((Eviction(problem="nvlink"),))
    cluster.restart()
    wait(cluster, 0)
    assert cluster.rule() is None


def test_what_somebody_made_of_our_rule_is_made_good() -> None:
    """The effect is the policy's; a rule that is not labelled or named as ours is not ours."""
    cluster = evicted(taint("lost"))
    rule = cluster.rule()
    assert rule is not None
    name = rule.metadata.name or ""
    spec = replace(rule.spec, taint=replace(rule.spec.taint, effect="None"))
    cluster.rules[name] = replace(rule, spec=spec)
    wait(cluster, 1)
    mended = cluster.rule()
    assert mended is not None
    assert mended.spec.taint.effect == "NoExecute"


def test_rules_of_people_are_not_looked_at() -> None:
    """Whatever their selector says: without our label, or under another name, they are somebody else's."""
    cluster = evicted(taint("lost"))
    rule = cluster.rule()
    assert rule is not None
    theirs = replace(rule, metadata=replace(rule.metadata, labels=None))
    other = replace(rule, metadata=replace(rule.metadata, name="by-hand"))
    cluster.rules = {"a": theirs, "by-hand": other}
    cluster.slices.clear()
    cluster.claims.clear()
    cluster.nodes.clear()
    assert cluster.decide().verdicts == ()


def test_a_clock_of_the_future_begins_anew() -> None:
    """A start that lies far ahead was written by a machine whose time was wrong: it must not hold for hours."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    cluster.now += 7200
    cluster.settle()
    cluster.now -= 7200
    wait(cluster, 0)
    assert clocks(cluster) == {RECOVERING_SINCE: stamp(T0)}


def test_clocks_are_never_short() -> None:
    """Times are written in whole seconds; what is cut off does not shorten the wait."""
    cluster = evicted(taint("lost"))
    heal(cluster)
    wait(cluster, 0.9)
    wait(cluster, 29.9)
    assert cluster.rule() is not None


def test_budget_of_a_node_goes_on_when_it_frees() -> None:
    """The older problem goes first; the second device waits until the rule of the first is lifted."""
    cluster = Cluster(policy(budget=Budget(per_node=1, per_cluster=None)))
    cluster.publish(part("node-a", {"gpu-0": [taint("lost", T0 + 1)], "gpu-1": [taint("lost", T0)]}))
    cluster.hold(claim("a", place("gpu-0")), claim("b", place("gpu-1")))
    cluster.now += 1
    decision = cluster.settle()
    assert [verdict.state for verdict in decision.verdicts] == ["evicting", "budget"]
    assert cluster.rule("gpu-1") is not None
    assert [(use.scope, use.name, use.limit, use.used, use.held) for use in decision.budgets] == [
        ("node", "node-a", 1, 1, 1)
    ]
    cluster.publish(part("node-a", {"gpu-0": [taint("lost", T0 + 1)], "gpu-1": []}))
    wait(cluster, 0)
    wait(cluster, 30)
    wait(cluster, 0)
    assert (cluster.rule("gpu-1"), cluster.rule("gpu-0") is not None) == (None, True)


def test_rules_beyond_the_budget_stay_and_no_new_one_comes() -> None:
    """A smaller budget is no reason to lift anything."""
    cluster = Cluster()
    cluster.publish(part("node-a", {f"gpu-{index}": [taint("lost")] for index in range(3)}))
    cluster.hold(*(claim(f"c{index}", place(f"gpu-{index}")) for index in range(2)))
    cluster.settle()
    cluster.policy = policy(budget=Budget(per_cluster=1))
    cluster.restart()
    cluster.hold(claim("c2", place("gpu-2")))
    decision = cluster.settle()
    assert (len(cluster.rules), decision.changes) == (2, ())
    assert decision.budgets[0].used == 2


def test_a_device_whose_rule_cannot_be_made_uses_no_budget() -> None:
    """It says why, and the one after it gets its turn: what stands in the way may stand there for ever."""
    cluster = Cluster(policy(budget=Budget(per_cluster=1)))
    cluster.publish(part("node-a", {"gpu-0": [taint("lost", T0 - 9)], "gpu-1": [taint("lost")]}))
    cluster.hold(claim("a", place("gpu-0")), claim("b", place("gpu-1")))
    decision = decide(cluster.world(), cluster.policy, cluster.now, {place("gpu-0"): "refused"})
    first, second = decision.verdicts
    assert (first.place, first.reason, first.change, first.is_ruled) == (place("gpu-0"), "refused", None, False)
    assert [verdict for verdict, _ in decision.changes] == [second]


@pytest.mark.parametrize("spoilt", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_times_beyond_the_calendar_do_no_harm(spoilt: str) -> None:
    """Others write into slices and rules what they like; a decision can be made, and what it says be written."""
    odd = replace(taint("xid/79"), time_added=spoilt)
    cluster = sick(odd)
    for verdict in cluster.settle().verdicts:
        assert stamp(verdict.until or 0)
    heal(cluster, taint("lost"))
    cluster.settle()
    rule = cluster.rule()
    assert rule is not None
    said = {**(rule.metadata.annotations or {}), RECOVERING_SINCE: spoilt, MISSING_SINCE: spoilt}
    cluster.rules[rule.metadata.name or ""] = replace(rule, metadata=replace(rule.metadata, annotations=said))
    vanish(cluster)
    wait(cluster, 0)
    assert cluster.rule() is not None


def test_a_rule_that_lost_its_node_counts_for_it_all_the_same() -> None:
    """Somebody took the annotation away: it is put back, and the Node's budget is not exceeded meanwhile."""
    cluster = Cluster(policy(budget=Budget(per_node=1, per_cluster=None)))
    cluster.publish(part("node-a", {"gpu-0": [taint("lost", T0 - 9)], "gpu-1": [taint("lost")]}))
    cluster.hold(claim("a", place("gpu-0")), claim("b", place("gpu-1")))
    cluster.settle()
    rule = cluster.rule()
    assert rule is not None
    cluster.rules = {rule.metadata.name or "": replace(rule, metadata=replace(rule.metadata, annotations=None))}
    wait(cluster, 0)
    mended = cluster.rule()
    assert mended is not None
    assert ((mended.metadata.annotations or {})[NODE_OF], cluster.rule("gpu-1")) == ("node-a", None)
