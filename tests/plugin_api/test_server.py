"""server: sockets, registration as state, publishing that follows, hand-over, drain."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from dra_plugin.claims import ClaimRef
from dra_plugin.errors import SetupError
from dra_plugin.files import SOCKET_PATH_LIMIT
from dra_plugin.health import DeviceHealth, Health
from dra_plugin.latest import Latest
from dra_plugin.resources import RESOURCE_SLICE, ResourceSlice
from dra_plugin.server import Settings, socket_paths
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.kubelet import FakeKubelet
from tests.plugin_api.served_plugin import DRIVER, Prepared, add_claim, new_cluster, result, served, settings, until


async def slices(cluster: FakeCluster) -> tuple[ResourceSlice, ...]:
    return (await cluster.list(RESOURCE_SLICE)).items


async def published(cluster: FakeCluster) -> None:
    await until(lambda: slices(cluster))


def sockets_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_socket())


async def test_entering_means_both_sockets_listen(tmp_path: Path) -> None:
    """Both sockets are there under the Go helper's names, for the owner only; nothing hidden stays; then both go."""
    async with served(tmp_path, await new_cluster()) as server:
        assert sockets_below(tmp_path) == ["dra-pod-1.sock", f"{DRIVER}-pod-1-reg.sock"]
        for path in server.sockets:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        assert not server.registered.value
    assert sockets_below(tmp_path) == []
    assert not list((tmp_path / "registry").iterdir())


async def test_no_task_outlives_the_server(tmp_path: Path) -> None:
    """After leaving, the tasks of before are all there is."""
    before = asyncio.all_tasks()
    cluster = await new_cluster()
    async with FakeKubelet(tmp_path / "registry") as kubelet, served(tmp_path, cluster):
        await kubelet.plugin(DRIVER)
    await asyncio.sleep(0.05)  # gRPC's own tasks end in their next steps
    assert {task for task in asyncio.all_tasks() - before if "grpc" not in repr(task.get_coro())} == set()


async def test_published_only_once_registered(tmp_path: Path) -> None:
    """Slices come with the kubelet's Notify, not before; they stay when the server leaves."""
    cluster = await new_cluster()
    async with served(tmp_path, cluster) as server:
        await asyncio.sleep(0.1)
        assert await slices(cluster) == ()
        async with FakeKubelet(tmp_path / "registry"):
            await server.registered.wait(bool)
            await published(cluster)
        await server.registered.wait(lambda known: not known)
    assert len(await slices(cluster)) == 1


async def test_prepare_and_unprepare_through_the_sockets(tmp_path: Path) -> None:
    """A whole round as the kubelet makes it, in both versions."""
    cluster, plugin = await new_cluster(), Prepared()
    ref = await add_claim(cluster, "c", result("gpu-0", shareID="0c1d"))
    async with served(tmp_path, cluster, plugin), FakeKubelet(tmp_path / "registry") as kubelet:
        await kubelet.plugin(DRIVER)
        for version, share in (("v1", "0c1d"), ("v1beta1", None)):
            (device,) = (await kubelet.prepare(DRIVER, [ref], version))[ref.uid].devices
            assert (device.device, device.requests, device.share_id) == ("gpu-0", ("gpu",), share)
            assert device.cdi_ids == (f"k8s.{DRIVER}/device=gpu-0",)
            assert set(plugin.held) == {ref.uid}
            assert (await kubelet.unprepare(DRIVER, [ref], version))[ref.uid].error == ""
            assert plugin.held == {}


async def test_kubelet_restart(tmp_path: Path) -> None:
    """Gone kubelet: not registered, yet the newest. New kubelet (it wipes the slices): registered, slices back."""
    cluster = await new_cluster()
    kubelet = FakeKubelet(tmp_path / "registry", cluster=cluster, node_name="node-a")
    health = DeviceHealth(pool="p", device="d", health=Health.HEALTHY)
    async with served(tmp_path, cluster, health=Latest((health,))) as server, kubelet:
        await kubelet.health(DRIVER).wait(bool)  # the stream is there, whose end tells that the kubelet went
        await published(cluster)
        (before,) = await slices(cluster)
        await kubelet.stop()
        await server.registered.wait(lambda known: not known)
        assert server.newest.value
        kubelet.start()
        await server.registered.wait(bool)
        await published(cluster)
        (after,) = await slices(cluster)
        assert after.metadata.uid != before.metadata.uid


