"""The contract of the Cluster port where faults need it: taint rules, custom resources, dry runs, elections.

Held against FakeCluster in process, FakeCluster over HTTP, and the real 1.37.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from dra_plugin.capabilities import keeps_taints, served
from dra_plugin.cluster import EVERYTHING, Cluster, Selector
from dra_plugin.errors import ClusterError, Conflict, Rejected, Retryable
from dra_plugin.latest import Latest, follow
from dra_plugin.leader import Election, Times
from dra_plugin.mirror import Mirror
from dra_plugin.resources import (
    CONFIG_MAP,
    DEVICE_TAINT_RULE,
    DEVICE_TAINT_RULES,
    LEASE,
    POD,
    RESOURCE_SLICE,
    ConfigMap,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    Kind,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    Value,
)
from tests.contract.rule_life import OLD, at_any_version, put, with_taint
from tests.contract.samples import DEFINITION, SAMPLE, Sample, SampleSpec, definition

NAMESPACE = "default"
KEY = "example.com/contract"


class RuleStatus(Value, frozen=True, kw_only=True):
    conditions: tuple[dict[str, Any], ...] | None = None


class RuleWithStatus(Value, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    status: RuleStatus | None = None


RULE_WITH_STATUS = Kind("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", False, RuleWithStatus)


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return f"f{uuid.uuid4().hex[:10]}"


@pytest.fixture(autouse=True)
async def tidy(cluster: Cluster, unique: str) -> AsyncIterator[None]:
    """Delete what this test made, in whatever cluster it ran."""
    yield
    for kind in (DEVICE_TAINT_RULE, SAMPLE):
        if await cluster.served(kind):
            for found in (await cluster.list(kind, Selector(labels={"contract": unique}))).items:
                await cluster.delete(kind, at_any_version(found))
    for named in (LEASE, CONFIG_MAP):
        left = await cluster.get(named, unique, NAMESPACE)
        if left is not None:
            await cluster.delete(named, left)


@pytest.fixture
async def samples(cluster: Cluster) -> Kind[Sample]:
    """The custom resource, served: a real API server gets its definition, and keeps it for the next run."""
    async with asyncio.timeout(30):
        while not await lists(cluster, SAMPLE):
            await cluster.apply(DEFINITION, definition(), "contract")
            await asyncio.sleep(0.2)
    return SAMPLE


async def lists(cluster: Cluster, kind: Kind[Any]) -> bool:
    """Tell whether a kind can be listed; what a server says it serves may be a minute old, or not ready yet."""
    try:
        await cluster.list(kind)
    except Retryable:
        return False
    except Rejected as error:
        if error.code == 404:
            return False
        raise
    return True


def a_rule(unique: str, *, name: str = "", **taint: Any) -> DeviceTaintRule:  # noqa: ANN401 - any field of a taint
    """Return a rule that hits no device of any cluster."""
    meta = ObjectMeta(name=name or unique, labels={"contract": unique})
    selector = DeviceTaintSelector(driver=f"{unique}.example.com", pool="node-a", device="gpu-0")
    made = DeviceTaint(**{"key": KEY, "effect": "None", **taint})
    return DeviceTaintRule(metadata=meta, spec=DeviceTaintRuleSpec(device_selector=selector, taint=made))


def a_sample(unique: str, *, name: str = "", node: str = "node-a") -> Sample:
    meta = ObjectMeta(name=name or unique, labels={"contract": unique})
    return Sample(metadata=meta, spec=SampleSpec(node=node))


def a_slice(unique: str, **meta: Any) -> ResourceSlice:  # noqa: ANN401 - any field of metadata
    pool = ResourcePool(name=unique, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=f"{unique}.example.com", node_name="node-a", pool=pool)
    return ResourceSlice(metadata=ObjectMeta(**meta), spec=spec)


# ------------------------------------------------------------------------------------------------ taint rules: time


async def test_a_rule_is_stamped_at_its_creation(cluster: Cluster, unique: str) -> None:
    """A rule without a time gets whole seconds; one that is given stays; everything else comes back as it was sent."""
    made = await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, value="79"))
    stamp = made.spec.taint.time_added
    assert stamp is not None
    assert len(stamp) == len(OLD)
    assert made.spec == with_taint(a_rule(unique, value="79"), time_added=stamp).spec
    assert made.metadata.generation == 1
    given = await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, name=f"{unique}-b", time_added=OLD))
    assert given.spec.taint.time_added == OLD


async def test_key_and_value_keep_the_time(cluster: Cluster, unique: str) -> None:
    """Running tolerations go on when only key or value of a rule change."""
    await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, time_added=OLD))
    new = await put(cluster, DEVICE_TAINT_RULE, unique, key=f"{KEY}-2", value="x")
    assert (new.spec.taint.time_added, new.metadata.generation) == (OLD, 2)


async def test_an_effect_change_is_stamped_anew(cluster: Cluster, unique: str) -> None:
    """With another effect the time carried over becomes "now"; one that the writer changed himself stays."""
    await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, time_added=OLD))
    new = await put(cluster, DEVICE_TAINT_RULE, unique, effect="NoSchedule")
    assert new.spec.taint.time_added not in (None, OLD)
    own = await put(cluster, DEVICE_TAINT_RULE, unique, effect="None", time_added=OLD)
    assert own.spec.taint.time_added == OLD


async def test_a_put_without_a_time_restarts_it(cluster: Cluster, unique: str) -> None:
    """Whoever leaves the time out of a PUT has it stamped "now", though nothing changed."""
    await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, time_added=OLD))
    new = await put(cluster, DEVICE_TAINT_RULE, unique, time_added=None)
    assert new.spec.taint.time_added not in (None, OLD)


async def test_an_apply_without_a_time_leaves_it(cluster: Cluster, unique: str) -> None:
    """The time that the server stamped is not the applier's: applying again leaves it, another effect renews it."""
    fields = applied_rule(unique, "None")
    made = await cluster.apply(DEVICE_TAINT_RULE, fields, "contract")
    again = await cluster.apply(DEVICE_TAINT_RULE, fields, "contract")
    assert (again.spec, again.metadata.generation) == (made.spec, made.metadata.generation)
    aged = await put(cluster, DEVICE_TAINT_RULE, unique, time_added=OLD)
    assert aged.spec.taint.time_added == OLD
    assert (await cluster.apply(DEVICE_TAINT_RULE, fields, "contract")).spec.taint.time_added == OLD
    new = await cluster.apply(DEVICE_TAINT_RULE, applied_rule(unique, "NoSchedule"), "contract")
    assert new.spec.taint.time_added not in (None, OLD)


