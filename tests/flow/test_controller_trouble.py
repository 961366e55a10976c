"""Controllers whose rules somebody stands in the way of: people, finalizers, charts that come and go, floods."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from dra_plugin.errors import Retryable
from dra_plugin.resources import CONFIG_MAP, DEVICE_TAINT_RULE, Kind
from drasim.config import GpuConfig
from drasim.config.controller import Budget
from drasim.controller.narrator import NAMED_CLAIM, WOULD_EVICT
from drasim.controller.objects import CLUSTER_ROLE
from drasim.controller.rules import LABELS, rule_name
from tests.driver.controlling import GPU, place
from tests.flow.towns import OWNER, Line, Town, fault

pytestmark = pytest.mark.looptime

RULE = rule_name(place("gpu-0"))


async def test_a_rule_of_people_uses_no_budget(town: Town) -> None:
    """It has the name that the rule of the worst device would have: the next device is not kept waiting for ever."""
    spec = {"deviceSelector": {"driver": GPU}, "taint": {"key": "example.com/mine", "effect": "None"}}
    await town.put("resource.k8s.io/v1", "DeviceTaintRule", {"name": RULE}, spec=spec)
    async with town.controller(budget=Budget(per_cluster=1)):
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("ecc-uncorrectable")])
        await asyncio.sleep(5)
        assert list(await town.rules()) == ["gpu-1"]
        states = {each.device: each.reason for each in (await town.status()).devices}
        assert states["gpu-0"] == f"rule {RULE} exists and is not the controller's: it is left alone"


async def test_a_rule_whose_selector_people_changed_is_theirs(town: Town) -> None:
    """Labelled and named as ours, for other devices: neither changed nor lifted, and it is said."""
    selector = {"driver": GPU, "pool": "node-a-gpu"}
    spec = {"deviceSelector": selector, "taint": {"key": f"{GPU}/lost", "effect": "NoExecute"}}
    meta = {"name": RULE, "labels": dict(LABELS)}
    stored = await town.put("resource.k8s.io/v1", "DeviceTaintRule", meta, spec=spec)
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(5)
        assert f"rule {RULE} exists" in json.loads(controller.ready()[1])["work"][0]
        await town.publish()
        await asyncio.sleep(70)
    left = await town.cluster.get(DEVICE_TAINT_RULE, RULE)
    assert left is not None
    assert left.metadata.resource_version == stored["metadata"]["resourceVersion"]


async def test_a_rule_that_people_delete_is_made_anew(town: Town) -> None:
    """At once, and also when the controller was about to change it and does not know yet."""
    line = Line(town.cluster)
    async with town.controller("one", line):
        await town.publish(gpu_0=[fault("ecc-uncorrectable")])
        await asyncio.sleep(1)
        await town.cluster.delete(DEVICE_TAINT_RULE, (await town.rules())["gpu-0"])
        await asyncio.sleep(1)
        made = (await town.rules())["gpu-0"]
        town.cluster.faults.fail("replace", code=404, plural=DEVICE_TAINT_RULE.plural)
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(0.05)
        await town.cluster.delete(DEVICE_TAINT_RULE, made)
        await asyncio.sleep(3)
        assert (await town.rules())["gpu-0"].spec.taint.key == f"{GPU}/lost"


async def test_a_rule_that_a_finalizer_holds_back(town: Town) -> None:
    """It stands though it was deleted: that is said, the server is left in peace, and afterwards a rule is made."""
    async with town.controller() as controller:
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        rule = (await town.rules())["gpu-0"]
        meta = replace(rule.metadata, finalizers=("example.com/audit",))
        await town.cluster.replace(DEVICE_TAINT_RULE, replace(rule, metadata=meta))
        await town.publish()
        await asyncio.sleep(40)
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(5)
        town.cluster.faults.requests.clear()
        await asyncio.sleep(30)
        assert town.writes() == []
        assert f"rule {RULE} is being deleted" in json.loads(controller.ready()[1])["work"][0]
        held = (await town.rules())["gpu-0"]
        await town.cluster.replace(DEVICE_TAINT_RULE, replace(held, metadata=replace(held.metadata, finalizers=None)))
        await asyncio.sleep(70)
        assert (await town.rules())["gpu-0"].metadata.uid != rule.metadata.uid


async def test_a_chart_that_is_installed_anew_owns_the_next_rule(town: Town) -> None:
    """The owner has another UID then; a rule of the one before would be collected as soon as it was made."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        before = await town.cluster.get(CLUSTER_ROLE, OWNER)
        assert before is not None
        await town.cluster.delete(CLUSTER_ROLE, before)
        await town.put("rbac.authorization.k8s.io/v1", "ClusterRole", {"name": OWNER})
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(2)
        after = await town.cluster.get(CLUSTER_ROLE, OWNER)
        (owner,) = (await town.rules())["gpu-1"].metadata.owner_references or ()
        assert after is not None
        assert before.metadata.uid != after.metadata.uid == owner.uid


