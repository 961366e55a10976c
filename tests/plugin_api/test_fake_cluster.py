"""FakeCluster: what the contract suite cannot ask of a real API server - gates, faults, history, the command."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_plugin.claims import RESOURCE_CLAIM
from dra_plugin.cluster import Selector
from dra_plugin.errors import ClusterError, Conflict, Expired, Rejected, Retryable
from dra_plugin.kube import KubeCluster, plain
from dra_plugin.quantity import Quantity
from dra_plugin.resources import (
    DEVICE_TAINT_RULES,
    NODE,
    POD,
    RESOURCE_SLICE,
    Counter,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    SchedulingGroup,
)
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster import GATES, Catalog, Resource
from dra_plugin.testing.cluster.apply import applied
from dra_plugin.testing.cluster.catalog import OPTIONAL_APIS
from dra_plugin.testing.cluster.http import serve_http
from tests.contract.samples import SAMPLE, Sample, SampleSpec

COUNTERS = {"mem": Counter(value=Quantity("1Gi"))}
RICH = Device(
    name="d",
    taints=(DeviceTaint(key="k", effect="NoSchedule", time_added="2026-01-02T03:04:05Z"),),
    consumes_counters=(CounterConsumption(counter_set="c", counters=COUNTERS, compatibility_groups=("g",)),),
    allow_multiple_allocations=True,
    binds_to_node=True,
    binding_conditions=("a",),
    binding_failure_conditions=("b",),
)


def a_slice(*devices: Device, name: str = "s") -> ResourceSlice:
    pool = ResourcePool(name="p", generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="d.example.com", node_name="n", pool=pool, devices=devices or None)
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def only(obj: ResourceSlice) -> Device:
    assert obj.spec.devices is not None
    return obj.spec.devices[0]


# -------------------------------------------------------------------------------------------------------- gates


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("DRADeviceTaints", replace(RICH, taints=None)),
        ("DRAPartitionableDevices", replace(RICH, consumes_counters=None)),
        ("DRAConsumableCapacity", replace(RICH, allow_multiple_allocations=None)),
        (
            "DRADeviceBindingConditions",
            replace(RICH, binds_to_node=None, binding_conditions=None, binding_failure_conditions=None),
        ),
        (
            "DRADeviceCompatibilityGroups",
            replace(RICH, consumes_counters=(CounterConsumption(counter_set="c", counters=COUNTERS),)),
        ),
    ],
)
async def test_fields_of_disabled_gates_vanish(gate: str, expected: Device) -> None:
    """The server drops them without a word and keeps everything else."""
    everything = await FakeCluster().create(RESOURCE_SLICE, a_slice(RICH))
    assert only(everything) == RICH
    less = await FakeCluster(disabled_gates={gate}).create(RESOURCE_SLICE, a_slice(RICH))
    assert only(less) == expected


async def test_counter_sets_vanish() -> None:
    """Without the gate of partitions a counter slice is an empty slice."""
    sets = (CounterSet(name="c", counters=COUNTERS),)
    wanted = replace(a_slice(), spec=replace(a_slice().spec, shared_counters=sets))
    made = await FakeCluster(disabled_gates={"DRAPartitionableDevices"}).create(RESOURCE_SLICE, wanted)
    assert made.spec.shared_counters is None


async def test_lists_without_their_gate_are_refused() -> None:
    """A list attribute loses its value, and an attribute without value is invalid."""
    device = Device(name="d", attributes={"a": DeviceAttribute(strings=("x",))})
    cluster = FakeCluster(disabled_gates={"DRAListTypeAttributes"})
    with pytest.raises(Rejected, match="exactly one value"):
        await cluster.create(RESOURCE_SLICE, a_slice(device))


async def test_what_is_in_use_stays() -> None:
    """A gate that was switched off later drops nothing from slices that use the feature."""
    cluster = FakeCluster()
    made = await cluster.create(RESOURCE_SLICE, a_slice(RICH))
    cluster.store.disable_gates(GATES)
    new = await cluster.replace(RESOURCE_SLICE, replace(made, metadata=replace(made.metadata, labels={"a": "b"})))
    assert only(new) == RICH


# ------------------------------------------------------------------------------------------- faults and history


async def test_faults_are_for_the_ordered_requests_only() -> None:
    """A fault meets the verb and kind it is for, as often as ordered."""
    cluster = FakeCluster()
    cluster.faults.fail("get", code=500, times=2, plural="nodes")
    assert await cluster.get(RESOURCE_SLICE, "x") is None
    for _ in range(2):
        with pytest.raises(Retryable):
            await cluster.get(NODE, "x")
    assert await cluster.get(NODE, "x") is None


@pytest.mark.looptime
async def test_latency() -> None:
    """Requests can be slow."""
    cluster = FakeCluster()
    cluster.faults.latency = 3.0
    started = asyncio.get_running_loop().time()
    await cluster.get(NODE, "x")
    assert asyncio.get_running_loop().time() - started == pytest.approx(3.0)


@pytest.mark.parametrize("forget", [True, False])
async def test_old_versions_expire(forget: bool) -> None:
    """A watch from before what is remembered must list again."""
    cluster = FakeCluster(window=2)
    since = (await cluster.list(RESOURCE_SLICE)).resource_version
    if forget:
        cluster.store.forget_history()
    else:
        for index in range(3):
            await cluster.create(RESOURCE_SLICE, a_slice(name=f"s-{index}"))
    with pytest.raises(Expired):
        async for _ in cluster.watch(RESOURCE_SLICE, since):
            pass


async def test_ended_watches() -> None:
    """Running watches can be ended, cleanly or with an error."""
    cluster = FakeCluster()
    for code, expected in ((None, None), (500, Retryable), (410, Expired)):
        found = await outcome(cluster, code)
        assert found is expected
    assert cluster.watching.count == 0


async def outcome(cluster: FakeCluster, code: int | None) -> type[ClusterError] | None:
    """Return how a watch ends that is ended with ``code``."""
    try:
        async with aclosing(cluster.watch(NODE, str(cluster.store.version.value))) as changes:
            await anext(changes)
            cluster.watching.end(code)
            async for _ in changes:
                pass
    except ClusterError as error:
        return type(error)
    return None


async def test_a_server_that_is_away() -> None:
    """Nothing can be asked and running watches break; when it is back, all is as it was."""
    cluster = FakeCluster()
    made = await cluster.create(RESOURCE_SLICE, a_slice())
    async with aclosing(cluster.watch(RESOURCE_SLICE, made.metadata.resource_version or "")) as changes:
        await anext(changes)
        with cluster.away():
            with pytest.raises(Retryable):
                await anext(changes)
            for question in (cluster.list(RESOURCE_SLICE), cluster.served(RESOURCE_SLICE), cluster.get(NODE, "x")):
                with pytest.raises(Retryable):
                    await question
            with pytest.raises(Retryable):
                await anext(cluster.watch(RESOURCE_SLICE, "1"))
    assert (await cluster.list(RESOURCE_SLICE)).items == (made,)


async def test_pods_of_one_node() -> None:
    """Pods are found by their node, whatever their namespace, and leave the selection when they are deleted."""
    cluster = FakeCluster()
    for name, node in (("a", "node-a"), ("b", "node-b"), ("c", "node-a"), ("d", None)):
        meta = {"name": name, "namespace": f"ns-{name}"}
        group = {"schedulingGroup": {"podGroupName": "together"}}
        await cluster.put_json(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node, **group}}
        )
    found = await cluster.list(POD, Selector(fields={"spec.nodeName": "node-a"}))
    assert [pod.metadata.name for pod in found.items] == ["a", "c"]
    assert found.items[0].spec.scheduling_group == SchedulingGroup(pod_group_name="together")
    assert await cluster.delete(POD, found.items[0])
    left = await cluster.list(POD, Selector(fields={"spec.nodeName": "node-a"}))
    assert [pod.metadata.name for pod in left.items] == ["c"]
    waiting = await cluster.list(POD, Selector(fields={"spec.nodeName": ""}))
    assert [pod.metadata.name for pod in waiting.items] == ["d"]


async def test_an_unserved_kind() -> None:
    """What is not served is an error, and served says so."""
    cluster = FakeCluster(catalog=Catalog(unserved={"resourceclaims"}))
    assert [await cluster.served(RESOURCE_CLAIM), await cluster.served(NODE)] == [False, True]
    with pytest.raises(Rejected):
        await cluster.list(RESOURCE_CLAIM)


# ---------------------------------------------------------------------------------------------- versions, catalog

RULE_OF_TODAY, RULE_OF_1_36, RULE_OF_1_33 = DEVICE_TAINT_RULES


def a_rule(name: str = "r", effect: str = "None") -> DeviceTaintRule:
    taint = DeviceTaint(key="k", effect=effect)
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=DeviceTaintRuleSpec(taint=taint))


async def test_old_versions_are_off_by_default() -> None:
    """They can be switched on, with the newest one or in its place; an unknown one is refused, naming the allowed."""
    kinds = DEVICE_TAINT_RULES
    assert [await FakeCluster().served(kind) for kind in kinds] == [True, False, False]
    some = FakeCluster(catalog=Catalog(apis=[RULE_OF_1_33.api_version]))
    assert [await some.served(kind) for kind in kinds] == [True, False, True]
    some.catalog.withdraw("devicetaintrules", "resource.k8s.io/v1")
    assert [await some.served(kind) for kind in kinds] == [False, False, True]
    assert await some.served(RESOURCE_CLAIM)
    with pytest.raises(ValueError, match=r"'resource.k8s.io/v2' is none of resource.k8s.io/v1beta2, "):
        Catalog(apis=["resource.k8s.io/v2"])


async def test_versions_share_their_objects() -> None:
    """What is written in one version is read in the other, under that one's name, and a watch hears of it."""
    cluster = FakeCluster(catalog=Catalog(apis=[RULE_OF_1_36.api_version]))
    since = (await cluster.list(RULE_OF_1_36)).resource_version
    made = await cluster.create(RULE_OF_TODAY, a_rule())
    found = await cluster.get(RULE_OF_1_36, "r")
    assert found == replace(made, api_version="resource.k8s.io/v1beta2")
    async with aclosing(cluster.watch(RULE_OF_1_36, since)) as changes:
        seen = [(await anext(changes)).object for _ in range(2)]
    assert seen == [None, found]
    new = await cluster.replace(RULE_OF_1_36, replace(found, metadata=replace(found.metadata, labels={"a": "b"})))
    assert (new.api_version, new.metadata.generation) == ("resource.k8s.io/v1beta2", 1)
    read = await cluster.get(RULE_OF_TODAY, "r")
    assert read == replace(new, api_version="resource.k8s.io/v1")
    assert await cluster.replace(RULE_OF_TODAY, read) == read


