"""`drasim` in processes of its own, against the fake cluster over HTTP."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import drasim
from dra_plugin.testing.cluster.http import serve_http
from tests.flow.nodes import World

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: fake, cluster: {{server: "{url}"}}}}]
users: [{{name: nobody, user: {{}}}}]
contexts: [{{name: fake, context: {{cluster: fake, user: nobody}}}}]
current-context: fake
"""
PROFILES = Path(drasim.__file__).parent / "profiles"


@asynccontextmanager
async def over_http(world: World) -> AsyncIterator[dict[str, str]]:
    """Serve the world's cluster; yields the flags with which `drasim` works on this world."""
    async with serve_http(world.cluster) as url:
        yield at(world, url)


def at(world: World, url: str) -> dict[str, str]:
    """Return the flags with which `drasim` works on this world, with the API server at that URL."""
    kubeconfig = world.folder / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(url=url))
    return world.settings(kubeconfig=str(kubeconfig))


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def flags(settings: dict[str, str]) -> list[str]:
    """Return the settings as they are written on a command line."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


async def start(*arguments: str, program: tuple[str, ...] = ("-m", "drasim")) -> asyncio.subprocess.Process:
    """Start `drasim` with these arguments, in an environment that says nothing of clusters."""
    env = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    command = (sys.executable, *program, *arguments)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)


async def call(*arguments: str) -> tuple[int, str, str]:
    """Run `drasim` to its end; returns exit code, stdout and stderr."""
    process = await start(*arguments)
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def node_process(settings: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `drasim node` as a process; it is killed if it still runs in the end."""
    process = await start("node", *flags(settings))
    reading = process.communicate()
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(reading)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
        await ended


async def terminate(process: asyncio.subprocess.Process) -> int:
    """Send SIGTERM, as the kubelet does, and return the exit code."""
    process.send_signal(signal.SIGTERM)
    return await process.wait()


def slow_profile(world: World, seconds: float) -> str:
    """Return a profile of the small machine, on which a setting takes that long."""
    path = world.folder / f"slow-{seconds:g}.yaml"
    path.write_text(f"stepSeconds: {seconds:g}\n" + (PROFILES / "small.yaml").read_text())
    return str(path)