async def test_refusal_is_told(tmp_path: Path) -> None:
    """A refused registration leaves a readable reason, and nothing is published."""
    cluster = await new_cluster()
    async with served(tmp_path, cluster) as server, FakeKubelet(tmp_path / "registry", refuse=lambda _: "too old"):
        assert await server.refusal.wait(bool) == "too old"
        assert not server.registered.value
        assert await slices(cluster) == ()


@pytest.mark.parametrize("which", [0, 1])
async def test_vanished_socket_is_put_back(tmp_path: Path, which: int) -> None:
    """Somebody cleans the folder: the socket comes back, and the kubelet's calls go on."""
    cluster = await new_cluster()
    ref = await add_claim(cluster, "c", result())
    async with served(tmp_path, cluster) as server, FakeKubelet(tmp_path / "registry") as kubelet:
        await kubelet.plugin(DRIVER)
        server.sockets[which].unlink()
        await until(server.sockets[which].exists)
        await server.registered.wait(bool)
        await kubelet.plugin(DRIVER)
        assert not (await kubelet.prepare(DRIVER, [ref]))[ref.uid].error


async def test_hand_over(tmp_path: Path) -> None:
    """Two instances: the newer gets the calls and publishes; the older drains and takes only its own sockets along."""
    cluster, old, new = await new_cluster(), Prepared(), Prepared()
    ref = await add_claim(cluster, "c", result())
    async with FakeKubelet(tmp_path / "registry") as kubelet:
        async with served(tmp_path, cluster, old, "pod-1") as one:
            await one.registered.wait(bool)
            await published(cluster)
            (before,) = await slices(cluster)
            younger = served(tmp_path, cluster, new, "pod-2")
            two = await younger.__aenter__()
            await two.registered.wait(bool)
            await kubelet.plugins.wait(lambda plugins: len(plugins) == 2)
            await kubelet.prepare(DRIVER, [ref])
            assert (set(old.held), set(new.held)) == (set(), {ref.uid})
        try:
            assert sockets_below(tmp_path) == ["dra-pod-2.sock", f"{DRIVER}-pod-2-reg.sock"]
            assert two.registered.value
            assert (await slices(cluster))[0].metadata.uid == before.metadata.uid
            await kubelet.plugin(DRIVER)
            assert not (await kubelet.unprepare(DRIVER, [ref]))[ref.uid].error
        finally:
            await younger.__aexit__(None, None, None)


async def test_the_newest_instance_knows_that_it_is(tmp_path: Path) -> None:
    """One at a time may write for the driver: the newer one from its registration, the older one when that is gone."""
    cluster = await new_cluster()
    async with FakeKubelet(tmp_path / "registry"), served(tmp_path, cluster, instance="pod-1") as one:
        assert not one.newest.value
        await one.newest.wait(bool)
        assert one.registered.value
        async with served(tmp_path, cluster, instance="pod-2") as two:
            await two.newest.wait(bool)
            assert not one.newest.value
        assert not two.newest.value
        await one.newest.wait(bool)
    assert not one.newest.value


async def test_drain_waits_for_running_calls(tmp_path: Path) -> None:
    """A call that runs when the server leaves gets its answer, though the kubelet drops calls at deregistration."""
    cluster, plugin = await new_cluster(), Prepared()
    ref = await add_claim(cluster, "c", result())
    async with FakeKubelet(tmp_path / "registry") as kubelet, asyncio.TaskGroup() as group:
        async with served(tmp_path, cluster, plugin, health=Latest(())) as server:
            await kubelet.plugin(DRIVER)
            plugin.wait.set(False)
            call = group.create_task(kubelet.prepare(DRIVER, [ref]))
            await until(lambda: server.in_flight)
            group.create_task(release(plugin))
        assert (await call)[ref.uid].error == ""