async def test_a_resource_that_comes_later() -> None:
    """A custom resource is served from its installation on, and its objects outlive an absence."""
    cluster = FakeCluster()
    with pytest.raises(Rejected) as caught:
        await cluster.create(SAMPLE, Sample(metadata=ObjectMeta(name="s"), spec=SampleSpec(node="n")))
    assert caught.value.code == 404
    cluster.catalog.serve(Resource.custom(SAMPLE, "spec.node"))
    made = await cluster.create(SAMPLE, Sample(metadata=ObjectMeta(name="s"), spec=SampleSpec(node="n")))
    cluster.catalog.withdraw(SAMPLE.plural)
    assert await cluster.served(SAMPLE) is False
    cluster.catalog.serve(Resource.custom(SAMPLE, "spec.node"))
    assert (await cluster.list(SAMPLE, Selector(fields={"spec.node": "n"}))).items == (made,)


async def test_gates_of_rules_keep_them() -> None:
    """With DRADeviceTaintRules off rules are stored all the same: only scheduler and eviction ignore them."""
    cluster = FakeCluster(disabled_gates={"DRADeviceTaintRules", "DRADeviceTaints"})
    assert (await cluster.create(RULE_OF_TODAY, a_rule())).spec.taint.key == "k"


# --------------------------------------------------------------------------------------------- over HTTP, by hand


