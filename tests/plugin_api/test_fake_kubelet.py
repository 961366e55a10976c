"""FakeKubelet: it behaves as the real one where a plugin can notice."""

import asyncio
from pathlib import Path

import pytest

from dra_plugin.health import DeviceHealth, Health, HealthReport
from dra_plugin.latest import Latest
from dra_plugin.testing.kubelet import FakeKubelet
from tests.plugin_api.served_plugin import DRIVER, new_cluster, served, settings

SICK: HealthReport = (DeviceHealth(pool="p", device="d", health=Health.UNHEALTHY, message="hot"),)


async def test_dot_names_and_files_are_ignored(tmp_path: Path) -> None:
    """Only sockets whose names do not begin with a dot are asked."""
    registry = settings(tmp_path).registry
    (registry / "file-reg.sock").touch()
    async with FakeKubelet(registry) as kubelet, served(tmp_path, await new_cluster()) as server:
        plugin = await kubelet.plugin(DRIVER)
        assert plugin.socket == server.sockets[1]
        assert [each.info.name for each in kubelet.plugins.value] == [DRIVER]


async def test_removed_socket_deregisters(tmp_path: Path) -> None:
    """When the server leaves, the kubelet knows the driver no more."""
    settings(tmp_path)
    async with FakeKubelet(tmp_path / "registry") as kubelet:
        async with served(tmp_path, await new_cluster()):
            await kubelet.plugin(DRIVER)
        await kubelet.plugins.wait(lambda plugins: not plugins)
        with pytest.raises(KeyError):
            await kubelet.unprepare(DRIVER, [])


async def test_first_known_version_of_the_plugin_wins(tmp_path: Path) -> None:
    """The plugin's order decides, as in the real kubelet."""
    settings(tmp_path)
    async with FakeKubelet(tmp_path / "registry") as kubelet, served(tmp_path, await new_cluster()):
        assert (await kubelet.plugin(DRIVER)).api == "v1"


async def test_health_arrives_and_goes_with_the_stream(tmp_path: Path) -> None:
    """Reports are kept per driver; the end of a stream drops them."""
    settings(tmp_path)
    health: Latest[HealthReport] = Latest(())
    async with FakeKubelet(tmp_path / "registry") as kubelet:
        async with served(tmp_path, await new_cluster(), health=health):
            await kubelet.plugin(DRIVER)
            health.set(SICK)
            seen = await kubelet.health(DRIVER).wait(bool)
            assert seen[("p", "d")] == SICK[0]
        await kubelet.health(DRIVER).wait(lambda reports: not reports)


async def test_restart_registers_again(tmp_path: Path) -> None:
    """After a restart everything is asked anew, and the plugin sees both."""
    settings(tmp_path)
    async with FakeKubelet(tmp_path / "registry") as kubelet, served(tmp_path, await new_cluster()) as server:
        await server.registered.wait(bool)
        before = await kubelet.plugin(DRIVER)
        await kubelet.restart()
        after = await kubelet.plugin(DRIVER)
        assert after.order > before.order
        async with asyncio.timeout(5):
            await server.registered.wait(bool)
