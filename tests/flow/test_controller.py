"""Controllers between a fake API server and what happens to devices, in virtual time."""

import asyncio
import json
import random
from contextlib import AsyncExitStack

import pytest

from dra_plugin.resources import DEVICE_TAINT_RULE, DEVICE_TAINT_RULES, LEASE, DeviceTaintRule, Kind
from dra_plugin.testing.cluster.catalog import Catalog
from drasim.config.controller import Budget
from drasim.controller.narrator import EVICTION, EVICTION_HELD, EVICTION_OVER, NAMED_CLAIM, WOULD_EVICT
from drasim.controller.rules import MISSING_SINCE, RECOVERING_SINCE, rule_name
from drasim.faults import DEVICE_FAULT
from tests.driver.controlling import GPU, place
from tests.flow.towns import OWNER, Line, Town, fault

pytestmark = pytest.mark.looptime


async def test_from_the_fault_to_the_rule_and_back(town: Town) -> None:
    """The rule is there at once, owned by the chart's ClusterRole; after the repair it goes in its time."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(0.01)
        rule = (await town.rules())["gpu-0"]
        assert (rule.spec.taint.key, rule.spec.taint.effect) == (f"{GPU}/lost", "NoExecute")
        assert [(owner.kind, owner.name) for owner in rule.metadata.owner_references or ()] == [("ClusterRole", OWNER)]
        await town.publish()
        await asyncio.sleep(1)
        assert RECOVERING_SINCE in ((await town.rules())["gpu-0"].metadata.annotations or {})
        await asyncio.sleep(28)
        assert await town.rules()
        await asyncio.sleep(3)
        assert (await town.rules(), town.writes()) == ({}, ["create", "replace", "delete"])


async def test_a_burst_is_few_rounds_and_nothing_is_written_twice(town: Town) -> None:
    """Rules change rarely: each is written once, however often the slices change."""
    async with town.controller():
        town.cluster.faults.requests.clear()
        for _ in range(20):
            await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        assert town.writes() == ["create", "create"]


async def test_one_leads_and_hands_over_when_it_ends(town: Town) -> None:
    """The other looks on, ready; when the first ends it leads at once, and no rule is dropped, doubled or touched."""
    async with AsyncExitStack() as stack:
        first = town.controller("one")
        await first.__aenter__()
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        second = await stack.enter_async_context(town.controller("two"))
        assert (second.election.leading.value, second.ready()[0]) == (False, 200)
        before = await town.rules()
        town.cluster.faults.requests.clear()
        await first.__aexit__(None, None, None)
        await asyncio.sleep(5)
        assert (second.election.leading.value, await town.rules(), town.writes()) == (True, before, [])
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(1)
        assert sorted(await town.rules()) == ["gpu-0", "gpu-1"]
    lease = await town.cluster.get(LEASE, "drasim-controller", "drasim")
    assert lease is not None
    assert not lease.spec.holder_identity


async def test_only_the_leader_writes(town: Town) -> None:
    """During an update the other instance may have another policy: it has to wait until it leads."""
    async with AsyncExitStack() as stack:
        first = town.controller("one", budget=Budget(per_cluster=0))
        await first.__aenter__()
        await stack.enter_async_context(town.controller("two"))
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(20)
        assert (await town.rules(), town.writes()) == ({}, [])
        await first.__aexit__(None, None, None)
        await asyncio.sleep(5)
        assert list(await town.rules()) == ["gpu-0"]


async def test_killing_the_leader_hands_over_and_goes_on_counting(town: Town) -> None:
    """A leader that vanishes without a word: another one takes over, keeps the rules and the clocks that run."""
    await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
    line = Line(town.cluster)
    async with town.controller("one", line):
        before = await town.rules()
        await town.publish(gpu_1=[fault("lost")])
        await asyncio.sleep(2)
        line.is_cut = True
        async with town.controller("two") as second:
            town.cluster.faults.requests.clear()
            await asyncio.sleep(20)
            assert second.election.leading.value
            after = await town.rules()
            assert [rule.metadata.uid for rule in after.values()] == [rule.metadata.uid for rule in before.values()]
            assert (after["gpu-1"], town.writes()) == (before["gpu-1"], [])
            await asyncio.sleep(9)
            assert (list(await town.rules()), town.writes()) == (["gpu-1"], ["delete"])


async def test_an_api_server_that_is_away_lifts_nothing(town: Town) -> None:
    """For a minute nothing is known; afterwards what is so counts, not what was seen before."""
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        before = await town.rules()
        town.cluster.faults.requests.clear()
        with town.cluster.away():
            await asyncio.sleep(60)
            assert controller.ready()[0] == 503
        await asyncio.sleep(20)
        assert (await town.rules(), town.writes()) == (before, [])
        assert controller.ready()[0] == 200
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(1)
        assert sorted(await town.rules()) == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize("seed", range(8))
async def test_after_an_outage_the_rule_follows_in_seconds(town: Town, seed: int) -> None:
    """However long it was; also when the server refuses everybody for a moment, as it does at its start."""
    random.seed(seed)
    async with town.controller():
        with town.cluster.away():
            await asyncio.sleep(600)
            await town.publish(gpu_0=[fault("lost")])
        town.cluster.faults.fail(code=403, times=5)
        await asyncio.sleep(6)
        assert list(await town.rules()) == ["gpu-0"]


async def test_a_start_while_the_server_is_away(town: Town) -> None:
    """The work begins seconds after it is back."""
    async with AsyncExitStack() as stack:
        with town.cluster.away():
            controller = await stack.enter_async_context(town.controller())
            await asyncio.sleep(600)
        await asyncio.sleep(10)
        assert (controller.ready()[0], controller.election.leading.value) == (200, True)


@pytest.mark.parametrize("plural", ["nodes", "resourceslices", "resourceclaims"])
async def test_what_cannot_be_read_is_not_taken_for_gone(town: Town, plural: str) -> None:
    """A new leader that sees the rules but not yet the Nodes, slices or claims writes nothing, and is not ready."""
    async with town.controller("one"):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
    before = await town.rules()
    town.cluster.faults.requests.clear()
    town.cluster.faults.fail("list", code=403, times=1000, plural=plural)
    async with town.controller("two") as controller:
        await asyncio.sleep(30)
        assert (controller.election.leading.value, controller.ready()[0]) == (True, 503)
        assert (await town.rules(), town.writes()) == (before, [])
        town.cluster.faults.clear()
        await asyncio.sleep(30)
        assert (controller.ready()[0], await town.rules(), town.writes()) == (200, before, [])


async def test_a_relapse_that_the_watch_did_not_tell_of(town: Town) -> None:
    """The recovery's time has run out as far as is known: the server is asked before the rule is lifted."""
    line = Line(town.cluster)
    async with town.controller("one", line):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        await town.publish()
        await asyncio.sleep(5)
        line.is_deaf.set(True)
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(60)
        assert (list(await town.rules()), "delete" in town.writes()) == (["gpu-0"], False)
        line.is_deaf.set(False)
        await town.publish()
        await asyncio.sleep(40)
        assert await town.rules() == {}


