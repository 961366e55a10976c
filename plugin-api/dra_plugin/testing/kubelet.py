"""FakeKubelet: what the kubelet of a node does with DRA plugins, in this process.

It looks into the registration folder for sockets, asks them with a percent-encoded path as ``:authority`` as the real
one does, validates, dials the endpoint, says "registered", opens a health stream, and sends the calls of a driver to
its most recently registered instance that is connected. Source of the rules: ``pkg/kubelet/pluginmanager`` and
``pkg/kubelet/cm/dra`` of Kubernetes 1.37.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import grpc
import grpc.aio
import msgspec

from dra_plugin._proto import dra_health_v1_pb2 as health_pb
from dra_plugin._proto import dra_health_v1_pb2_grpc as health_grpc
from dra_plugin._proto import dra_v1_pb2 as dra_pb
from dra_plugin._proto import dra_v1_pb2_grpc as dra_grpc
from dra_plugin._proto import dra_v1beta1_pb2 as beta_pb
from dra_plugin._proto import dra_v1beta1_pb2_grpc as beta_grpc
from dra_plugin._proto import pluginregistration_v1_pb2 as registration_pb
from dra_plugin._proto import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_plugin.claims import ClaimRef
from dra_plugin.cluster import Cluster, Selector
from dra_plugin.health import DeviceHealth, Health
from dra_plugin.latest import Latest
from dra_plugin.plugin import PreparedDevice
from dra_plugin.resources import RESOURCE_SLICE

__all__ = ["Answer", "FakeKubelet", "RegisteredPlugin"]

_PERIOD = 0.02  # seconds between two looks at the folder; the real one needs about one
_REOPEN = 0.05  # seconds until an ended health stream is opened again; the real one waits 5
_DIAL = 10.0
_KNOWN = {"v1.DRAPlugin": "v1", "v1beta1.DRAPlugin": "v1beta1"}
# One connection per channel: gRPC would share them within a process, and a vanished socket would seem to live on.
_ALONE = ("grpc.use_local_subchannel_pool", 1)


class Answer(msgspec.Struct, frozen=True):
    """What came back for one claim; ``error`` is empty for a success."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class RegisteredPlugin(msgspec.Struct, frozen=True, eq=False):
    """One registered instance: ``info`` as it introduced itself, ``api`` the DRA version chosen, channel to it."""

    socket: Path
    inode: int
    info: registration_pb.PluginInfo
    api: str
    channel: grpc.aio.Channel
    order: int