def applied_rule(unique: str, effect: str) -> dict[str, Any]:
    selector = {"driver": f"{unique}.example.com"}
    spec = {"deviceSelector": selector, "taint": {"key": KEY, "effect": effect}}
    return {"metadata": {"name": unique, "labels": {"contract": unique}}, "spec": spec}


# ----------------------------------------------------------------------------------------------- taint rules: rest


@pytest.mark.parametrize(
    ("taint", "selector", "field"),
    [
        ({"effect": "PreferNoSchedule"}, {}, "spec.taint.effect"),
        ({"effect": ""}, {}, "spec.taint.effect"),
        ({"key": ""}, {}, "spec.taint.key"),
        ({"key": "a b"}, {}, "spec.taint.key"),
        ({"value": "a/b"}, {}, "spec.taint.value"),
        ({"value": "x" * 64}, {}, "spec.taint.value"),
        ({}, {"driver": "under_score.example.com"}, "spec.deviceSelector.driver"),
        ({}, {"pool": "a//b"}, "spec.deviceSelector.pool"),
        ({}, {"device": "gpu_0"}, "spec.deviceSelector.device"),
    ],
)
async def test_rules_that_are_refused(
    cluster: Cluster, unique: str, taint: Mapping[str, str], selector: Mapping[str, str], field: str
) -> None:
    """The refusal names the field."""
    rule = a_rule(unique, **taint)
    assert rule.spec.device_selector is not None
    spec = replace(rule.spec, device_selector=replace(rule.spec.device_selector, **selector))
    with pytest.raises(Rejected) as caught:
        await cluster.create(DEVICE_TAINT_RULE, replace(rule, spec=spec))
    assert caught.value.code == 422
    assert field in caught.value.fields, caught.value.fields