async def release(plugin: Prepared) -> None:
    """Let the plugin go on a little later, that is while the server leaves."""
    await asyncio.sleep(0.3)
    plugin.wait.set(True)


async def test_drain_ends(tmp_path: Path) -> None:
    """A call that never ends is cut off after the drain time, and its caller is told why."""
    cluster, plugin = await new_cluster(), Prepared()
    ref = await add_claim(cluster, "c", result())
    plugin.wait.set(False)
    async with FakeKubelet(tmp_path / "registry") as kubelet, asyncio.TaskGroup() as group:
        async with served(tmp_path, cluster, plugin, drain=0.1) as server:
            await kubelet.plugin(DRIVER)
            call = group.create_task(kubelet.prepare(DRIVER, [ref]))
            await until(lambda: server.in_flight)
        assert "stopping" in (await call)[ref.uid].error


async def test_client_that_leaves_cancels_nothing(tmp_path: Path) -> None:
    """After the kubelet's deadline the work goes on; the repeated call joins it and answers."""
    cluster, plugin = await new_cluster(), Prepared()
    ref = await add_claim(cluster, "c", result())
    plugin.wait.set(False)
    async with served(tmp_path, cluster, plugin) as server, FakeKubelet(tmp_path / "registry") as kubelet:
        await kubelet.plugin(DRIVER)
        late = await kubelet.prepare(DRIVER, [ref], timeout=3.0)
        assert "next call takes it up" in late[ref.uid].error
        async with asyncio.TaskGroup() as group:
            call = group.create_task(kubelet.prepare(DRIVER, [ref]))
            await asyncio.sleep(0.1)
            call.cancel()
            again = group.create_task(kubelet.prepare(DRIVER, [ref]))
            await asyncio.sleep(0.1)
            assert plugin.begun == server.in_flight == 1
            plugin.wait.set(True)
            assert not (await again)[ref.uid].error


async def test_live_instance_is_not_robbed(tmp_path: Path) -> None:
    """A second instance under the same name is refused; the first one goes on and keeps its sockets."""
    cluster = await new_cluster()
    async with served(tmp_path, cluster) as first, FakeKubelet(tmp_path / "registry") as kubelet:
        with pytest.raises(SetupError, match="another live instance"):
            async with served(tmp_path, cluster):
                pass
        await kubelet.plugin(DRIVER)
        assert all(path.exists() for path in first.sockets)


async def test_leftovers_of_a_killed_instance(tmp_path: Path) -> None:
    """Dead sockets of this driver are removed and the new names are others; what is not ours stays."""
    values = settings(tmp_path)
    values.folder.mkdir()
    dead = [values.registry / f"{DRIVER}-pod-1-reg.sock", values.folder / "dra-pod-1.sock"]
    foreign = values.registry / "other.example.com-x-reg.sock"
    for path in (*dead, foreign):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    async with served(tmp_path, await new_cluster()) as served_again:
        assert not any(path.exists() for path in dead)
        assert foreign.exists()
        assert served_again.sockets[1] != dead[0]
    assert sockets_below(tmp_path) == [foreign.name]


@pytest.mark.parametrize("missing", ["registry", "folder"])
async def test_missing_folder_is_named(tmp_path: Path, missing: str) -> None:
    """The kubelet's folders are not ours to make; the error says which one is not there."""
    nowhere = tmp_path / "nowhere" / "gpu"
    with pytest.raises(SetupError, match="nowhere"):
        async with served(tmp_path, await new_cluster(), None, "pod-1", **{missing: nowhere}):
            pass
    assert not nowhere.exists()


def named(driver: str, folder: Path) -> Settings:
    uid = "0b1c2d3e-0000-4000-8000-123456789abc"
    return Settings(driver=driver, node_name="n", registry=folder, folder=folder / driver, instance=uid)