class FakeKubelet:
    """``async with FakeKubelet(registry) as kubelet``: entering starts it, leaving ends it as a kubelet ends."""

    def __init__(
        self,
        registry: Path,
        *,
        refuse: Callable[[registration_pb.PluginInfo], str] = lambda _: "",
        cluster: Cluster | None = None,
        node_name: str = "",
    ) -> None:
        """Watch ``registry``.

        ``refuse`` may give a reason not to register a plugin. With ``cluster`` each start deletes all slices of the
        node ``node_name`` first, as the real kubelet does.
        """
        self._registry = registry
        self._refuse = refuse
        self._cluster = cluster
        self._node_name = node_name
        self._order = 0
        self._group: asyncio.TaskGroup | None = None
        self._life: asyncio.Task[None] | None = None
        self.plugins: Latest[tuple[RegisteredPlugin, ...]] = Latest(())
        """The registered instances, in the order of their registration."""
        self._health: dict[str, Latest[Mapping[tuple[str, str], DeviceHealth]]] = {}

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._group is None:
            return
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    def start(self) -> None:
        """Begin to look for plugins."""
        if self._group is None:
            raise RuntimeError("enter the FakeKubelet first")
        self._life = self._group.create_task(self._run())

    async def stop(self) -> None:
        """End as a kubelet that is stopped: connections and streams break, nobody is told."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
            self._life = None

    async def restart(self) -> None:
        """Stop and start again: everything is asked anew, in random order."""
        await self.stop()
        self.start()

    async def plugin(self, driver: str, timeout: float = 10.0) -> RegisteredPlugin:  # noqa: ASYNC109 - how long a test waits
        """Return the instance that is asked for ``driver``, waiting until there is one."""
        async with asyncio.timeout(timeout):
            await self.plugins.wait(lambda plugins: any(each.info.name == driver for each in plugins))
        return self._chosen(driver)

    async def prepare(
        self,
        driver: str,
        refs: Iterable[ClaimRef],
        version: str = "",
        timeout: float = 45.0,  # noqa: ASYNC109 - the call's deadline
    ) -> Mapping[str, Answer]:
        """Call NodePrepareResources, in the chosen version or in ``version`` (v1, v1beta1); answers by claim UID.

        Raises ``grpc.aio.AioRpcError`` as the call does, KeyError when the driver is not registered.
        """
        plugin = self._chosen(driver)
        if (version or plugin.api) == "v1":
            stub, request = dra_grpc.DRAPluginStub(plugin.channel), dra_pb.NodePrepareResourcesRequest(claims=_v1(refs))
            answer = await stub.NodePrepareResources(request, timeout=timeout)
            return {uid: Answer(_devices(entry.devices), entry.error) for uid, entry in answer.claims.items()}
        beta, asked = beta_grpc.DRAPluginStub(plugin.channel), beta_pb.NodePrepareResourcesRequest(claims=_beta(refs))
        replied = await beta.NodePrepareResources(asked, timeout=timeout)
        return {uid: Answer(_devices(entry.devices), entry.error) for uid, entry in replied.claims.items()}

    async def unprepare(
        self,
        driver: str,
        refs: Iterable[ClaimRef],
        version: str = "",
        timeout: float = 45.0,  # noqa: ASYNC109 - the call's deadline
    ) -> Mapping[str, Answer]:
        """Call NodeUnprepareResources; answers by claim UID. Raises as ``prepare`` does."""
        plugin = self._chosen(driver)
        if (version or plugin.api) == "v1":
            stub, request = (
                dra_grpc.DRAPluginStub(plugin.channel),
                dra_pb.NodeUnprepareResourcesRequest(claims=_v1(refs)),
            )
            answer = await stub.NodeUnprepareResources(request, timeout=timeout)
            return {uid: Answer((), entry.error) for uid, entry in answer.claims.items()}
        beta, asked = beta_grpc.DRAPluginStub(plugin.channel), beta_pb.NodeUnprepareResourcesRequest(claims=_beta(refs))
        replied = await beta.NodeUnprepareResources(asked, timeout=timeout)
        return {uid: Answer((), entry.error) for uid, entry in replied.claims.items()}

    def health(self, driver: str) -> Latest[Mapping[tuple[str, str], DeviceHealth]]:
        """Return what the driver's streams reported, by (pool, device); all of it goes when any of them ends."""
        return self._health.setdefault(driver, Latest({}))

    def _chosen(self, driver: str) -> RegisteredPlugin:
        instances = [each for each in self.plugins.value if each.info.name == driver]
        if not instances:
            raise KeyError(f"DRA driver {driver} is not registered")
        connected = [each for each in instances if each.channel.get_state() is grpc.ChannelConnectivity.READY]
        return max(connected or instances, key=lambda each: each.order)

    async def _run(self) -> None:
        await self._wipe()
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    await self._look(group)
                    await asyncio.sleep(_PERIOD)
            finally:
                gone = self.plugins.value
                self.plugins.set(())
                for plugin in gone:
                    await plugin.channel.close()
                for latest in self._health.values():
                    latest.set({})

    async def _wipe(self) -> None:
        if self._cluster is None:
            return
        mine = await self._cluster.list(RESOURCE_SLICE, Selector(fields={"spec.nodeName": self._node_name}))
        for stored in mine.items:
            await self._cluster.delete(RESOURCE_SLICE, stored)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        sockets = _sockets(self._registry)
        for plugin in self.plugins.value:
            if sockets.get(plugin.socket) != plugin.inode:
                self.plugins.set(tuple(each for each in self.plugins.value if each is not plugin))
                await plugin.channel.close()
        known = {plugin.socket for plugin in self.plugins.value}
        for socket in random.sample(sorted(sockets.keys() - known), len(sockets.keys() - known)):
            try:
                await self._register(socket, sockets[socket], group)
            except (grpc.aio.AioRpcError, TimeoutError):
                continue  # tried again with the next look

    async def _register(self, socket: Path, inode: int, group: asyncio.TaskGroup) -> None:
        authority = ("grpc.default_authority", quote(str(socket), safe=""))
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=(_ALONE, authority)) as channel:
            stub = registration_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(registration_pb.InfoRequest(), timeout=1, wait_for_ready=True)
            api = next((_KNOWN[version] for version in info.supported_versions if version in _KNOWN), "")
            refusal = self._refuse(info) or self._invalid(info, api)
            if refusal:
                status = registration_pb.RegistrationStatus(plugin_registered=False, error=refusal)
                await stub.NotifyRegistrationStatus(status, timeout=5)
                return
            plugin = await self._dial(socket, inode, info, api)
            try:
                await stub.NotifyRegistrationStatus(
                    registration_pb.RegistrationStatus(plugin_registered=True), timeout=5
                )
            except BaseException:
                await plugin.channel.close()
                raise
        self.plugins.set((*self.plugins.value, plugin))
        group.create_task(self._stream(plugin))

    def _invalid(self, info: registration_pb.PluginInfo, api: str) -> str:
        if info.type != "DRAPlugin":
            return f"no handler registered for plugin type: {info.type}"
        if not api:
            return f"none of the versions {', '.join(info.supported_versions)} is supported"
        if any(each.info.name == info.name and each.info.endpoint == info.endpoint for each in self.plugins.value):
            return f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}"
        return ""

    async def _dial(self, socket: Path, inode: int, info: registration_pb.PluginInfo, api: str) -> RegisteredPlugin:
        channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}", options=(_ALONE,))
        try:
            async with asyncio.timeout(_DIAL):
                await channel.channel_ready()
        except BaseException:
            await channel.close()
            raise
        self._order += 1
        return RegisteredPlugin(socket, inode, info, api, channel, self._order)

    async def _stream(self, plugin: RegisteredPlugin) -> None:
        """Keep a health stream while the plugin is registered; an end of it drops all the health of the driver."""
        if "v1.DRAResourceHealth" not in plugin.info.supported_versions:
            return
        latest = self.health(plugin.info.name)
        stub = health_grpc.DRAResourceHealthStub(plugin.channel)
        while plugin in self.plugins.value:
            try:
                async for report in stub.NodeWatchResources(health_pb.NodeWatchResourcesRequest()):
                    latest.set({**latest.value, **_health(report)})
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return
            except (asyncio.CancelledError, grpc.aio.UsageError):
                if plugin in self.plugins.value:
                    raise  # else it was our own channel that closed
            latest.set({})
            await asyncio.sleep(_REOPEN)


