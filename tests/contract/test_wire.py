"""The wire between kubelet and plugin: one server, asked with the code generated for every version."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import grpc
import grpc.aio
import pytest

from dra_plugin._proto import dra_health_v1_pb2 as health_v1
from dra_plugin._proto import dra_health_v1_pb2_grpc as health_v1_grpc
from dra_plugin._proto import dra_health_v1alpha1_pb2 as health_v1alpha1
from dra_plugin._proto import dra_health_v1alpha1_pb2_grpc as health_v1alpha1_grpc
from dra_plugin._proto import dra_v1_pb2 as dra_v1
from dra_plugin._proto import dra_v1_pb2_grpc as dra_v1_grpc
from dra_plugin._proto import dra_v1beta1_pb2 as dra_v1beta1
from dra_plugin._proto import dra_v1beta1_pb2_grpc as dra_v1beta1_grpc
from dra_plugin._proto import pluginregistration_v1_pb2 as registration
from dra_plugin._proto import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_plugin.health import DeviceHealth, Health
from dra_plugin.latest import Latest
from dra_plugin.server import Server
from dra_plugin.testing import FakeCluster
from tests.plugin_api.served_plugin import DRIVER, add_claim, new_cluster, result, served

HEALTH = (DeviceHealth(pool="p", device="d", health=Health.UNHEALTHY, message="hot", looked_at=7, timeout=9),)


@pytest.fixture
async def cluster() -> FakeCluster:
    return await new_cluster()


@pytest.fixture
async def server(tmp_path: Path, cluster: FakeCluster) -> AsyncIterator[Server]:
    async with served(tmp_path, cluster, health=Latest(HEALTH)) as running:
        yield running


def dialled(socket: Path, authority: str) -> grpc.aio.Channel:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", authority))
    return grpc.aio.insecure_channel(f"unix:{socket}", options=options)


@pytest.mark.parametrize("authority", ["localhost", "percent-encoded", "a b", ""])
async def test_registration_takes_every_authority(server: Server, authority: str) -> None:
    """The kubelet dials the registration socket with its percent-encoded path as authority."""
    path = server.sockets[1]
    text = quote(str(path), safe="") if authority == "percent-encoded" else authority
    async with dialled(path, text or "localhost") as channel:
        info = await registration_grpc.RegistrationStub(channel).GetInfo(registration.InfoRequest())
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(server.sockets[0]))
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


async def test_notify(server: Server) -> None:
    """Both outcomes of a registration reach the server."""
    async with dialled(server.sockets[1], "localhost") as channel:
        stub = registration_grpc.RegistrationStub(channel)
        await stub.NotifyRegistrationStatus(registration.RegistrationStatus(error="no"))
        assert (server.registered.value, server.refusal.value) == (False, "no")
        await stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True))
        assert (server.registered.value, server.refusal.value) == (True, None)


async def test_dra_v1(server: Server, cluster: FakeCluster) -> None:
    """Prepare and Unprepare in v1: an entry for each UID, share ids passed through."""
    ref = await add_claim(cluster, "c", result(shareID="0c1d", request="gpu/small"))
    claims = [dra_v1.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid), dra_v1.Claim(uid="x", name="none")]
    async with dialled(server.sockets[0], "localhost") as channel:
        stub = dra_v1_grpc.DRAPluginStub(channel)
        prepared = await stub.NodePrepareResources(dra_v1.NodePrepareResourcesRequest(claims=claims))
        undone = await stub.NodeUnprepareResources(dra_v1.NodeUnprepareResourcesRequest(claims=claims))
    assert set(prepared.claims) == set(undone.claims) == {ref.uid, "x"}
    (device,) = prepared.claims[ref.uid].devices
    assert (list(device.request_names), device.pool_name, device.device_name) == (["gpu"], "node-gpu", "gpu-0")
    assert (list(device.cdi_device_ids), device.share_id) == ([f"k8s.{DRIVER}/device=gpu-0"], "0c1d")
    assert prepared.claims["x"].error
    assert [entry.error for entry in undone.claims.values()] == ["", ""]


async def test_dra_v1beta1(server: Server, cluster: FakeCluster) -> None:
    """The same in v1beta1, whose messages know no share id: nothing unknown is sent."""
    ref = await add_claim(cluster, "c", result(shareID="0c1d"))
    claims = [dra_v1beta1.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)]
    async with dialled(server.sockets[0], "localhost") as channel:
        stub = dra_v1beta1_grpc.DRAPluginStub(channel)
        prepared = await stub.NodePrepareResources(dra_v1beta1.NodePrepareResourcesRequest(claims=claims))
        undone = await stub.NodeUnprepareResources(dra_v1beta1.NodeUnprepareResourcesRequest(claims=claims))
    (device,) = prepared.claims[ref.uid].devices
    known = dra_v1beta1.Device(
        request_names=["gpu"],
        pool_name="node-gpu",
        device_name="gpu-0",
        cdi_device_ids=[f"k8s.{DRIVER}/device=gpu-0"],
    )
    assert device.SerializeToString() == known.SerializeToString()
    assert undone.claims[ref.uid].error == ""


async def test_health_v1(server: Server) -> None:
    """The v1 stream begins with a report at once."""
    async with dialled(server.sockets[0], "localhost") as channel:
        call = health_v1_grpc.DRAResourceHealthStub(channel).NodeWatchResources(health_v1.NodeWatchResourcesRequest())
        report = await call.read()
        call.cancel()
    assert isinstance(report, health_v1.NodeWatchResourcesResponse)
    (device,) = report.devices
    assert (device.device.pool_name, device.device.device_name, device.health) == ("p", "d", health_v1.UNHEALTHY)
    assert (device.message, device.last_updated_time, device.health_check_timeout_seconds) == ("hot", 7, 9)


async def test_health_v1alpha1(server: Server) -> None:
    """Kubelets before 1.37 read the same under the older name."""
    request = health_v1alpha1.NodeWatchResourcesRequest()
    async with dialled(server.sockets[0], "localhost") as channel:
        call = health_v1alpha1_grpc.DRAResourceHealthStub(channel).NodeWatchResources(request)
        report = await call.read()
        call.cancel()
    assert isinstance(report, health_v1alpha1.NodeWatchResourcesResponse)
    assert [(each.device.device_name, each.health) for each in report.devices] == [("d", health_v1alpha1.UNHEALTHY)]