async def test_a_repair_that_the_watch_did_not_tell_of(town: Town) -> None:
    """A problem that has stood for long enough as far as is known: the server is asked before anybody is evicted."""
    line = Line(town.cluster)
    async with town.controller("one", line):
        await town.publish(gpu_0=[fault("xid/79")])
        await asyncio.sleep(5)
        line.is_deaf.set(True)
        await town.publish()
        await asyncio.sleep(60)
        assert (await town.rules(), town.writes()) == ({}, [])


async def test_a_driver_that_is_away_changes_no_taint(town: Town) -> None:
    """40 s without slices: the rule stands, its time stays what it was, so no running toleration begins anew."""
    async with town.controller():
        sick = fault("lost")
        await town.publish(gpu_0=[sick])
        await asyncio.sleep(1)
        before = (await town.rules())["gpu-0"]
        await town.wipe()
        await asyncio.sleep(40)
        gone = (await town.rules())["gpu-0"]
        assert MISSING_SINCE in (gone.metadata.annotations or {})
        await town.publish(gpu_0=[sick])
        await asyncio.sleep(2)
        after = (await town.rules())["gpu-0"]
        assert (after.metadata.uid, after.spec) == (before.metadata.uid, before.spec)
        assert after.metadata.annotations == before.metadata.annotations