@pytest.mark.parametrize("length", range(3, 64, 4))
def test_socket_names_always_fit(length: int) -> None:
    """With the default folders every legal driver name gets paths that can be bound."""
    driver = "d" * length
    values = named(driver, Path("/var/lib/kubelet/plugins_registry"))
    values = Settings(
        driver=driver,
        node_name="n",
        registry=values.registry,
        folder=Path("/var/lib/kubelet/plugins") / driver,
        instance=values.instance,
    )
    for start in ("", "abc123"):
        paths = socket_paths(values, start)
        assert all(len(os.fsencode(path)) <= SOCKET_PATH_LIMIT for path in paths)
    assert socket_paths(values) != socket_paths(values, "abc123")


async def test_socket_path_too_long(tmp_path: Path) -> None:
    """Where not even the hashed name fits, the error names the limit and the path."""
    with pytest.raises(SetupError, match=r"xxx.*107 bytes"):
        socket_paths(named("gpu.example.com", tmp_path / ("x" * 100)))


async def test_body_error_comes_out_bare(tmp_path: Path) -> None:
    """An error of whoever uses the server is not wrapped, and the sockets go all the same."""
    with pytest.raises(ZeroDivisionError):
        async with served(tmp_path, await new_cluster()):
            _ = 1 / 0
    assert sockets_below(tmp_path) == []


async def test_unregistered_driver_is_an_error_of_the_test(tmp_path: Path) -> None:
    """The fake kubelet says what the real one says."""
    (tmp_path / "registry").mkdir()
    async with FakeKubelet(tmp_path / "registry") as kubelet:
        with pytest.raises(KeyError, match="not registered"):
            await kubelet.prepare(DRIVER, [ClaimRef("n", "c", "u")])


async def test_bug_in_a_plugin_is_the_claims_error(tmp_path: Path) -> None:
    """An exception that is no PluginError reaches the kubelet as this claim's error, not as a broken call."""

    class Buggy(Prepared):
        async def unprepare(self, ref: ClaimRef) -> None:
            raise KeyError(ref.uid)

    async with served(tmp_path, await new_cluster(), Buggy()), FakeKubelet(tmp_path / "registry") as kubelet:
        await kubelet.plugin(DRIVER)
        answer = await kubelet.unprepare(DRIVER, [ClaimRef("n", "c", "u")])
        assert answer["u"].error == "internal error: KeyError: 'u'"


def listeners_in(folder: Path) -> int:
    """Return how many sockets of this process and others listen that were bound in the folder."""
    lines = Path("/proc/net/unix").read_text(encoding="ascii").splitlines()
    return sum(f"{folder}/" in line and line.split()[3] == "00010000" for line in lines)


async def test_sockets_that_are_put_back_do_not_pile_up(tmp_path: Path) -> None:
    """However often the folders are cleaned, each has the new socket and at most the last one before it."""
    async with served(tmp_path, await new_cluster()) as server:
        for _ in range(4):
            for path in server.sockets:
                path.unlink()
            for path in server.sockets:
                await until(path.exists)
        assert [listeners_in(path.parent) for path in server.sockets] == [2, 2]


async def test_leftovers_that_do_not_tell_their_driver(tmp_path: Path) -> None:
    """Old dead sockets under the shortest name, or under a hidden one, are removed; young ones may yet be taken up."""
    values = settings(tmp_path)
    names = ("dra-" + "x" * 22 + "-reg.sock", ".dra-0a1b2c3d", "dra-" + "y" * 22 + "-reg.sock", "dra-x-reg.sock")
    paths = [values.registry / name for name in names]
    for path in paths:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    for path in (*paths[:2], paths[3]):
        os.utime(path, (1, 1))
    async with served(tmp_path, await new_cluster()):
        assert [path.exists() for path in paths] == [False, False, True, True]


async def test_impossible_driver_name(tmp_path: Path) -> None:
    """A name that no slice can carry is refused at the start, with the rule."""
    with pytest.raises(SetupError, match="lower-case DNS subdomain"):
        async with served(tmp_path, await new_cluster(), driver="GPU.example.com"):
            pass
    assert sockets_below(tmp_path) == []