async def test_rules_are_selected_by_label(cluster: Cluster, unique: str) -> None:
    """A controller finds its own rules by their label, and no other field of theirs can be selected."""
    made = [await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, name=f"{unique}-{n}")) for n in range(2)]
    await cluster.create(DEVICE_TAINT_RULE, replace(a_rule(unique), metadata=ObjectMeta(name=f"{unique}-x")))
    found = await cluster.list(DEVICE_TAINT_RULE, Selector(labels={"contract": unique}))
    stranger = await cluster.get(DEVICE_TAINT_RULE, f"{unique}-x")
    assert stranger is not None
    assert await cluster.delete(DEVICE_TAINT_RULE, at_any_version(stranger)) is True
    assert [(each.metadata.uid, each.spec) for each in found.items] == [(each.metadata.uid, each.spec) for each in made]
    with pytest.raises(Rejected):
        await cluster.list(DEVICE_TAINT_RULE, Selector(fields={"spec.taint.key": KEY}))


async def test_the_status_of_a_rule_is_apart(cluster: Cluster, unique: str) -> None:
    """A PUT of the rule leaves the status, an apply of the status leaves the rule; creation takes no status."""
    condition = {
        "type": "Contract",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": OLD,
    }
    status = RuleStatus(conditions=(condition,))
    plain = a_rule(unique)
    made = await cluster.create(
        RULE_WITH_STATUS, RuleWithStatus(metadata=plain.metadata, spec=plain.spec, status=status)
    )
    assert not (made.status and made.status.conditions)
    fields = {
        "metadata": {"name": unique},
        "spec": {"taint": {"key": KEY, "effect": "NoExecute"}},
        "status": {"conditions": [condition]},
    }
    told = await cluster.apply(RULE_WITH_STATUS, fields, "contract", "status")
    assert told.spec == made.spec
    assert told.status is not None
    assert condition in (told.status.conditions or ())
    await put(cluster, DEVICE_TAINT_RULE, unique, value="changed")
    new = await cluster.get(RULE_WITH_STATUS, unique)
    assert new is not None
    assert new.status is not None
    assert (new.spec.taint.value, condition in (new.status.conditions or ())) == ("changed", True)


async def test_a_kind_in_several_versions(cluster: Cluster) -> None:
    """The first version that is served is found; a kind that exists nowhere is not."""
    assert await served(cluster, DEVICE_TAINT_RULES) == DEVICE_TAINT_RULE
    nowhere = tuple(replace(kind, plural="nonsenses") for kind in DEVICE_TAINT_RULES)
    assert await served(cluster, (*nowhere, DEVICE_TAINT_RULE)) == DEVICE_TAINT_RULE
    assert await served(cluster, nowhere) is None


async def test_an_object_of_another_version_is_refused(cluster: Cluster, unique: str) -> None:
    """What is sent to one version says to be of that version, or nothing of it."""
    rule = replace(a_rule(unique), api_version="resource.k8s.io/v1beta2")
    with pytest.raises(Rejected, match="does not match the expected API version") as caught:
        await cluster.create(DEVICE_TAINT_RULE, rule)
    assert caught.value.code == 400
    made = await cluster.create(DEVICE_TAINT_RULE, a_rule(unique))
    with pytest.raises(Rejected, match="does not match the expected API version"):
        await cluster.replace(DEVICE_TAINT_RULE, replace(made, api_version="resource.k8s.io/v1beta2"))


# -------------------------------------------------------------------------------------------------- custom resources


