"""A busy API server: 429 with Retry-After 3 on every verb, over HTTP and in real time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from dra_plugin.cluster import Cluster
from dra_plugin.kube import KubeCluster, plain
from dra_plugin.resources import (
    CONFIG_MAP,
    DEVICE_TAINT_RULE,
    ConfigMap,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    ObjectMeta,
)
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.http import serve_http

SECONDS = 3.0
NAMESPACE = "system"
VERBS = ("get", "list", "watch", "create", "replace", "apply", "delete")


def a_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=NAMESPACE))


def rule() -> DeviceTaintRule:
    return DeviceTaintRule(
        metadata=ObjectMeta(name="r"), spec=DeviceTaintRuleSpec(taint=DeviceTaint(key="k", effect="None"))
    )


async def first_change(cluster: Cluster) -> bool:
    async with aclosing(cluster.watch(CONFIG_MAP, "1")) as changes:
        return (await anext(changes)).type == "BOOKMARK"


def calls(cluster: Cluster, stored: ConfigMap, doomed: ConfigMap) -> list[Callable[[], Awaitable[object]]]:
    """Return one or two calls of each verb."""
    meta = {"metadata": {"name": stored.metadata.name, "namespace": NAMESPACE, "labels": {"a": "b"}}}
    status = {"metadata": {"name": "r"}, "status": {"conditions": []}}
    return [
        lambda: cluster.get(CONFIG_MAP, "stored", NAMESPACE),
        lambda: cluster.get(DEVICE_TAINT_RULE, "r"),
        lambda: cluster.list(CONFIG_MAP),
        lambda: cluster.list(DEVICE_TAINT_RULE),
        lambda: first_change(cluster),
        lambda: cluster.create(CONFIG_MAP, a_map("new")),
        lambda: cluster.create(CONFIG_MAP, a_map("tried"), dry_run=True),
        lambda: cluster.replace(CONFIG_MAP, replace(stored, data={"a": "b"})),
        lambda: cluster.apply(CONFIG_MAP, meta, "me"),
        lambda: cluster.apply(DEVICE_TAINT_RULE, status, "me", "status"),
        lambda: cluster.delete(CONFIG_MAP, doomed),
    ]


@pytest.mark.slow
async def test_every_verb_waits_three_seconds_and_then_goes_through() -> None:
    """After a 429 no request of that verb arrives for as long as the server asked; then all that waited succeed."""
    fake = FakeCluster()
    stored, doomed = [await fake.create(CONFIG_MAP, a_map(name)) for name in ("stored", "doomed")]
    await fake.create(DEVICE_TAINT_RULE, rule())
    async with serve_http(fake) as url, KubeCluster(plain(url)) as cluster:
        await cluster.get(CONFIG_MAP, "stored", NAMESPACE)  # connected
        for verb in VERBS:
            fake.faults.fail(verb, code=429, retry_after=SECONDS)
        fake.faults.requests.clear()
        done: list[object] = []

        async def call(one: Callable[[], Awaitable[object]], after: float) -> None:
            await asyncio.sleep(after)
            done.append(await one())

        all_ = calls(cluster, stored, doomed)
        async with asyncio.timeout(15), asyncio.TaskGroup() as tasks:
            for one in all_:
                tasks.create_task(call(one, 0.0))
            for one in all_[:4]:  # whoever comes later waits as well
                tasks.create_task(call(one, 1.0))
    assert len(done) == len(all_) + 4
    assert all(done)
    for verb in VERBS:
        times = [each.at for each in fake.faults.requests if each.verb == verb]
        refused = [at for at in times if at - times[0] < SECONDS - 0.5]
        assert len(times) > len(refused) > 0
        assert max(refused) - times[0] < 0.5, f"{verb}: a request came while the server had asked to wait"
        assert min(set(times) - set(refused)) - times[0] >= SECONDS - 0.01
    assert await fake.get(CONFIG_MAP, "tried", NAMESPACE) is None
    assert await fake.get(CONFIG_MAP, "doomed", NAMESPACE) is None
