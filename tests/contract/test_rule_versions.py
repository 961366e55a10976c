"""DeviceTaintRules in every version that the library knows, on fakes that serve them all.

A stock 1.37 serves the newest only; tests/cluster/test_launcher.py holds the same against one that serves them all.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from dra_plugin.cluster import Cluster
from dra_plugin.kube import KubeCluster, plain
from dra_plugin.resources import DEVICE_TAINT_RULES
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster import Catalog
from dra_plugin.testing.cluster.catalog import OPTIONAL_APIS
from dra_plugin.testing.cluster.http import serve_http
from tests.contract.rule_life import Rules, check_life


@pytest.fixture(params=["fake", "http"])
async def all_versions(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A server with every version, in process or over HTTP."""
    fake = FakeCluster(catalog=Catalog(apis=OPTIONAL_APIS))
    async with AsyncExitStack() as stack:
        if request.param == "fake":
            yield fake
        else:
            credentials = plain(await stack.enter_async_context(serve_http(fake)))
            yield await stack.enter_async_context(KubeCluster(credentials))


@pytest.mark.parametrize("kind", DEVICE_TAINT_RULES, ids=lambda kind: kind.version)
async def test_a_rule_lives_in_each_version(all_versions: Cluster, kind: Rules) -> None:
    """Whatever version it is written in, it is the same in all; its time is renewed by another effect only."""
    await check_life(all_versions, kind, "life")
