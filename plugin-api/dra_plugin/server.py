"""serving(): a plugin's sockets, its registration as state, and publishing that follows from it.

Entering means that both sockets listen; the kubelet looks for new ones about once a second, so they come first. Slices
are published while the kubelet says "registered" and no newer instance of the driver lives on the node.

Leaving: no more publishing, running calls drain, health streams return, DRA socket away, registration socket away.
Slices stay. The registration socket goes last because the kubelet closes its connection, with the calls on it, as soon
as it sees that socket go (1.37, ``DRAPluginManager.remove``), and a broken Prepare costs the Pod more than a minute. In
a rolling update the newer instance gets the new calls meanwhile; otherwise they are still served.
"""

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import msgspec

from dra_plugin import files
from dra_plugin._calls import Calls
from dra_plugin._service import ClaimService, HealthService, Registration
from dra_plugin.cluster import Cluster
from dra_plugin.errors import SetupError
from dra_plugin.health import HealthReport
from dra_plugin.instances import Instance
from dra_plugin.latest import Latest, follow
from dra_plugin.observe import Observer, ignore
from dra_plugin.plugin import Plugin
from dra_plugin.resources import Pool

if TYPE_CHECKING:  # imported late: the sockets come first
    from dra_plugin.publisher import Publisher

__all__ = ["Server", "Settings", "serving", "socket_paths"]