async def test_the_budget_holds_back_says_so_and_goes_on(town: Town) -> None:
    """What waits is in the status and in an Event on its claim; a rule that goes makes room."""
    async with town.controller(budget=Budget(per_cluster="10%")) as controller:
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(5)
        assert list(await town.rules()) == ["gpu-0"]
        status = await town.status()
        (use,) = status.budgets
        assert (use.scope, use.limit, use.used, use.held) == ("cluster", 1, 1, 1)
        assert {each.device: each.state for each in status.devices} == {"gpu-0": "evicting", "gpu-1": "budget"}
        assert [event.regarding.name for event in await town.events(EVICTION_HELD)] == ["c1"]
        assert b'drasim_controller_budget_held_back{name="",scope="cluster"} 1.0' in controller.exposition()
        await town.publish(gpu_1=[fault("lost")])
        await asyncio.sleep(40)
        assert list(await town.rules()) == ["gpu-1"]


async def test_rules_of_people_are_left_alone(town: Town) -> None:
    """Also one that has the very name that the controller would take: it is said, and the others go on."""
    name = rule_name(place("gpu-0"))
    spec = {"deviceSelector": {"driver": GPU}, "taint": {"key": "example.com/mine", "effect": "None"}}
    stored = await town.put("resource.k8s.io/v1", "DeviceTaintRule", {"name": name}, spec=spec)
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(5)
        assert list(await town.rules()) == ["gpu-1"]
        assert f"rule {name} exists" in json.loads(controller.ready()[1])["work"][0]
        town.cluster.faults.requests.clear()
        await asyncio.sleep(50)
        assert len(town.writes()) <= 1
    left = await town.cluster.get(DEVICE_TAINT_RULE, name)
    assert left is not None
    assert left.metadata.resource_version == stored["metadata"]["resourceVersion"]


async def test_two_that_write_at_once(town: Town) -> None:
    """A rule that somebody changed is read again; the change is made on what it is then."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        rule = (await town.rules())["gpu-0"]
        town.cluster.faults.fail("replace", code=409, plural=DEVICE_TAINT_RULE.plural)
        labels = {**(rule.metadata.labels or {}), "team": "a"}
        await town.cluster.apply(
            DEVICE_TAINT_RULE, {"metadata": {"name": rule.metadata.name, "labels": labels}}, manager="people"
        )
        await town.publish()
        await asyncio.sleep(40)
        assert await town.rules() == {}


async def test_a_named_claim_is_held_and_told_of(town: Town) -> None:
    """By default no rule: an Event on the claim and on its Pod says why, and the status says which."""
    await town.hold("mine", "gpu-0", pods=("p",), named=True)
    await town.free("c0")
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        assert await town.rules() == {}
        told = await town.events(NAMED_CLAIM)
        assert sorted((event.regarding.kind, event.regarding.name) for event in told) == [
            ("Pod", "p"),
            ("ResourceClaim", "mine"),
        ]
        (device,) = (await town.status()).devices
        assert (device.state, device.claims, device.pods) == ("named-claim", ("default/mine",), ("default/p",))


async def test_a_named_claim_is_evicted_if_wanted(town: Town) -> None:
    """The rule is made, and the Event says that a new Pod gets the same device."""
    await town.hold("mine", "gpu-0", pods=("p",), named=True)
    async with town.controller(on_named_claim="evict"):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        assert list(await town.rules()) == ["gpu-0"]
        assert {event.regarding.name for event in await town.events(NAMED_CLAIM)} == {"mine", "p"}


async def test_evictions_are_events_on_claim_and_node(town: Town) -> None:
    """Who looks at the claim or at the Node learns of the rule, and that it is over."""
    async with town.controller():
        await town.publish(gpu_0=[fault("xid/79")])
        await asyncio.sleep(13)
        assert [event.regarding.name for event in await town.events(EVICTION)] == ["c0", "node-a"]
        await town.publish()
        await asyncio.sleep(70)
        over = await town.events(EVICTION_OVER)
        assert [(event.regarding.name, event.type) for event in over] == [("c0", "Normal"), ("node-a", "Normal")]
        assert "the device is well again" in over[0].note


async def test_a_relapse_is_told_of(town: Town) -> None:
    """The rule stood all the time, but it evicts again: who is evicted now learns of it, in words of its own."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        await town.publish()
        await asyncio.sleep(3)
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        told = {(event.regarding.name, event.note.endswith(" anew")) for event in await town.events(EVICTION)}
        assert told == {(name, anew) for name in ("c0", "node-a") for anew in (False, True)}


