"""The parts of the controller that are values: rules and their names, pools, tolerations, the status, figures."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_plugin.claims import ConsumerReference
from dra_plugin.resources import ObjectMeta, decode, encode
from drasim.config.controller import Budget
from drasim.controller.budget import Ledger
from drasim.controller.figures import gauges
from drasim.controller.loop import Outcome
from drasim.controller.narrator import LISTED, Frame, status_of
from drasim.controller.objects import Claim, Place, Slice, Toleration
from drasim.controller.pods import PodRef, grace
from drasim.controller.policy import Standing
from drasim.controller.refusals import refusals
from drasim.controller.rules import LABELS, new_rule, read_rule, rule_name
from drasim.controller.status import ControllerStatus, DeviceStatus, decode_status, encode_status, status_name
from drasim.controller.times import moment, stamp
from drasim.controller.world import Index, pool_of
from drasim.faults import DeviceFault, DeviceFaultSpec
from tests.driver.controlling import DRIVERS, GPU, T0, Cluster, claim, part, place, policy, taint

FRAME = Frame(name="c", namespace="n", identity="me", rules_api="resource.k8s.io/v1", dry_run=False)
KEY = f"{GPU}/lost"
label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
subdomains = st.lists(label, min_size=1, max_size=4).map(".".join)
pool_names = st.lists(subdomains, min_size=1, max_size=4).map("/".join)


@given(pool_names, label)
def test_names_of_rules_fit_the_api(pool: str, device: str) -> None:
    """Whatever pool and device are called, the name is a DNS subdomain; the same device has the same name."""
    where = Place(GPU, pool, device)
    assert len(rule_name(where)) <= 253
    assert SUBDOMAIN.fullmatch(rule_name(where))
    assert rule_name(where) == rule_name(Place(GPU, pool, device))


def test_names_of_rules_tell_devices_apart() -> None:
    """What reads the same after long names were cut and odd characters replaced has another mark."""
    places = [Place(GPU, "a/b", "c"), Place(GPU, "a.b", "c"), Place(GPU, "a", "b-c"), Place("other", "a/b", "c")]
    long = [Place(GPU, "x" * 250, device) for device in ("gpu-0", "gpu-1")]
    assert len({rule_name(where) for where in (*places, *long)}) == 6


def test_a_rule_reads_as_it_was_made() -> None:
    """Through JSON and back: device, Node and problem are in the rule alone."""
    rule = new_rule(place(), "node-a", Standing(0, T0, "xid", "79"))
    ruled = read_rule(decode(encode(rule), type(rule)), DRIVERS)
    assert ruled is not None
    assert (ruled.place, ruled.node, ruled.kind, ruled.code) == (place(), "node-a", "xid", "79")
    assert (ruled.recovering, ruled.missing) == (None, None)


def test_a_rule_of_another_driver_is_not_ours() -> None:
    """Two installations with drivers of their own share a cluster."""
    rule = new_rule(place(), "node-a", Standing(0, T0, "lost", ""))
    assert read_rule(rule, ["other.example.com"]) is None


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time(text: str | None) -> None:
    """An annotation that somebody has spoilt is as if it were not there."""
    assert moment(text) is None


@given(st.floats(min_value=0, max_value=4e9))
def test_stamps_are_never_early(at: float) -> None:
    """A time that is written and read is the next whole second."""
    assert moment(stamp(at)) == math.ceil(at)


def test_the_newest_generation_is_the_pool() -> None:
    """Slices of an older one do not count; the pool is complete when as many are there as they say."""
    old = part("node-a", {"gpu-0": [taint("lost")]}, generation=1, name="a")
    new = part("node-a", {"gpu-1": []}, generation=2, count=2, name="b")
    pool = pool_of([old, new], policy())
    assert (pool.slices, pool.complete, pool.sick) == ((new,), False, {})
    other = part("node-a", {"gpu-0": []}, generation=2, count=2, name="a")
    whole = pool_of([other, new], policy())
    assert (whole.complete, whole.publishes("gpu-0"), whole.publishes("gpu-2")) == (True, True, False)


def test_slices_are_read_narrowly() -> None:
    """Attributes and capacities are not kept: the controller holds the slices of all Nodes."""
    text = b"""{"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "devices": [
        {"name": "gpu-0", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "80Gi"}}}
    ], "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}"""
    assert b"model" not in encode(decode(text, Slice))


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"key": KEY, "operator": "Exists", "effect": "NoExecute"}], math.inf),
        ([{"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}], 20),
        ([{"key": KEY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0),
        ([{"operator": "Exists", "effect": "NoExecute"}], math.inf),
        ([{"key": KEY, "operator": "Exists"}], 0),
        ([{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"key": KEY, "value": "", "effect": "NoExecute"}], math.inf),
        ([{"key": KEY, "value": "x", "effect": "NoExecute"}], 0),
        ([{"key": "other", "operator": "Exists", "effect": "NoExecute"}], 0),
        (
            [
                {"key": KEY, "operator": "Exists", "effect": "NoExecute"},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7},
            ],
            7,
        ),
    ],
)
def test_how_long_pods_may_stay(tolerations: list[dict[str, object]], seconds: float) -> None:
    """As the eviction controller reads tolerations: their effect must be NoExecute, and the shortest counts."""
    told = tuple(decode(encode(each), Toleration) for each in tolerations)
    assert grace(claim("c", place(), tolerations=told), place(), KEY, "") == seconds


def test_a_claim_is_read_from_json() -> None:
    """The members of the API, in its spelling."""
    text = b"""{"metadata": {"name": "c", "namespace": "n"}, "status": {"reservedFor": [
        {"resource": "pods", "name": "p", "uid": "u"}], "allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": true,
         "tolerations": [{"tolerationSeconds": 3}]}]}}}}"""
    read = decode(text, Claim)
    assert read.name == "n/c"
    assert read.consumers == (ConsumerReference(resource="pods", name="p", uid="u"),)
    assert read.results[0].admin_access
    assert (read.results[0].tolerations or ())[0].toleration_seconds == 3


def ledger(budget: Budget, *, devices: int = 8) -> Ledger:
    """Return the books of two Nodes in a rack and one in none."""
    cluster = Cluster(policy(budget=budget))
    for node, rack in (("a", "r"), ("b", "r"), ("c", "")):
        cluster.add_node(node, rack)
        cluster.publish(part(node, {f"gpu-{index}": [] for index in range(devices)}))
    return Ledger(cluster.world(), budget)


def test_each_scope_has_its_own_budget() -> None:
    """The first that is used up is named; a Node without rack is not limited by racks."""
    books = ledger(Budget(per_node=2, per_rack=3, per_cluster=5))
    granted = [books.grants(node) for node in ("a", "a", "a", "b", "b", "c", "c", "c")]
    assert granted == [None, None, ("node", "a"), None, ("rack", "r"), None, None, ("node", "c")]
    assert books.grants("b") == ("rack", "r")


def test_shares_are_of_what_is_published_there() -> None:
    """A quarter of a Node's devices, of a rack's, of the cluster's."""
    books = ledger(Budget(per_node="25%", per_rack="25%", per_cluster="25%"))
    assert [books.limit(scope) for scope in (("node", "a"), ("rack", "r"), ("cluster", ""))] == [2, 4, 6]


def test_a_budget_of_nothing_grants_nothing() -> None:
    """0 means none."""
    assert ledger(Budget(per_cluster=0)).grants("a") == ("cluster", "")


def test_the_status_survives_json() -> None:
    """Defaults are left out, what another version says beyond it is ignored."""
    status = ControllerStatus(leader="x", rules_api="resource.k8s.io/v1", problems=("p",))
    assert decode_status(encode_status(status)) == status
    assert decode_status('{"leader": "x", "novelty": 1}') == ControllerStatus(leader="x")
    assert status_name("drasim-controller") == "drasim-controller-status"


def test_a_long_status_is_cut_and_says_so() -> None:
    """A ConfigMap has a limit; how many are left out is told."""
    cluster = Cluster()
    for node in range(LISTED // 2 + 1):
        cluster.publish(part(f"n{node}", {"gpu-0": [taint("lost")], "gpu-1": [taint("lost")]}))
        cluster.hold(*(claim(f"c{node}-{index}", place(f"gpu-{index}", f"n{node}")) for index in range(2)))
    status = status_of(Outcome(decision=cluster.decide()), {}, FRAME)
    assert (len(status.devices), status.omitted) == (LISTED, 2)
    assert len(encode_status(status)) < 1 << 20


def test_a_status_that_is_too_long_for_a_config_map_is_cut_and_says_so() -> None:
    """However many Pods share the devices: the first devices stay, and the others are counted."""
    pods = tuple(f"namespace/{'x' * 200}-{index}" for index in range(50))
    devices = tuple(
        DeviceStatus(driver=GPU, pool="p", device=f"gpu-{index}", problem="lost", state="evicting", pods=pods)
        for index in range(LISTED)
    )
    text = encode_status(ControllerStatus(devices=devices, omitted=7))
    read = decode_status(text)
    assert len(text) < 1 << 20
    assert read.devices == devices[: len(read.devices)]
    assert len(read.devices) > 10
    assert len(read.devices) + read.omitted == LISTED + 7


def test_who_looks_into_a_device_uses_it_without_holding_it() -> None:
    """A rule evicts the Pods of admin access as well, so they are told of; the device is not held by them."""
    index = Index(policy(), "rack")
    holder, watcher = claim("a", place()), claim("b", place(), admin=True)
    world = index.world({}, {"a": holder, "b": watcher}, {}, {})
    assert (list(world.holders[place()]), index.users_of(place())) == (["a"], (holder, watcher))
    index.world({}, {"a": holder}, {}, {})
    assert index.users_of(place()) == (holder,)
    index.world({}, {}, {}, {})
    assert index.users_of(place()) == ()


def test_the_status_of_a_device() -> None:
    """Times are RFC 3339; a rule that is not stored yet is not named."""
    cluster = Cluster()
    cluster.publish(part("node-a", {"gpu-0": [taint("lost")]}))
    cluster.hold(claim("c", place(), pods=["p"]))
    decision = cluster.settle()
    pods = {place(): (PodRef("default", "p", "u"),)}
    claims = {place(): tuple(cluster.claims.values())}
    (before,) = status_of(Outcome(decision=decision, claims=claims), pods, FRAME).devices
    (after,) = status_of(Outcome(decision=cluster.decide(), claims=claims), pods, FRAME).devices
    assert (before.rule, after.rule) == ("", rule_name(place()))
    assert (after.since, after.state, after.claims, after.pods) == (
        stamp(T0),
        "evicting",
        ("default/c",),
        ("default/p",),
    )


def test_figures_of_a_decision() -> None:
    """Devices by state, rules by problem, budgets by scope; every state is always there."""
    cluster = Cluster(policy(budget=Budget(per_node=1, per_cluster=None)))
    cluster.publish(part("node-a", {"gpu-0": [taint("lost")], "gpu-1": [taint("lost")]}))
    cluster.hold(*(claim(f"c{index}", place(f"gpu-{index}")) for index in range(2)))
    cluster.settle()
    outcome = Outcome(decision=cluster.decide())
    found = {
        (each.name, *each.labels.values()): each.value
        for each in gauges(outcome, leading=True, served=True, problems=0)
    }
    assert found["controller_devices", "evicting"] == found["controller_devices", "budget"] == 1
    assert found["controller_devices", "recovering"] == 0
    assert found["controller_rules", GPU, "lost"] == 1
    assert found["controller_budget_held_back", "node", "node-a"] == 1


def test_refusals_name_the_nodes_that_there_are() -> None:
    """The nearest one is proposed, and a long list is cut."""
    meta = ObjectMeta(name="f", uid="u", generation=1)
    fault = DeviceFault(metadata=meta, spec=DeviceFaultSpec(node="node-03x", device="gpu-0", kind="lost"))
    known = replace(fault, metadata=replace(meta, uid="v"), spec=replace(fault.spec, node="node-07"))
    found = refusals([fault, known], [f"node-{index:02}" for index in range(12)])
    assert list(found) == ["u"]
    reason = found["u"].reason or ""
    assert 'spec.node: there is no Node "node-03x" (did you mean "node-03"?)' in reason
    assert reason.endswith("node-09 and 2 more")


def test_rules_carry_the_label_that_the_view_selects_by() -> None:
    """What is made is also seen."""
    rule = new_rule(place(), "node-a", Standing(0, T0, "lost", ""))
    assert LABELS.items() <= (rule.metadata.labels or {}).items()