_LOG = logging.getLogger(__name__)
_LOOK = 1.0  # seconds between two looks whether the sockets are still in their place
_FLUSH = 1.0  # seconds in which answers that are ready still leave
_NAMELESS = re.compile(r"\.dra-[0-9a-f]{8}|dra-[\w-]{22}-reg\.sock")  # before it gets its name; the shortest form


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as whom to serve.

    Attributes:
        driver: name of the driver, as in ``spec.driver`` of its slices.
        node_name: name of this node.
        registry: the kubelet's registration folder, ``/var/lib/kubelet/plugins_registry``; must exist.
        folder: this driver's data folder, ``/var/lib/kubelet/plugins/<driver>``; created, its parent must exist. It
            must have the same path here and for the kubelet.
        instance: what tells this instance from others that run at the same time: the Pod's UID.
        drain: seconds that running calls get when the server leaves.
    """

    driver: str
    node_name: str
    registry: Path
    folder: Path
    instance: str
    drain: float = 20.0


class Server:
    """What is known of a plugin while it is served."""

    def __init__(
        self,
        registration: Registration,
        newest: Latest[bool],
        publisher: "Publisher",
        calls: Calls,
        sockets: tuple[Path, Path],
    ) -> None:
        """Hold the parts; made by ``serving``."""
        self.registered = registration.registered
        """True from NotifyRegistrationStatus(true) until the kubelet goes away."""
        self.refusal = registration.refusal
        """Why the kubelet refused the last registration, None when it did not."""
        self.newest = newest
        """True while this instance is the newest one of the driver on the node: it alone publishes and runs whatever
        else writes to the API server for the driver. It stays true when the kubelet goes away for a while."""
        self.publisher = publisher
        self.sockets = sockets
        """The DRA socket and the registration socket."""
        self._calls = calls

    @property
    def in_flight(self) -> int:
        """How many prepares and unprepares of single claims run now."""
        return self._calls.in_flight


@asynccontextmanager
async def serving(
    plugin: Plugin,
    settings: Settings,
    cluster: Cluster,
    pools: Latest[Mapping[str, Pool] | None],
    *,
    health: Latest[HealthReport] | None = None,
    observer: Observer = ignore,
) -> AsyncIterator[Server]:
    """Serve ``plugin`` to the kubelet of this node and publish ``pools`` (None: not known yet).

    Raises SetupError when a folder is missing, a socket path is too long, or another live instance stands in the way.
    An error of the body comes out as it is; one of the server's own tasks as an ExceptionGroup.
    """
    dra, registrar = _prepared(settings)
    instance = Instance(settings.folder / "instances", settings.instance)
    enabled, stopping = Latest(False), Latest(False)  # noqa: FBT003 - the value of a Latest
    registration = Registration(settings.driver, os.fspath(dra.path), instance.announce)
    async with _tasks() as work:  # of its own, so that an error elsewhere does not cut running calls
        calls = Calls(work)
        claims = ClaimService(plugin, settings.driver, cluster, calls, observer)
        dra.handlers = (*claims.handlers(), *HealthService(health, registration, stopping).handlers())
        registrar.handlers = registration.handlers()
        end = _leaving(settings.drain, dra, registration, instance, stopping, calls)
        async with _listening(dra, registrar), end:
            from dra_plugin.publisher import Publisher

            publisher = Publisher(cluster, settings.driver, settings.node_name, pools, enabled, observer=observer)
            gate = _gate(registration.registered, instance.newest, enabled)
            background = (gate, instance.run(), publisher.run(), _in_place(dra, registrar, registration))
            async with _tasks(background):
                yield Server(registration, instance.newest, publisher, calls, (dra.path, registrar.path))


class _Endpoint:
    """A Unix socket with a gRPC server behind it.

    The socket is bound under a hidden name and linked to its own: nobody sees it before it answers, a link never takes
    the place of another one, and gRPC, which unlinks what it bound whoever owns it by then, finds nothing to unlink.
    """

    def __init__(self, path: Path) -> None:
        """Listen at ``path`` from ``open`` on."""
        self.path = path
        self.handlers: tuple[grpc.GenericRpcHandler, ...] = ()
        self._servers: list[grpc.aio.Server] = []
        self._inode = 0

    async def open(self) -> None:
        """Listen. Raises SetupError when somebody else does, or the socket cannot be made."""
        files.clear_stale_socket(self.path)
        while len(self._servers) > 1:  # vanished before: connections of the last one may still stand
            await self._servers.pop(0).stop(_FLUSH)
        hidden = self.path.with_name(f".dra-{secrets.token_hex(4)}")
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        server.add_generic_rpc_handlers(self.handlers)
        try:
            _bind(server, hidden)
            await server.start()
            self._servers.append(server)
            self._inode = hidden.stat().st_ino
            self.path.hardlink_to(hidden)
        except FileExistsError:
            raise SetupError(f"another live instance came to listen on {self.path}") from None
        except (RuntimeError, OSError) as error:
            raise SetupError(f"socket {self.path} cannot be opened: {error}") from error
        finally:
            hidden.unlink(missing_ok=True)

    def in_place(self) -> bool:
        """Tell whether our socket stands at its path."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def withdraw(self) -> None:
        """Remove the socket's file if it is ours; connections that stand go on."""
        if self._servers and self.in_place():
            with contextlib.suppress(OSError):
                self.path.unlink()

    async def close(self) -> None:
        """Remove the file and stop; answers that are ready still leave."""
        self.withdraw()
        while self._servers:
            await self._servers.pop().stop(_FLUSH)


def socket_paths(settings: Settings, start: str = "") -> tuple[Path, Path]:
    """Return the paths of the DRA socket and of the registration socket, within the system's limit.

    The names are those of the Go helper, so that tools find them; the DRA socket's has a short form too. ``start``
    makes them unique to this start. Raises SetupError when not even the shortest name fits into a folder.
    """
    instance = f"{settings.instance}-{start}" if start else settings.instance
    short = _hashed(instance.encode(), 8)
    shortest = _hashed(f"{settings.driver}\0{instance}".encode(), 16)
    names = (
        f"{settings.driver}-{instance}-reg.sock",
        f"{settings.driver}-{short}-reg.sock",
        f"dra-{shortest}-reg.sock",
    )
    return (
        _fitting(settings.folder, (f"dra-{instance}.sock", f"dra-{_hashed(instance.encode(), 6)}.sock")),
        _fitting(settings.registry, names),
    )


def _fitting(folder: Path, names: Iterable[str]) -> Path:
    path = folder
    for name in names:
        path = folder / name
        if len(os.fsencode(path)) <= files.SOCKET_PATH_LIMIT:
            return path
    raise SetupError(f"socket path {path} is longer than the {files.SOCKET_PATH_LIMIT} bytes a socket may have")


