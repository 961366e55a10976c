"""The life of a DeviceTaintRule in one version of the API, for every server that serves it."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from dra_plugin.cluster import Change, Cluster, Selector
from dra_plugin.errors import Conflict
from dra_plugin.resources import (
    DEVICE_TAINT_RULES,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    Kind,
    ObjectMeta,
)

OLD = "2026-01-02T03:04:05Z"
Rules = Kind[DeviceTaintRule]


async def check_life(cluster: Cluster, kind: Rules, unique: str) -> None:
    """A rule is created, read, changed and deleted in this version, a watch tells of it, and no field is lost."""
    selector = Selector(labels={"contract": unique})
    since = (await cluster.list(kind, selector)).resource_version
    made = await cluster.create(kind, a_rule(kind, unique))
    assert (made.api_version, made.spec) == (kind.api_version, a_rule(kind, unique).spec)
    await check_readable(cluster, made)
    renamed = await put(cluster, kind, unique, key="example.com/other", value="80")
    assert renamed.spec.taint == DeviceTaint(key="example.com/other", value="80", effect="None", time_added=OLD)
    stronger = await put(cluster, kind, unique, effect="NoSchedule")
    assert stronger.spec.taint.effect == "NoSchedule"
    assert stronger.spec.taint.time_added not in (None, OLD)
    await check_readable(cluster, stronger)
    assert [rule.spec for rule in (await cluster.list(kind, selector)).items] == [stronger.spec]
    assert await cluster.delete(kind, at_any_version(stronger)) is True
    assert await cluster.get(kind, unique) is None
    told = [change async for change in until_deleted(cluster, kind, since, selector)]
    assert {change.object.api_version for change in told if change.object} == {kind.api_version}
    specs = [change.object.spec for change in told if change.object]
    assert list(dict.fromkeys(specs)) == [made.spec, renamed.spec, stronger.spec]


def a_rule(kind: Rules, unique: str) -> DeviceTaintRule:
    """Return a rule with every field set, for no device of any cluster."""
    selector = DeviceTaintSelector(driver=f"{unique}.example.com", pool="node-a", device="gpu-0")
    taint = DeviceTaint(key="example.com/contract", value="79", effect="None", time_added=OLD)
    meta = ObjectMeta(name=unique, labels={"contract": unique}, annotations={"example.com/why": "a test"})
    spec = DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    return DeviceTaintRule(api_version=kind.api_version, metadata=meta, spec=spec)


async def check_readable(cluster: Cluster, rule: DeviceTaintRule) -> None:
    """The rule is the same in each version that is served."""
    for kind in DEVICE_TAINT_RULES:
        if await cluster.served(kind):
            found = await cluster.get(kind, rule.metadata.name or "")
            assert found is not None
            assert (found.api_version, found.metadata.uid) == (kind.api_version, rule.metadata.uid)
            assert (found.spec, found.metadata.annotations) == (rule.spec, rule.metadata.annotations)


def with_taint(rule: DeviceTaintRule, **taint: Any) -> DeviceTaintRule:  # noqa: ANN401 - any field of a taint
    """Return the rule with a taint that differs in these fields."""
    return replace(rule, spec=replace(rule.spec, taint=replace(rule.spec.taint, **taint)))


def at_any_version(obj: Any) -> Any:  # noqa: ANN401 - an object of any kind
    """Return the object without its version: for the real cluster's own controller writes into it, too."""
    return replace(obj, metadata=replace(obj.metadata, resource_version=None))


async def put(cluster: Cluster, kind: Rules, name: str, **taint: Any) -> DeviceTaintRule:  # noqa: ANN401 - any field of a taint
    """Change a rule by a PUT. A real cluster's own controller writes a status into it whenever it likes."""
    while True:
        stored = await cluster.get(kind, name)
        assert stored is not None
        try:
            return await cluster.replace(kind, with_taint(stored, **taint))
        except Conflict:
            continue


async def until_deleted(
    cluster: Cluster, kind: Rules, since: str, selector: Selector
) -> AsyncIterator[Change[DeviceTaintRule]]:
    """Yield what a watch tells, bookmarks left out, until it tells of a deletion."""
    async with aclosing(cluster.watch(kind, since, selector)) as changes:
        async for change in changes:
            if change.type != "BOOKMARK":
                yield change
            if change.type == "DELETED":
                return
