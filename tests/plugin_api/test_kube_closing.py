"""A client that is left has closed all its connections, whatever the server does, before its loop may end."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_plugin.kube import KubeCluster, from_kubeconfig
from dra_plugin.resources import NODE
from tests.plugin_api.test_kube_credentials import authority, kubeconfig, needs_openssl, signed

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + bytes(20_000_000)
PATIENCE = 10.0


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