def _hashed(data: bytes, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:length]).rstrip(b"=").decode()


def _prepared(settings: Settings) -> tuple[_Endpoint, _Endpoint]:
    """Check the folders, clear what dead instances left, and choose the sockets' paths.

    The kubelet's waiting time after an error belongs to a path. After a start that did not end well the names get a
    part of their own, so that it is asked at once.
    """
    for folder, what in ((settings.registry, "the kubelet's registration folder"), (settings.folder.parent, "folder")):
        if not folder.is_dir():
            raise SetupError(f"{what} {folder} does not exist")
    try:
        settings.folder.mkdir(mode=0o750, exist_ok=True)
        left = [path for path in _leftovers(settings) if files.remove(path)]
    except OSError as error:
        raise SetupError(f"folder {settings.folder} cannot be used: {error}") from error
    dra, registrar = socket_paths(settings, secrets.token_hex(3) if left else "")
    return _Endpoint(dra), _Endpoint(registrar)


def _leftovers(settings: Settings) -> list[Path]:
    """Return this driver's sockets on which nobody listens, and old ones whose names do not tell a driver."""
    named = [*settings.registry.glob(f"{settings.driver}-*reg.sock"), *settings.folder.glob("dra*.sock")]
    both = [*settings.registry.iterdir(), *settings.folder.iterdir()]
    nameless = [path for path in both if _NAMELESS.fullmatch(path.name) and files.is_old(path)]
    return [path for path in named + nameless if path.is_socket() and not files.is_listening(path)]


def _bind(server: grpc.aio.Server, path: Path) -> None:
    """Bind so that only the owner may connect; nothing else runs on the loop while the umask is changed."""
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    finally:
        os.umask(before)


@asynccontextmanager
async def _listening(dra: _Endpoint, registrar: _Endpoint) -> AsyncIterator[None]:
    """Open both, the DRA socket first: the kubelet dials it as soon as it has heard of it."""
    try:
        await dra.open()
        await registrar.open()
        yield
    finally:
        registrar.withdraw()
        dra.withdraw()
        await registrar.close()
        await dra.close()


@asynccontextmanager
async def _leaving(
    drain: float,
    dra: _Endpoint,
    registration: Registration,
    instance: Instance,
    stopping: Latest[bool],
    calls: Calls,
) -> AsyncIterator[None]:
    """Do, in the end, what has to come before the sockets close."""
    try:
        yield
    finally:
        instance.close()
        try:
            if not await calls.drain(drain):
                _LOG.warning("%d calls still ran after %g s and are cut off", calls.in_flight, drain)
        finally:
            calls.cancel()
            stopping.set(True)
            await dra.close()  # answers leave first: the kubelet drops the connection when it hears that we go
            registration.lost()


@asynccontextmanager
async def _tasks(background: Iterable[Coroutine[Any, Any, None]] = ()) -> AsyncIterator[asyncio.TaskGroup]:
    """Run the coroutines while the body runs; the body's own error comes out bare, not in a group."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in background]
        try:
            yield group
        except Exception as error:  # noqa: BLE001 - raised again below, out of the group
            failure = error
        for task in tasks:
            task.cancel()
    if failure is not None:
        raise failure


async def _gate(registered: Latest[bool], newest: Latest[bool], enabled: Latest[bool]) -> None:
    async for known, first in follow(registered, newest):
        enabled.set(known and first)


async def _in_place(dra: _Endpoint, registrar: _Endpoint, registration: Registration) -> None:
    """Put back a socket whose file vanished. Without its registration socket the kubelet takes a plugin out."""
    while True:
        await asyncio.sleep(_LOOK)
        for endpoint in (dra, registrar):
            if endpoint.in_place():
                continue
            if endpoint is registrar:
                registration.lost()
            try:
                await endpoint.open()
                _LOG.warning("socket %s had vanished and was put back", endpoint.path)
            except SetupError as error:
                _LOG.warning("a socket vanished and cannot be put back: %s", error)