@pytest.fixture
async def http() -> AsyncIterator[tuple[FakeCluster, ClientSession]]:
    """A fake API server and a plain HTTP client of it."""
    fake = FakeCluster(catalog=Catalog(apis=OPTIONAL_APIS, extra=(Resource.custom(SAMPLE, "spec.node"),)))
    async with serve_http(fake) as url, ClientSession(url) as session:
        yield fake, session


@pytest.mark.parametrize(("version", "code"), [("v1", 422), ("v1beta2", 200), ("v1alpha3", 200)])
async def test_a_put_without_a_version(http: tuple[FakeCluster, ClientSession], version: str, code: int) -> None:
    """Rules in v1 are not overwritten unread, older versions still let it happen."""
    fake, session = http
    await fake.create(RULE_OF_TODAY, a_rule())
    body = {"spec": {"taint": {"key": "other", "effect": "None"}}}
    async with session.put(f"/apis/resource.k8s.io/{version}/devicetaintrules/r", json=body) as answer:
        assert answer.status == code
        text = await answer.text()
    assert ("metadata.resourceVersion" in text) is (code == 422)
    stored = await fake.get(RULE_OF_TODAY, "r")
    assert stored is not None
    assert stored.spec.taint.key == ("k" if code == 422 else "other")


async def test_a_merge_patch_keeps_to_its_part(http: tuple[FakeCluster, ClientSession]) -> None:
    """A patch by kubectl changes the object or, with --subresource=status, the status, never both."""
    fake, session = http
    await fake.create(SAMPLE, Sample(metadata=ObjectMeta(name="s"), spec=SampleSpec(node="n")))
    path = "/apis/contract.dra-plugin.example.com/v1/samples/s"
    both = {"spec": {"note": "x"}, "status": {"phase": "Active"}}
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(path, json=both, headers=headers) as answer:
        assert (await answer.json())["spec"] == {"node": "n", "note": "x"}
    found = await fake.get(SAMPLE, "s")
    assert found is not None
    assert found.status is None
    async with session.patch(f"{path}/status", json={**both, "spec": {"note": "y"}}, headers=headers) as answer:
        assert answer.status == 200
    found = await fake.get(SAMPLE, "s")
    assert found is not None
    assert found.status is not None
    assert (found.spec.note, found.status.phase) == ("x", "Active")


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [
        ("POST", "dryRun=All", 201),
        ("POST", "dryRun=Some", 422),
        ("PUT", "dryRun=All", 400),
        ("DELETE", "dryRun=All", 400),
    ],
)
async def test_dry_runs(http: tuple[FakeCluster, ClientSession], method: str, query: str, code: int) -> None:
    """What the fake cannot do as a dry run it refuses, rather than do it in earnest."""
    fake, session = http
    made = await fake.create(RULE_OF_TODAY, a_rule())
    name = "" if method == "POST" else "/r"
    body = {"metadata": {"name": "new"}, "spec": {"taint": {"key": "k", "effect": "None"}}}
    path = f"/apis/resource.k8s.io/v1/devicetaintrules{name}?{query}"
    async with session.request(method, path, json=body) as answer:
        assert answer.status == code
    assert (await fake.list(RULE_OF_TODAY)).items == (made,)


