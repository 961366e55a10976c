"""A client that is left has closed all its connections, whatever the server does, before its loop may end."""

import asyncio
import gc
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_plugin.cluster import Cluster
from dra_plugin.errors import Retryable
from dra_plugin.kube import KubeCluster, from_kubeconfig, plain
from dra_plugin.kube.credentials import Endpoint
from dra_plugin.resources import NODE, Node, ObjectMeta
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.http import serve_http
from tests.plugin_api.test_kube_credentials import authority, kubeconfig, needs_openssl, signed

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(20_000_000)
PATIENCE = 10.0
LARGE = "x" * 30_000_000  # more than the system keeps of what is sent to a server that does not read


@dataclass
class Silent:
    """One connection over TLS: a request is answered with these bytes, and a goodbye is not answered at all."""

    url: str
    answer: bytes
    context: ssl.SSLContext
    ended: threading.Event

    def serve(self, listening: socket.socket) -> None:
        """Serve one connection, until the other side has closed it."""
        raw, _ = listening.accept()
        with suppress(OSError), self.context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(65536)
            with suppress(OSError):
                connection.sendall(self.answer)
            with socket.socket(fileno=connection.detach()) as bare:
                while bare.recv(65536):
                    pass
        self.ended.set()


@contextmanager
def silent(folder: Path, answer: bytes) -> Iterator[Silent]:
    """Run such a server; its CA is in that folder."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*signed(folder, "server"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        server = Silent(url, answer, context, threading.Event())
        thread = threading.Thread(target=server.serve, args=[listening])
        thread.start()
        yield server
        thread.join()


async def watch(client: KubeCluster) -> None:
    """End a watch that tells nothing."""
    async with aclosing(client.watch(NODE, "1")) as changes:
        async for _ in changes:
            return


async def cut_off(client: KubeCluster) -> None:
    """Cancel a call that waits for its answer, or for more of it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.list(NODE)


@needs_openssl
@pytest.mark.parametrize("answer", [HEAD, b"", MUCH], ids=["a watch", "no answer", "half an answer"])
async def test_what_was_given_up_is_closed(tmp_path: Path, answer: bytes) -> None:
    """TLS would wait half a minute for a goodbye; a loop that ends before that leaves the socket open."""
    given = {"certificate-authority": str(authority(tmp_path))}
    with silent(tmp_path, answer) as server:
        async with KubeCluster(from_kubeconfig(kubeconfig(tmp_path, {"server": server.url, **given}, {}))) as client:
            await (watch(client) if answer == HEAD else cut_off(client))
        assert server.ended.wait(PATIENCE)


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """Run a server that takes connections and reads nothing; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def fail(client: KubeCluster, labels: dict[str, str]) -> None:
    """Send something large that nobody will take."""
    with pytest.raises(Retryable):
        await client.create(NODE, Node(metadata=ObjectMeta(name="x", labels=labels)))


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_nobody_waits_for_what_cannot_be_sent() -> None:
    """A request that is still being sent when the client is left fails; it is not waited for until all is sent."""
    async with (
        deaf() as url,
        asyncio.timeout(PATIENCE / 2),
        asyncio.TaskGroup() as group,
        KubeCluster(plain(url)) as it,
    ):
        group.create_task(fail(it, {"a": LARGE}))
        await asyncio.sleep(0.5)


@needs_openssl
async def test_a_client_that_is_left_in_haste(tmp_path: Path) -> None:
    """Whoever is cancelled while leaving has still hung up."""
    given = {"certificate-authority": str(authority(tmp_path))}
    with silent(tmp_path, HEAD) as server:
        client = KubeCluster(from_kubeconfig(kubeconfig(tmp_path, {"server": server.url, **given}, {})))
        await watch(client)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(client.__aexit__(None, None, None))
            await asyncio.sleep(0)
            leaving.cancel()
        async with asyncio.timeout(PATIENCE):
            while not server.ended.is_set():  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(0.01)


class Slowly:
    """Credentials that come when they are asked to."""

    lifetime = 60.0

    def __init__(self, url: str) -> None:
        self.url, self.come = url, asyncio.Event()

    async def endpoint(self) -> Endpoint:
        """Return where to connect, in the end."""
        await self.come.wait()
        return Endpoint(self.url)

    async def authorization(self) -> str | None:
        """Return nothing."""
        return None


async def test_a_client_that_is_left_before_it_knows_where_to_connect() -> None:
    """It opens nothing any more: nobody would close it."""
    async with deaf() as url, asyncio.TaskGroup() as group:
        credentials = Slowly(url)
        async with KubeCluster(credentials) as client:
            group.create_task(fail(client, {}))
            await asyncio.sleep(0)
        credentials.come.set()
    gc.collect()  # a session that was not closed says so, which is an error here


async def test_who_does_not_answer_is_named() -> None:
    """The error says which server it was."""
    async with deaf() as url, KubeCluster(plain(url), timeout=0.2) as client:
        with pytest.raises(Retryable, match=f"GET /api/v1/nodes: no answer from {url} in time"):
            await client.list(NODE)


@pytest.mark.looptime
async def test_who_is_waited_for_is_told() -> None:
    """After some seconds, whatever is waited for: a plugin that makes credentials may ask its user something."""
    told: list[tuple[str, int]] = []
    clock = asyncio.get_running_loop().time
    async with KubeCluster(Slowly("http://h"), slow=lambda server: told.append((server, round(clock())))) as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await client.list(NODE)
    assert told == [("", 4)]


async def test_a_watch_that_is_left_is_ended_in_all_its_parts() -> None:
    """Neither the client nor the fake server leaves a generator to the garbage collector."""
    left: list[str] = []
    cluster = FakeCluster()
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=lambda generator: left.append(repr(generator)))
    try:
        async with serve_http(cluster) as url, KubeCluster(plain(url)) as client:
            since = (await cluster.list(NODE)).resource_version
            await cluster.create(NODE, Node(metadata=ObjectMeta(name="x")))
            for api in (client, cluster):
                await one_change(api, since)
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []


async def one_change(api: Cluster, since: str) -> None:
    """Watch until an object comes."""
    async with aclosing(api.watch(NODE, since)) as changes:
        async for change in changes:
            if change.object:
                return