async def test_a_device_that_came_back_unheard_keeps_its_rule(town: Town) -> None:
    """Missing for long and held by nobody, as far as is known: it is looked for before its rule goes."""
    line = Line(town.cluster)
    async with town.controller("one", line):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(1)
        await town.wipe()
        await asyncio.sleep(5)
        line.is_deaf.set(True)
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(900)
        line.is_deaf.set(False)
        await town.free("c0")
        await asyncio.sleep(60)
        assert (list(await town.rules()), "delete" in town.writes()) == (["gpu-0"], False)


async def test_a_term_that_began_anew_reads_the_rules_anew(town: Town) -> None:
    """Between two terms another one may have led: what it wrote counts, though no watch has told of it."""
    line = Line(town.cluster)
    async with town.controller("one", line, budget=Budget(per_cluster=1)) as controller:
        line.is_deaf.set(True)
        line.is_cut = True
        await controller.election.leading.wait(lambda leads: not leads)
        async with town.controller("two"):
            await asyncio.sleep(15)
            await town.publish(gpu_0=[fault("lost")])
            await asyncio.sleep(1)
            assert list(await town.rules()) == ["gpu-0"]
        line.is_cut = False
        await controller.election.leading.wait(bool)
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        line.is_deaf.set(False)
        await asyncio.sleep(60)
        assert list(await town.rules()) == ["gpu-0"]


async def test_a_dry_run_tells_of_pods_that_look_into_the_device(town: Town) -> None:
    """Kubernetes evicts for admin access too, unless the Pod tolerates it."""
    await town.hold("watch", "gpu-0", pods=("monitor",), adminAccess=True)
    forever = {"key": f"{GPU}/lost", "operator": "Exists", "effect": "NoExecute"}
    await town.hold("calm", "gpu-0", pods=("calm",), adminAccess=True, tolerations=[forever])
    async with town.controller(dry_run=True):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        assert (await town.status()).devices[0].pods == ("default/monitor", "default/p0")
        assert sorted(event.regarding.name for event in await town.events(WOULD_EVICT)) == ["monitor", "p0"]


async def test_no_node_is_told_of_at_the_expense_of_another(town: Town) -> None:
    """Each has Events of its own: a rack that fails at once tells everybody who is concerned."""
    for node in ("node-b", "node-c"):
        await town.put("v1", "Node", {"name": node})
        await town.hold(f"of-{node}", "gpu-0", node, pods=[f"{node}-{index}" for index in range(15)])
    async with town.controller(dry_run=True):
        for node in ("node-b", "node-c"):
            await town.publish(node, gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        assert len(await town.events(WOULD_EVICT)) == 30


async def test_a_new_pod_of_a_named_claim_is_told(town: Town) -> None:
    """Evicted, made anew, and on the same device again: the Pod that is made anew learns why."""
    await town.free("c0")
    await town.hold("mine", "gpu-0", pods=("first",), named=True)
    async with town.controller(on_named_claim="evict"):
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(3)
        await town.hold("mine", "gpu-0", pods=("second",), named=True)
        await asyncio.sleep(3)
        assert {event.regarding.name for event in await town.events(NAMED_CLAIM)} == {"mine", "first", "second"}


async def test_pods_that_cannot_be_listed_hide_no_others(town: Town) -> None:
    """Those that claims name are known without; that the Pods of a PodGroup are not is said."""
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "g"}
    result = {"request": "r", "driver": GPU, "pool": "node-a-gpu", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [group]}
    meta = {"name": "team", "namespace": "default", "ownerReferences": []}
    await town.put("resource.k8s.io/v1", "ResourceClaim", meta, spec={}, status=status)
    town.cluster.faults.fail("list", code=403, times=1000, plural="pods")
    async with town.controller(dry_run=True, on_named_claim="evict") as controller:
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(3)
        assert [device.pods for device in (await town.status()).devices] == [("default/p0",), ("default/p1",)]
        session = controller.session.value
        assert session is not None
        assert (session.narrator.problem.value or "").startswith("Pods cannot be read: ")