async def test_discovery_lists_each_group_once(http: tuple[FakeCluster, ClientSession]) -> None:
    """A group has all its versions, the preferred one first; custom resources are told too."""
    _, session = http
    async with session.get("/apis") as answer:
        groups = {each["name"]: each for each in (await answer.json())["groups"]}
    versions = [each["version"] for each in groups["resource.k8s.io"]["versions"]]
    assert versions == ["v1", "v1beta2", "v1alpha3"]
    assert groups["resource.k8s.io"]["preferredVersion"]["version"] == "v1"
    assert SAMPLE.group in groups


async def test_requests_are_remembered() -> None:
    """A test can see what was asked, and when, also what was refused."""
    cluster = FakeCluster()
    cluster.faults.fail("get", code=500)
    with pytest.raises(Retryable):
        await cluster.get(NODE, "x")
    await cluster.list(NODE)
    seen = [(each.verb, each.plural) for each in cluster.faults.requests]
    assert seen == [("get", "nodes"), ("list", "nodes")]
    assert cluster.faults.requests[0].at <= asyncio.get_running_loop().time()


# ---------------------------------------------------------------------------------------------------- test data


async def test_put_json_stores_everything() -> None:
    """Tests play scheduler: the status is stored too, over what is there."""
    cluster = FakeCluster()
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    first = await cluster.put_json(claim)
    found = await cluster.get(RESOURCE_CLAIM, "c", "ns")
    assert found is not None
    assert found.status is not None
    assert found.status.allocation is not None
    second = await cluster.put_json({**claim, "status": {}})
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    found = await cluster.get(RESOURCE_CLAIM, "c", "ns")
    assert found is not None
    assert not (found.status and found.status.allocation)


