"""A door into the cluster's own network: this process can reach the API server through a port of the machine.

The listening socket is made out here and handed to a process in there; a socket stays in the network it was made in.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from hack.cluster.folders import CHECKOUT

PORTER = """
import asyncio, socket, sys

async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def visit(reader, writer):
    try:
        inner, outer = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
    except OSError:
        writer.close()
        return
    async with asyncio.TaskGroup() as both:
        both.create_task(pump(reader, outer))
        both.create_task(pump(inner, writer))

async def main():
    server = await asyncio.start_server(visit, sock=socket.socket(fileno=int(sys.argv[1])))
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def door(cluster: str, inside: Path, outside: Path) -> Iterator[None]:
    """Let `outside`, a copy of the kubeconfig `inside`, work on this machine as long as the context lasts."""
    content = yaml.safe_load(inside.read_text())
    found = urlsplit(content["clusters"][0]["cluster"]["server"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = [str(listening.fileno()), str(found.hostname), str(found.port or 443)]
        command = [sys.executable, "-m", "hack.cluster", "run", "--name", cluster, "--", sys.executable, "-c", PORTER]
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{listening.getsockname()[1]}"
        outside.write_text(yaml.safe_dump(content))
        outside.chmod(0o600)
        with subprocess.Popen(
            [*command, *words], cwd=CHECKOUT, pass_fds=[listening.fileno()], env=os.environ
        ) as porter:
            try:
                yield
            finally:
                porter.terminate()
