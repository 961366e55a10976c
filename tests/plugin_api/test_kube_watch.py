"""Watch streams over HTTP, as bad as they come."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from dra_plugin.cluster import Change
from dra_plugin.errors import ClusterError, Expired, Rejected, Retryable
from dra_plugin.kube import KubeCluster, plain
from dra_plugin.kube.lines import lines
from dra_plugin.mirror import Mirror
from dra_plugin.resources import NODE, Node
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.http import serve_http
from tests.plugin_api.test_kube import serving

Stream = Callable[[web.StreamResponse], Awaitable[None]]
CUT = b"!cut"


def line(change: str, version: int, name: str = "n", **more: object) -> bytes:
    obj = {"metadata": {"name": name, "uid": "u", "resourceVersion": str(version)}, **more}
    return msgspec.json.encode({"type": change, "object": obj}) + b"\n"


def error(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "reason": "R", "message": "sorry"}
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


async def watched(*pieces: bytes) -> list[Change[Node]]:
    """Return the changes that a client reads when the server sends these pieces and ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            if piece == CUT and request.transport is not None:
                request.transport.close()
                break
            await response.write(piece)
            await asyncio.sleep(0)
        return response

    async with serving(answer) as url, KubeCluster(plain(url)) as cluster:
        return [change async for change in cluster.watch(NODE, "1")]


async def test_lines_and_chunks_are_independent() -> None:
    """A line may come in many pieces, and many lines in one."""
    whole = line("ADDED", 5) + line("MODIFIED", 6) + line("BOOKMARK", 9)
    for pieces in ([whole], [whole[i : i + 7] for i in range(0, len(whole), 7)]):
        found = await watched(*pieces)
        assert [(change.type, change.resource_version) for change in found] == [
            ("BOOKMARK", "1"),
            ("ADDED", "5"),
            ("MODIFIED", "6"),
            ("BOOKMARK", "9"),
        ]
        assert found[-1].object is None


async def test_lines_of_any_length() -> None:
    """An object of many megabytes passes."""
    found = await watched(line("ADDED", 5, status={"padding": "x" * 8_000_000}))
    assert found[1].object is not None
    assert found[1].object.metadata.name == "n"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((error(410),), Expired),
        ((error(500),), Retryable),
        ((error(403),), Rejected),
        ((b'{"type": "ERROR", "object": {}}\n',), Retryable),
        ((b"<html>garbage\n",), Retryable),
        ((b'{"type": "SURPRISE", "object": {}}\n',), Retryable),
        ((b'{"type": "ADDED", "object": {"metadata": 7}}\n',), Retryable),
        ((line("ADDED", 5)[:20],), Retryable),
        ((line("ADDED", 5)[:20], CUT), Retryable),
    ],
)
async def test_what_goes_wrong_in_a_stream(pieces: tuple[bytes, ...], expected: type[ClusterError]) -> None:
    """Errors, garbage and cut connections become errors of the port."""
    with pytest.raises(expected):
        await watched(*pieces)


async def test_lines_skip_blank_ones() -> None:
    """Blank lines mean nothing."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for chunk in (b"\n", b"a\n\nb", b"\n"):
            yield chunk

    assert [text async for text in lines(chunks())] == [b"a", b"b"]


async def test_leaving_a_watch_ends_it_at_the_server() -> None:
    """Closing the generator closes the connection."""
    fake = FakeCluster()
    async with serve_http(fake) as url, KubeCluster(plain(url)) as cluster:
        async with aclosing(cluster.watch(NODE, "1")) as changes:
            await anext(changes)
            assert fake.watching.count == 1
        for _ in range(200):
            if fake.watching.count == 0:
                break
            await asyncio.sleep(0.01)
        assert fake.watching.count == 0


@pytest.mark.parametrize("code", [None, 0, 410, 500])
async def test_a_mirror_survives_over_http(code: int | None) -> None:
    """Ended, reset, expired or broken: the view becomes current again."""
    fake = FakeCluster()
    async with (
        serve_http(fake) as url,
        KubeCluster(plain(url)) as cluster,
        asyncio.TaskGroup() as group,
    ):
        mirror = Mirror(cluster, NODE)
        task = group.create_task(mirror.run())
        await mirror.synced.wait(bool)
        fake.watching.end(code)
        await fake.put_json({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        await mirror.objects.wait(lambda objects: "n" in objects)
        task.cancel()


async def test_a_peer_that_vanishes_is_noticed() -> None:
    """A watch says nothing and may hear nothing for long: the kernel asks whether anybody is there (timer 02)."""
    async with (
        serve_http(FakeCluster()) as url,
        KubeCluster(plain(url)) as cluster,
        aclosing(cluster.watch(NODE, "1")) as changes,
    ):
        await anext(changes)
        peer = f":{int(url.rpartition(':')[2]):04X}"
        rows = [row.split() for row in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        (timer,) = [row[5] for row in rows if row[2].endswith(peer) and row[3] == "01"]
        kind, ticks = timer.split(":")
        assert (kind, int(ticks, 16) <= 2000) == ("02", True)