async def test_put_json_obeys_the_rules_too() -> None:
    """What the real server would refuse is refused."""
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {}}
    with pytest.raises(Rejected):
        await FakeCluster().put_json(body)


async def test_finalizers_delay_the_deletion() -> None:
    """An object with finalizers is marked, and goes when the last one is removed."""
    cluster = FakeCluster()
    meta = {"name": "n", "finalizers": ["example.com/wait"]}
    await cluster.put_json({"apiVersion": "v1", "kind": "Node", "metadata": meta})
    node = await cluster.get(NODE, "n")
    assert node is not None
    assert await cluster.delete(NODE, node) is True
    marked = await cluster.get(NODE, "n")
    assert marked is not None
    assert marked.metadata.deletion_timestamp
    await cluster.put_json(
        {"apiVersion": "v1", "kind": "Node", "metadata": {**meta, "finalizers": [], **stamp(marked)}}
    )
    assert await cluster.get(NODE, "n") is None


def stamp(node: object) -> dict[str, str]:
    return {"deletionTimestamp": "2026-01-02T03:04:05Z"} if node else {}


# -------------------------------------------------------------------------------------------- server-side apply

KEYS = st.sampled_from("abc")
TREES = st.recursive(st.integers(0, 2), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)
FIELDS = st.dictionaries(KEYS, TREES, min_size=1, max_size=3)


@given(FIELDS, FIELDS)
def test_apply_is_idempotent(first: dict[str, object], second: dict[str, object]) -> None:
    """Applying the same again changes nothing, whatever was applied before."""
    live, managers = applied({}, first, "one", {})
    live, managers = applied(live, second, "two", managers)
    again, same = applied(live, second, "two", managers)
    assert (again, same) == (live, managers)


@given(FIELDS)
def test_apply_gives_up_what_it_leaves_out(fields: dict[str, object]) -> None:
    """A manager that applies nothing any more leaves no value behind."""
    live, managers = applied({}, fields, "one", {})
    live, _ = applied(live, {}, "one", managers)
    assert list(leaves(live)) == []


def leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [value]


# ------------------------------------------------------------------------------------------------- the command


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The address of ``python -m dra_plugin.testing``."""
    command = (sys.executable, "-m", "dra_plugin.testing", "--disable-gate", "DRADeviceTaints")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    yield (await process.stdout.readline()).decode().strip()
    process.terminate()
    await process.communicate()


async def test_the_command(url: str) -> None:
    """It says its address and serves an API server with the gates that were asked for."""
    async with KubeCluster(plain(url)) as cluster:
        made = await cluster.create(RESOURCE_SLICE, a_slice(RICH))
        assert only(made) == replace(RICH, taints=None)
        with pytest.raises(Conflict):
            await cluster.create(RESOURCE_SLICE, a_slice())
        found = await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": "d.example.com"}))
        assert found.items == (made,)