async def test_a_status_that_may_not_be_written_keeps_no_event_back(town: Town) -> None:
    """It is said, and tried again; what users learn by Events does not wait for it."""
    town.cluster.faults.fail("apply", code=403, times=1000, plural="configmaps")
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(5)
        session = controller.session.value
        assert session is not None
        assert (session.narrator.problem.value or "").startswith("the status cannot be written")
        assert [event.regarding.name for event in await town.events(EVICTION)] == ["c0", "node-a"]
        town.cluster.faults.clear()
        await asyncio.sleep(40)
        assert [device.state for device in (await town.status()).devices] == ["evicting"]
        assert session.narrator.problem.value is None


async def test_a_dry_run_lists_the_pods_that_would_go(town: Town) -> None:
    """Kept current, without those that tolerate the taint for ever; no rule is made."""
    forever = {"key": f"{GPU}/lost", "operator": "Exists", "effect": "NoExecute"}
    await town.hold("patient", "gpu-0", pods=("stays",), tolerations=[forever])
    await town.hold("slow", "gpu-0", pods=("leaves-later",), tolerations=[{**forever, "tolerationSeconds": 20}])
    async with town.controller(dry_run=True):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        status = await town.status()
        assert (status.dry_run, status.devices[0].state) == (True, "would-evict")
        assert status.devices[0].pods == ("default/leaves-later", "default/p0")
        assert sorted(event.regarding.name for event in await town.events(WOULD_EVICT)) == ["leaves-later", "p0"]
        await town.free("c0")
        await asyncio.sleep(3)
        assert (await town.status()).devices[0].pods == ("default/leaves-later",)
        assert await town.rules() == {}


async def test_a_pod_group_stands_for_its_pods_on_the_node(town: Town) -> None:
    """The Pods of a group are looked up, those on other Nodes have other devices."""
    for name, node in (("w0", "node-a"), ("w1", "node-b")):
        spec = {"nodeName": node, "schedulingGroup": {"podGroupName": "train"}}
        await town.put("v1", "Pod", {"name": name, "namespace": "default"}, spec=spec)
    await town.put("v1", "Pod", {"name": "alone", "namespace": "default"}, spec={"nodeName": "node-a"})
    result = {"request": "r", "driver": GPU, "pool": "node-a-gpu", "device": "gpu-0"}
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "g"}
    await town.put(
        "resource.k8s.io/v1",
        "ResourceClaim",
        {"name": "c0", "namespace": "default"},
        spec={},
        status={"allocation": {"devices": {"results": [result]}}, "reservedFor": [group]},
    )
    async with town.controller(on_named_claim="evict"):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        assert (await town.status()).devices[0].pods == ("default/w0",)


