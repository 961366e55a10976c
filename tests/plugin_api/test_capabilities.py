"""What a server can do: versions of a kind, gates found by dry run. A server of today is in the contract suite."""

from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from dra_plugin.capabilities import keeps_taints, served
from dra_plugin.cluster import Cluster
from dra_plugin.errors import Rejected, Retryable
from dra_plugin.kube import KubeCluster, plain
from dra_plugin.resources import DEVICE_TAINT_RULE, DEVICE_TAINT_RULES, Kind, ResourceSlice
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster import Catalog
from dra_plugin.testing.cluster.http import serve_http

T = TypeVar("T")
DRIVER = "gpu.example.com"
NEW, OLD, OLDEST = (kind.api_version for kind in DEVICE_TAINT_RULES)
RULES = DEVICE_TAINT_RULE.plural


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture(params=["fake", "http"])
async def cluster(request: pytest.FixtureRequest, fake: FakeCluster) -> AsyncIterator[Cluster]:
    """The fake server, in process and over HTTP."""
    if request.param == "fake":
        yield fake
        return
    async with serve_http(fake) as url, KubeCluster(plain(url), patience=1.0) as client:
        yield client


@pytest.mark.parametrize(
    ("apis", "withdrawn", "found"),
    [
        ([], [], NEW),
        ([OLD, OLDEST], [], NEW),
        ([OLD, OLDEST], [NEW], OLD),
        ([OLDEST], [NEW], OLDEST),
        ([], [NEW], None),
    ],
    ids=["1.37", "all", "1.36 with both", "1.35 with alpha", "1.36"],
)
async def test_the_newest_version_that_is_served(
    cluster: Cluster, fake: FakeCluster, apis: list[str], withdrawn: list[str], found: str | None
) -> None:
    """The preferred version is taken where it is served, else the next one; none is an answer too."""
    fake.catalog = Catalog(apis=apis)
    for api in withdrawn:
        fake.catalog.withdraw(RULES, api)
    kind = await served(cluster, DEVICE_TAINT_RULES)
    assert (kind and kind.api_version) == found


@pytest.mark.parametrize("code", [403, 500, 0])
async def test_a_server_that_does_not_say(cluster: Cluster, fake: FakeCluster, code: int) -> None:
    """Whatever keeps the server from answering, it may be asked again; it is not taken for "not served"."""
    fake.faults.fail("discover", code=code, times=2)  # aiohttp repeats a GET once when the connection breaks
    with pytest.raises(Retryable):
        await served(cluster, DEVICE_TAINT_RULES)
    fake.faults.clear()
    assert await served(cluster, DEVICE_TAINT_RULES) == DEVICE_TAINT_RULE


@pytest.mark.parametrize(
    ("gates", "kept"), [([], True), (["DRADeviceTaints"], False), (["DRAPartitionableDevices"], True)]
)
async def test_taints_are_kept_or_dropped(cluster: Cluster, fake: FakeCluster, gates: list[str], kept: bool) -> None:
    """The gate of taints decides, and the question stores nothing."""
    fake.store.disable_gates(gates)
    version = fake.store.version.value
    assert await keeps_taints(cluster, DRIVER, "node-a") is kept
    assert fake.store.version.value == version


async def test_a_gate_that_is_switched_on_is_found(cluster: Cluster, fake: FakeCluster) -> None:
    """The answer is that of now: nothing is remembered."""
    fake.store.disable_gates(["DRADeviceTaints"])
    assert await keeps_taints(cluster, DRIVER, "node-a") is False
    fake.store.disable_gates([])
    assert await keeps_taints(cluster, DRIVER, "node-a") is True


@pytest.mark.parametrize(("code", "expected"), [(403, Rejected), (500, Retryable)])
async def test_a_question_that_fails_is_no_answer(
    cluster: Cluster, fake: FakeCluster, code: int, expected: type[Exception]
) -> None:
    """Nobody is told that taints are dropped because a request failed."""
    fake.faults.fail("create", code=code)
    with pytest.raises(expected):
        await keeps_taints(cluster, DRIVER, "node-a")


async def test_the_probe_speaks_for_its_driver_and_node_only() -> None:
    """It names the node and the driver that ask, as an admission policy for slices demands, whatever their length."""
    asked: list[ResourceSlice] = []
    driver, node = f"{'d' * 51}.example.com", f"{'n' * 60}.{'m' * 60}.example.com"

    class Policy(FakeCluster):
        async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False) -> T:
            assert dry_run
            assert isinstance(obj, ResourceSlice)
            asked.append(obj)
            return await super().create(kind, obj, dry_run=dry_run)

    assert await keeps_taints(Policy(), driver, node) is True
    assert [(each.spec.driver, each.spec.node_name, each.spec.all_nodes) for each in asked] == [(driver, node, None)]