async def test_a_custom_resource_has_its_status_apart(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """Creation takes no status; its own apply writes it and nothing else, and raises the version only."""
    first = await cluster.apply(samples, {**sample_fields(unique), "status": {"phase": "Forged"}}, "user")
    assert (first.status, first.metadata.generation) == (None, 1)
    fields = {**sample_fields(unique, node="node-b"), "status": {"phase": "Active", "devices": ["a", "b"]}}
    told = await cluster.apply(samples, fields, "driver", "status")
    assert told.spec == first.spec
    assert told.status is not None
    assert (told.status.phase, told.status.devices) == ("Active", ("a", "b"))
    assert told.metadata.generation == 1
    assert told.metadata.resource_version != first.metadata.resource_version
    new = await cluster.replace(samples, replace(told, spec=SampleSpec(node="node-c"), status=None))
    assert (new.status, new.metadata.generation) == (told.status, 2)


async def test_a_status_applied_twice_is_one_write(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """Applying the same status changes nothing; a list in it is replaced as a whole; what is left out goes."""
    await cluster.create(samples, a_sample(unique))
    both = {"metadata": {"name": unique}, "status": {"phase": "Active", "devices": ["a", "b"]}}
    first = await cluster.apply(samples, both, "driver", "status")
    assert await cluster.apply(samples, both, "driver", "status") == first
    less = {"metadata": {"name": unique}, "status": {"devices": ["b"]}}
    second = await cluster.apply(samples, less, "driver", "status")
    assert second.status is not None
    assert (second.status.phase, second.status.devices) == (None, ("b",))


async def test_the_status_of_what_is_gone(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """An apply of the status creates nothing."""
    with pytest.raises(Rejected) as caught:
        await cluster.apply(samples, {"metadata": {"name": unique}, "status": {"phase": "x"}}, "driver", "status")
    assert caught.value.code == 404
    assert await cluster.get(samples, unique) is None


async def test_a_subresource_that_does_not_exist(cluster: Cluster, unique: str) -> None:
    """A slice has no status."""
    made = await cluster.create(RESOURCE_SLICE, a_slice(unique, name=unique))
    try:
        with pytest.raises(Rejected) as caught:
            await cluster.apply(RESOURCE_SLICE, {"metadata": {"name": unique}, "status": {}}, "driver", "status")
    finally:
        await cluster.delete(RESOURCE_SLICE, made)
    assert caught.value.code == 404


async def test_a_selectable_field(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """Lists and watches are narrowed to one node; a field that is not declared cannot be selected."""
    ours = await cluster.create(samples, a_sample(unique, node=unique))
    theirs = await cluster.create(samples, a_sample(unique, name=f"{unique}-b", node=f"{unique}-x"))
    selector = Selector(fields={"spec.node": unique})
    found = await cluster.list(samples, selector)
    assert found.items == (ours,)
    with pytest.raises(Rejected) as caught:
        await cluster.list(samples, Selector(fields={"spec.note": "x"}))
    assert caught.value.code == 400
    seen: list[tuple[str, str]] = []
    await cluster.replace(samples, replace(theirs, spec=SampleSpec(node=unique)))
    await cluster.replace(samples, replace(ours, spec=SampleSpec(node="elsewhere")))
    async with aclosing(cluster.watch(samples, found.resource_version, selector)) as changes:
        async for change in changes:
            if change.object is not None:
                seen.append((change.type, change.object.metadata.name or ""))
            if len(seen) == 2:
                break
    assert seen == [("ADDED", f"{unique}-b"), ("DELETED", unique)]


async def test_a_mirror_of_a_custom_resource(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """A mirror follows the objects of one node, their status too."""
    mirror = Mirror(cluster, samples, Selector(fields={"spec.node": unique}))
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(mirror.run())
        await mirror.synced.wait(lambda times: times > 0)
        await cluster.create(samples, a_sample(unique, node=unique))
        await mirror.objects.wait(lambda objects: set(objects) == {unique})
        await cluster.apply(samples, {"metadata": {"name": unique}, "status": {"phase": "Active"}}, "driver", "status")
        await mirror.objects.wait(lambda objects: any(each.status for each in objects.values()))
        running.cancel()


def sample_fields(unique: str, node: str = "node-a") -> dict[str, Any]:
    return {"metadata": {"name": unique, "labels": {"contract": unique}}, "spec": {"node": node}}


# ---------------------------------------------------------------------------------------------------------- dry runs


async def test_a_dry_run_stores_nothing(cluster: Cluster, unique: str) -> None:
    """What would be stored comes back with name and UID, without a version; nobody else sees it."""
    tried = await cluster.create(RESOURCE_SLICE, a_slice(unique, generate_name=f"{unique}-"), dry_run=True)
    assert (tried.metadata.name or "").startswith(f"{unique}-")
    assert tried.metadata.uid
    assert not tried.metadata.resource_version
    assert (await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": f"{unique}.example.com"}))).items == ()
    assert await cluster.get(RESOURCE_SLICE, tried.metadata.name or "") is None


async def test_a_dry_run_takes_no_name(cluster: Cluster, unique: str) -> None:
    """The name is free afterwards; one that is taken is a Conflict in a dry run too."""
    rule = a_rule(unique)
    await cluster.create(DEVICE_TAINT_RULE, rule, dry_run=True)
    await cluster.create(DEVICE_TAINT_RULE, rule)
    with pytest.raises(Conflict, match="already exists"):
        await cluster.create(DEVICE_TAINT_RULE, rule, dry_run=True)


async def test_a_dry_run_is_checked(cluster: Cluster, unique: str) -> None:
    """What would be refused is refused, and what would be filled in is filled in."""
    with pytest.raises(Rejected) as caught:
        await cluster.create(DEVICE_TAINT_RULE, a_rule(unique, effect="Odd"), dry_run=True)
    assert "spec.taint.effect" in caught.value.fields
    assert (await cluster.create(DEVICE_TAINT_RULE, a_rule(unique), dry_run=True)).spec.taint.time_added


async def test_taints_are_kept_and_the_question_leaves_no_trace(cluster: Cluster, unique: str) -> None:
    """A 1.37 keeps taints; finding that out stores nothing."""
    assert await keeps_taints(cluster, f"{unique}.example.com", "node-a") is True
    assert (await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": f"{unique}.example.com"}))).items == ()


# ------------------------------------------------------------------------------------------------- other things


async def test_a_config_map_is_applied(cluster: Cluster, unique: str) -> None:
    """The first apply makes it, the second replaces its text."""
    meta = {"name": unique, "namespace": NAMESPACE}
    made = await cluster.apply(CONFIG_MAP, {"metadata": meta, "data": {"a": "1", "b": "2"}}, "contract")
    assert made.data == {"a": "1", "b": "2"}
    new = await cluster.apply(CONFIG_MAP, {"metadata": meta, "data": {"b": "3"}}, "contract")
    assert new.data == {"b": "3"}
    assert isinstance(await cluster.get(CONFIG_MAP, unique, NAMESPACE), ConfigMap)


async def test_pods_of_one_node(cluster: Cluster, unique: str) -> None:
    """Pods are selected by the node that they run on, in all namespaces."""
    assert (await cluster.list(POD, Selector(fields={"spec.nodeName": unique}))).items == ()
    for pod in (await cluster.list(POD, EVERYTHING)).items:
        only = Selector(namespace=pod.metadata.namespace, fields={"metadata.name": pod.metadata.name or ""})
        assert [each.metadata.uid for each in (await cluster.list(POD, only)).items] in ([pod.metadata.uid], [])


async def test_an_election(cluster: Cluster, unique: str) -> None:
    """Of two candidates one leads; when it leaves, the other follows without waiting for the Lease's end."""
    times = Times(lease=30, renew=20, retry=0.2)
    first, second = (
        Election(cluster, name=unique, namespace=NAMESPACE, identity=name, times=times) for name in ("a", "b")
    )
    async with asyncio.timeout(15), asyncio.TaskGroup() as tasks:
        leader = tasks.create_task(first.run())
        await first.leading.wait(bool)
        other = tasks.create_task(second.run())
        await second.holder.wait(lambda holder: holder == "a")
        assert not second.leading.value
        assert (first.error.value, second.error.value) == (None, None)
        leader.cancel()
        await second.leading.wait(bool)
        assert not first.leading.value
        other.cancel()
    left = await cluster.get(LEASE, unique, NAMESPACE)
    assert left is not None
    assert (left.spec.holder_identity, left.spec.lease_transitions) == (None, 1)


async def test_candidates_that_come_at_once(cluster: Cluster, unique: str) -> None:
    """However many find no Lease at the same time, one of them leads."""
    times = Times(lease=30, renew=20, retry=0.2)
    all_ = [Election(cluster, name=unique, namespace=NAMESPACE, identity=str(n), times=times) for n in range(5)]
    leading: list[Latest[bool]] = [each.leading for each in all_]
    async with asyncio.timeout(15), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in all_]
        async for values in follow(*leading, *(each.holder for each in all_)):
            assert sum(values[:5]) <= 1
            if any(values[:5]) and len(set(values[5:])) == 1:
                break
        for each in running:
            each.cancel()


async def test_a_stale_custom_resource(cluster: Cluster, samples: Kind[Sample], unique: str) -> None:
    """Who read before the last write must read again; a PUT of what is gone is an error."""
    made = await cluster.create(samples, a_sample(unique))
    new = await cluster.replace(samples, replace(made, spec=SampleSpec(node="node-b")))
    with pytest.raises(Conflict):
        await cluster.replace(samples, made)
    assert await cluster.delete(samples, new) is True
    with pytest.raises(ClusterError):
        await cluster.replace(samples, new)