@pytest.mark.parametrize("kind", DEVICE_TAINT_RULES, ids=lambda kind: kind.version)
async def test_rules_are_kept_in_the_version_that_is_served(kind: Kind[DeviceTaintRule]) -> None:
    """The newest that there is; the status says which."""
    town = Town()
    for row in Catalog(apis=[each.api_version for each in DEVICE_TAINT_RULES[1:]]).rows:
        if row.plural == DEVICE_TAINT_RULE.plural and row.version != "v1":
            town.cluster.catalog.serve(row)
    for newer in DEVICE_TAINT_RULES[: DEVICE_TAINT_RULES.index(kind)]:
        town.cluster.catalog.withdraw(DEVICE_TAINT_RULE.plural, newer.api_version)
    await town.build()
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(2)
        (rule,) = (await town.cluster.list(kind)).items
        assert rule.api_version == kind.api_version
        assert (await town.status()).rules_api == kind.api_version


async def test_without_rules_it_says_so_and_begins_when_they_come(town: Town) -> None:
    """Isolation goes on without it; an upgrade of the server is noticed."""
    rows = town.cluster.catalog.rows
    town.cluster.catalog.withdraw(DEVICE_TAINT_RULE.plural)
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        status = await town.status()
        assert (status.rules_api, status.devices[0].state) == ("", "would-evict")
        assert "serves no DeviceTaintRule" in status.problems[0]
        assert b"drasim_controller_rules_served 0.0" in controller.exposition()
        town.cluster.catalog.rows = rows
        await asyncio.sleep(70)
        assert list(await town.rules()) == ["gpu-0"]


async def test_without_its_owner_no_rule_is_made(town: Town) -> None:
    """A rule that nobody owns would outlive the chart; it is said, and made as soon as the owner is there."""
    role = next(row for row in town.cluster.catalog.rows if row.plural == "clusterroles")
    town.cluster.store.delete(role, "", OWNER, {})
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(5)
        assert await town.rules() == {}
        assert f"ClusterRole {OWNER}" in (await town.status()).problems[0]
        await town.put("rbac.authorization.k8s.io/v1", "ClusterRole", {"name": OWNER})
        await asyncio.sleep(40)
        assert list(await town.rules()) == ["gpu-0"]


async def test_a_node_that_is_deleted_lifts_its_rules(town: Town) -> None:
    """The Node object is gone: nobody waits for its devices."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        nodes = next(row for row in town.cluster.catalog.rows if row.plural == "nodes")
        town.cluster.store.delete(nodes, "", "node-a", {})
        await asyncio.sleep(1)
        assert await town.rules() == {}


async def test_faults_of_unknown_nodes_are_refused(town: Town) -> None:
    """Nobody else would: the status names the field, and the Nodes that there are."""
    spec = {"node": "node-x", "device": "gpu-0", "kind": "lost"}
    await town.put("dra.example.com/v1alpha1", "DeviceFault", {"name": "f"}, spec=spec)
    await town.put("dra.example.com/v1alpha1", "DeviceFault", {"name": "g"}, spec={**spec, "node": "node-a"})
    async with town.controller():
        await asyncio.sleep(2)
        refused, other = (await town.cluster.list(DEVICE_FAULT)).items
        assert refused.status is not None
        assert refused.status.phase == "Refused"
        assert refused.status.reason is not None
        assert 'spec.node: there is no Node "node-x"' in refused.status.reason
        assert "allowed: node-a" in refused.status.reason
        assert other.status is None


async def test_the_server_asks_for_patience(town: Town) -> None:
    """429 with Retry-After: nothing is written before, and everything afterwards."""
    async with town.controller():
        town.cluster.faults.fail("create", code=429, retry_after=3, plural=DEVICE_TAINT_RULE.plural)
        await town.publish(gpu_0=[fault("lost")])
        for _ in range(29):
            await asyncio.sleep(0.1)
            await town.publish(gpu_0=[fault("lost")])
        assert (await town.rules(), town.writes()) == ({}, ["create"])
        await asyncio.sleep(1)
        assert list(await town.rules()) == ["gpu-0"]


async def test_the_time_from_fault_to_rule_is_measured(town: Town) -> None:
    """A histogram, by driver."""
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        text = controller.exposition()
        assert f'drasim_fault_to_rule_seconds_count{{driver="{GPU}"}} 1.0'.encode() in text
        assert b'drasim_controller_devices{state="evicting"} 1.0' in text
        assert b"drasim_controller_leading 1.0" in text
