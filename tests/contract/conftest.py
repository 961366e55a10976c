"""Every implementation of the Cluster port, for one suite: in process, over HTTP, and the real API server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from dra_plugin.cluster import Cluster
from dra_plugin.kube import KubeCluster, from_kubeconfig, plain
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.http import serve_http
from tests.cluster.real import RealCluster, real_cluster
from tests.contract.samples import catalog

__all__ = ["cluster", "real_cluster"]

WATCH = {
    "fake": 2.5,
    "http": 3.0,
    "real": 5.0,
}  # seconds that watches last here; a bookmark comes two seconds before the end


@pytest.fixture(params=["fake", "http", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """One implementation after the other; the real one keeps what other tests left."""
    fake = FakeCluster(catalog=catalog(), watch_seconds=WATCH["fake"])
    if request.param == "fake":
        yield fake
        return
    lasts = WATCH[request.param]
    async with AsyncExitStack() as stack:
        if request.param == "http":
            credentials = plain(await stack.enter_async_context(serve_http(fake)))
        else:
            real: RealCluster = request.getfixturevalue("real_cluster")
            credentials = from_kubeconfig(real.kubeconfig)
        yield await stack.enter_async_context(KubeCluster(credentials, watch_seconds=(lasts, lasts)))