def _sockets(registry: Path) -> dict[Path, int]:
    """Return the sockets in the folder, with their inodes; names with a leading dot are not for the kubelet."""
    found: dict[Path, int] = {}
    for path in registry.rglob("*"):
        try:
            if path.is_socket() and not path.name.startswith("."):
                found[path] = path.stat().st_ino
        except OSError:
            continue
    return found


def _v1(refs: Iterable[ClaimRef]) -> list[dra_pb.Claim]:
    return [dra_pb.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]


def _beta(refs: Iterable[ClaimRef]) -> list[beta_pb.Claim]:
    return [beta_pb.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]


def _devices(devices: Iterable[dra_pb.Device] | Iterable[beta_pb.Device]) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            requests=tuple(device.request_names),
            pool=device.pool_name,
            device=device.device_name,
            cdi_ids=tuple(device.cdi_device_ids),
            share_id=device.share_id if isinstance(device, dra_pb.Device) and device.HasField("share_id") else None,
        )
        for device in devices
    )


def _health(report: health_pb.NodeWatchResourcesResponse) -> dict[tuple[str, str], DeviceHealth]:
    return {
        (each.device.pool_name, each.device.device_name): DeviceHealth(
            pool=each.device.pool_name,
            device=each.device.device_name,
            health=Health(each.health),
            message=each.message,
            looked_at=each.last_updated_time,
            timeout=each.health_check_timeout_seconds,
        )
        for each in report.devices
    }