async def test_a_status_that_somebody_deleted_comes_back(town: Town) -> None:
    """Though nothing changes: it is written anew every few minutes, and not more often."""
    async with town.controller():
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(5)
        stored = await town.cluster.get(CONFIG_MAP, "drasim-controller-status", "drasim")
        assert stored is not None
        await town.cluster.delete(CONFIG_MAP, stored)
        town.cluster.faults.requests.clear()
        await asyncio.sleep(620)
        assert [device.state for device in (await town.status()).devices] == ["evicting"]
        assert [each.plural for each in town.cluster.faults.requests if each.verb == "apply"] == ["configmaps"] * 2


async def test_a_write_that_hangs_keeps_nobody_for_ever(town: Town) -> None:
    """It is given up after a while, and what it did all the same is recognised: the rules are made, each once."""
    line = Line(town.cluster)
    hanging = asyncio.Event()

    async def create(kind: Kind[Any], rule: Any) -> Any:  # noqa: ANN401 - of any kind
        made = await town.cluster.create(kind, rule)
        if kind.plural == DEVICE_TAINT_RULE.plural and not hanging.is_set():
            hanging.set()
            await asyncio.Event().wait()
        return made

    line.create = create  # type: ignore[attr-defined]  # the verb of this line
    async with town.controller("one", line) as controller:
        await town.publish(gpu_0=[fault("lost")], gpu_1=[fault("lost")])
        await asyncio.sleep(9)
        assert (hanging.is_set(), list(await town.rules())) == (True, ["gpu-0"])
        await asyncio.sleep(5)
        assert sorted(await town.rules()) == ["gpu-0", "gpu-1"]
        assert controller.election.term == 1


async def test_a_write_ends_with_the_term(town: Town) -> None:
    """One that hangs when leadership is lost is given up: it is not carried out while another one leads."""
    line = Line(town.cluster)
    cut = asyncio.Event()

    async def create(kind: Kind[Any], rule: Any) -> Any:  # noqa: ANN401 - of any kind
        await asyncio.sleep(9.5 if kind.plural == DEVICE_TAINT_RULE.plural else 0)
        return await town.cluster.create(kind, rule)

    async def replace_or_fail(kind: Kind[Any], obj: Any) -> Any:  # noqa: ANN401 - of any kind
        if cut.is_set():
            raise Retryable("the line is cut")
        return await town.cluster.replace(kind, obj)

    line.create, line.replace = create, replace_or_fail  # type: ignore[attr-defined]  # verbs of this line
    async with town.controller("one", line) as controller:
        cut.set()
        await asyncio.sleep(7.5)
        assert controller.election.holds
        await town.publish(gpu_0=[fault("lost")])
        await asyncio.sleep(15)
        assert (controller.election.holds, await town.rules()) == (False, {})


async def test_the_rules_of_a_driver_that_was_switched_off_go(town: Town) -> None:
    """Its devices are missing, as any others: when no claim holds them any more their rules are lifted in time."""
    await town.publish(gpu_0=[fault("lost")])
    async with town.controller():
        assert list(await town.rules()) == ["gpu-0"]
    await town.wipe()
    await town.free("c0")
    async with town.controller("two", gpu=GpuConfig(hardware="off"), gone_after=60.0):
        await asyncio.sleep(50)
        assert await town.rules()
        await asyncio.sleep(30)
        assert not await town.rules()
