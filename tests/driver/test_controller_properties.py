"""What holds of the controller's decisions for any sequence of faults, repairs, outages, claims and restarts."""

from collections import Counter
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from dra_plugin.resources import DeviceTaint
from drasim.config.controller import Budget
from drasim.controller.budget import limit_of
from drasim.controller.decision import Decision
from drasim.controller.objects import Place, Slice, held_places, outlives_its_pods
from drasim.controller.policy import Policy
from drasim.controller.rules import Ruled, read_rule
from tests.driver.controlling import DRIVERS, Cluster, claim, part, place, policy, taint

NODES = ("node-a", "node-b", "node-c")
RACKS = {"node-a": "r1", "node-b": "r1", "node-c": ""}
DEVICES = ("gpu-0", "gpu-1")
PROBLEMS = ("lost", "xid/79", "xid/48", "xid/13", "ecc-uncorrectable")

Step = tuple[str, str, str, object]
nothing = st.just("")


def steps_on(names: tuple[str, ...], hit: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    """Return what happens to these Nodes and devices: for the most part faults, repairs and time."""
    nodes, devices, problems = st.sampled_from(names), st.sampled_from(hit), st.sampled_from(PROBLEMS)
    often = st.one_of(
        st.tuples(st.just("fault"), nodes, devices, problems),
        st.tuples(st.just("repair"), nodes, devices, problems),
        st.tuples(st.just("heal"), nodes, devices, nothing),
        st.tuples(st.just("pass"), nothing, nothing, st.sampled_from([0.3, 10, 31])),
        st.tuples(st.just("pass"), nothing, nothing, st.sampled_from([31, 61, 700])),
    )
    seldom = st.one_of(
        st.tuples(st.just("claim"), nodes, devices, st.sampled_from(["Pod", "PodGroup", ""])),
        st.tuples(st.just("free"), nodes, devices, nothing),
        st.tuples(st.sampled_from(["vanish", "return", "partly", "delete", "join"]), nodes, nothing, nothing),
        st.tuples(st.just("unplug"), nodes, devices, nothing),
    )
    return st.lists(st.one_of(often, often, seldom), min_size=4, max_size=30)


def one(what: str, more: object = "") -> st.SearchStrategy[Step]:
    """Return one step of the life of one device."""
    return st.just((what, "node-a", "gpu-0", more))


closely = st.lists(  # all that can happen to one device that matters to its rule
    st.one_of(
        *(one(what, problem) for what in ("fault", "repair") for problem in ("lost", "ecc-uncorrectable")),
        *(one("pass", seconds) for seconds in (10, 31, 31, 700)),
        *(one(what) for what in ("vanish", "partly", "return", "return", "free")),
        one("fault", "xid/79"),
        one("claim", "Pod"),
    ),
    min_size=6,
    max_size=30,
)
steps = st.one_of(closely, steps_on(NODES, DEVICES))
amounts = st.sampled_from([None, None, 0, 1, 2, "10%", "50%", "100%"])
budgets = st.one_of(
    st.just(Budget(per_cluster=None)),
    st.builds(Budget, per_node=amounts, per_rack=amounts, per_cluster=amounts),
)
policies = st.builds(lambda budget, hold: policy(budget=budget, hold_named=hold), budgets, st.booleans())


class Life(Cluster):
    """A cluster that things happen to: what each Node has is one thing, what it publishes of it another."""

    def __init__(self, told: Policy) -> None:
        super().__init__(told)
        self.taints: dict[tuple[str, str], dict[str, DeviceTaint]] = {
            (node, device): {} for node in NODES for device in DEVICES
        }
        for node in NODES:
            self.add_node(node, RACKS[node])
            self.do("return", node, "", "")
            for device in DEVICES:
                self.do("claim", node, device, "Pod")

    def do(self, what: str, node: str, device: str, more: object) -> None:
        """Have one thing happen."""
        match what:
            case "pass":
                self.now += float(str(more))
            case "fault":
                kind = str(more).partition("/")[0]  # a device has one taint for each kind
                effect = "None" if more == "xid/13" else "NoSchedule"
                self.taints[node, device][kind] = taint(str(more), int(self.now), effect)
                self.republish(node)
            case "heal":
                self.taints[node, device].clear()
                self.republish(node)
            case "repair":
                self.taints[node, device].pop(str(more).partition("/")[0], None)
                self.republish(node)
            case "claim":
                self.hold(claim(f"{node}-{device}", place(device, node), owner=str(more)))
            case "free":
                self.claims.pop(f"default/{node}-{device}", None)
            case _:
                self.change_node(what, node, device)

    def change_node(self, what: str, node: str, device: str) -> None:
        """Have something happen to a Node, or to what is seen of it."""
        name = f"{node}-gpu-s"
        match what:
            case "vanish":
                self.slices.pop(name, None)
            case "return":
                self.publish(self.slice_of(node))
            case "unplug" if name in self.slices:
                rest = {each: self.taints[node, each].values() for each in DEVICES if each != device}
                self.publish(part(node, rest))
            case "partly":
                self.publish(part(node, {DEVICES[0]: self.taints[node, DEVICES[0]].values()}, count=2))
            case "delete":
                self.nodes.pop(node, None)
                self.slices.pop(name, None)
            case "join":
                self.add_node(node, RACKS[node])

    def publish(self, *parts: Slice) -> None:
        """Store slices; a Node that was deleted comes back with them, in its rack."""
        for each in parts:
            node = each.spec.node_name or ""
            self.add_node(node, RACKS[node])
        super().publish(*parts)

    def republish(self, node: str) -> None:
        """Have the driver say what is so, if its slices are there."""
        if f"{node}-gpu-s" in self.slices:
            self.publish(self.slice_of(node))

    def slice_of(self, node: str) -> Slice:
        return part(node, {device: self.taints[node, device].values() for device in DEVICES})

    def used(self) -> Counter[tuple[str, str]]:
        """Return how many rules there are in each scope."""
        found: Counter[tuple[str, str]] = Counter()
        for ruled in self.ours():
            found.update([("node", ruled.node), ("rack", RACKS[ruled.node]), ("cluster", "")])
        return found

    def ours(self) -> Iterator[Ruled]:
        """Yield the rules, each of which must be readable."""
        for rule in self.rules.values():
            ruled = read_rule(rule, DRIVERS)
            assert ruled is not None
            yield ruled


def lifted(decision: Decision) -> list[Place]:
    return [verdict.place for verdict, change in decision.changes if change.verb == "delete"]


def created(decision: Decision) -> list[Place]:
    return [verdict.place for verdict, change in decision.changes if change.verb == "create"]


@given(policies, steps)
def test_deciding_again_changes_nothing(told: Policy, happening: list[Step]) -> None:
    """After a decision was carried out there is nothing to write, whoever decides: so rules change rarely."""
    life = Life(told)
    for step in happening:
        life.do(*step)
        life.settle()
        life.settle()  # what the first one lifted frees budget
        assert life.decide().changes == ()
        life.restart()
        assert life.decide().changes == ()


@settings(max_examples=400)
@given(policies, steps)
def test_a_lifted_rule_never_belongs_to_a_device_with_a_problem(told: Policy, happening: list[Step]) -> None:
    """While a Node is there, a rule goes only from a device on which nothing of the policy stands."""
    life = Life(told)
    for step in happening:
        life.do(*step)
        world = life.world()
        standing = {where for where in world.rules if world.standing(where)}
        there = {where for where, ruled in world.rules.items() if ruled.node in life.nodes}
        assert not standing & there & set(lifted(life.settle()))


@settings(max_examples=400)
@given(policies, steps)
def test_not_to_be_seen_is_not_to_be_well(told: Policy, happening: list[Step]) -> None:
    """What is lifted was published by a complete pool, or missing for ``goneAfter`` and free, or its Node is gone."""
    life, unseen = Life(told), dict[Place, float]()
    for step in happening:
        life.do(*step)
        world = life.world()
        unseen = {where: unseen.get(where, life.now) for where in world.rules if world.publishes(where) is not True}
        for where in lifted(life.settle()):
            gone = where not in life.world().holders and life.now - unseen.get(where, life.now) >= told.gone_after
            node = where.pool.removesuffix("-gpu")
            assert where not in unseen or gone or node not in life.nodes


@settings(max_examples=400)
@given(policies, steps)
def test_only_time_in_which_a_device_is_seen_to_be_well_heals(told: Policy, happening: list[Step]) -> None:
    """On a Node that is there, what is lifted was seen well for all of ``recoverAfter``, or was missing and free."""
    life, well = Life(told), dict[Place, float]()
    for step in happening:
        life.do(*step)
        world = life.world()
        kinds = {where: {problem.kind for problem in world.standing(where)} for where in world.rules}
        good = {
            where
            for where, ruled in world.rules.items()
            if world.publishes(where) is True and ruled.kind not in kinds[where]
        }
        well = {where: well.get(where, life.now) for where in good}
        for where in lifted(life.settle()):
            ruled = world.rules[where]
            rank = told.rank(where.driver, ruled.kind, ruled.code)
            assert rank is not None
            healed = where in well and life.now - well[where] >= float(told.evict[rank].recover_after)
            missing = world.publishes(where) is False and where not in world.holders
            assert healed or missing or ruled.node not in life.nodes


@settings(max_examples=400)
@given(policies, steps)
def test_only_what_is_seen_changes_whether_a_rule_evicts(told: Policy, happening: list[Step]) -> None:
    """It stops where the device is published without the rule's problem, and goes on only where a problem stands."""
    life = Life(told)
    for step in happening:
        life.do(*step)
        world, before = life.world(), dict(life.world().rules)
        life.settle()
        for where, ruled in life.world().rules.items():
            evicts = ruled.rule.spec.taint.effect == "NoExecute"
            kinds = {problem.kind for problem in world.standing(where)}
            assert evicts or ruled.kind not in kinds
            assert not evicts or ruled.kind in kinds or world.publishes(where) is not True
            if where in before and evicts != (before[where].rule.spec.taint.effect == "NoExecute"):
                assert kinds if evicts else world.publishes(where) is True


@given(policies, steps)
def test_the_budget_is_never_exceeded(told: Policy, happening: list[Step]) -> None:
    """A new rule is made only where, with it, each budget of its Node is kept."""
    life = Life(told)
    for step in happening:
        life.do(*step)
        published = life.world().published
        decision = life.settle()
        used = life.used()
        for where in created(decision):
            node = where.pool.removesuffix("-gpu")
            for scope, name, amount in (
                ("node", node, told.budget.per_node),
                ("rack", RACKS[node], told.budget.per_rack),
                ("cluster", "", told.budget.per_cluster),
            ):
                inside = [each for each in NODES if scope == "cluster" or each == name or RACKS[each] == name]
                total = sum(published.get(each, 0) for each in inside)
                is_limited = amount is not None and (scope != "rack" or name)
                assert not is_limited or used[scope, name] <= limit_of(amount or 0, total)


@given(policies, steps)
def test_a_rule_is_made_for_a_held_device_with_a_problem(told: Policy, happening: list[Step]) -> None:
    """It is for a published problem, the only one of its device, and spares claims that outlive their Pods."""
    life = Life(told)
    for step in happening:
        life.do(*step)
        world, before = life.world(), set(life.world().rules)
        decision = life.settle()
        for where in created(decision):
            assert where not in before
            assert world.standing(where)
            claims = [each for each in life.claims.values() if where in held_places(each)]
            assert claims
            assert not (told.hold_named and any(map(outlives_its_pods, claims)))


@given(policies, steps)
def test_time_alone_brings_what_was_announced(told: Policy, happening: list[Step]) -> None:
    """Between a decision and the time that it names nothing is to be written; so nobody need look before."""
    life = Life(told)
    for step in happening:
        life.do(*step)
    life.settle()
    decision = life.settle()
    assert decision.next is None or decision.next > life.now
    life.now = life.now + 100_000 if decision.next is None else decision.next - 0.01
    assert life.decide().changes == ()


@settings(max_examples=50)
@given(steps)
def test_a_fresh_index_and_a_used_one_see_the_same(happening: list[Step]) -> None:
    """What is kept between rounds equals what would be read anew."""
    life = Life(policy(budget=Budget(per_node="50%", per_cluster=None)))
    for step in happening:
        life.do(*step)
        life.settle()
        kept, kept_size = life.decide(), +Counter(life.world().published)
        life.restart()
        assert (life.decide(), +Counter(life.world().published)) == (kept, kept_size)


@given(st.sampled_from(["1%", "10%", "33%", "99%", "100%"]), st.integers(0, 10_000))
def test_a_share_is_rounded_down_but_at_least_one(amount: str, published: int) -> None:
    """Nothing published, as in an outage, still allows one device."""
    share = limit_of(amount, published)
    assert share == max(1, int(amount[:-1]) * published // 100)
    assert share >= 1
