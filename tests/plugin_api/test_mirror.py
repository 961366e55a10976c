"""Mirror against FakeCluster, in virtual time: what it shows, and what it survives."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import pytest

from dra_plugin.cluster import EVERYTHING, Change, Listing, Selector
from dra_plugin.mirror import Mirror
from dra_plugin.resources import (
    RESOURCE_SLICE,
    Device,
    Kind,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_plugin.testing import FakeCluster

T = TypeVar("T")
pytestmark = pytest.mark.looptime


def a_slice(name: str, driver: str = "d.example.com") -> ResourceSlice:
    pool = ResourcePool(name="p", generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=driver, node_name="n", pool=pool)
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def with_devices(obj: ResourceSlice, *names: str) -> ResourceSlice:
    devices = tuple(Device(name=name) for name in names)
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, devices=devices))


@asynccontextmanager
async def running(mirror: Mirror[ResourceSlice]) -> AsyncIterator[Mirror[ResourceSlice]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        yield mirror
        task.cancel()


async def shows(mirror: Mirror[ResourceSlice], *names: str) -> None:
    await mirror.objects.wait(lambda objects: sorted(objects) == sorted(names))


async def test_it_says_nothing_before_the_first_list() -> None:
    """Empty and not synced is not the same as empty."""
    mirror = Mirror(FakeCluster(), RESOURCE_SLICE)
    assert (dict(mirror.objects.value), mirror.synced.value) == ({}, 0)
    async with running(mirror):
        await mirror.synced.wait(lambda count: count == 1)
        assert (dict(mirror.objects.value), mirror.error.value) == ({}, None)


async def test_it_follows_the_server() -> None:
    """What is listed, added, changed and deleted shows; other drivers' objects do not."""
    cluster = FakeCluster()
    first = await cluster.create(RESOURCE_SLICE, a_slice("a"))
    await cluster.create(RESOURCE_SLICE, a_slice("x", "other.example.com"))
    selector = Selector(fields={"spec.driver": "d.example.com"})
    async with running(Mirror(cluster, RESOURCE_SLICE, selector)) as mirror:
        await shows(mirror, "a")
        await cluster.create(RESOURCE_SLICE, a_slice("b"))
        await shows(mirror, "a", "b")
        new = await cluster.replace(RESOURCE_SLICE, with_devices(first, "d"))
        await mirror.objects.wait(lambda objects: objects["a"] == new)
        await cluster.delete(RESOURCE_SLICE, new)
        await shows(mirror, "b")
        assert mirror.synced.value == 1


async def test_namespaced_objects_have_their_namespace_in_the_key() -> None:
    """Objects of the same name in two namespaces are two."""
    cluster = FakeCluster()
    for namespace in ("one", "two"):
        meta = {"name": "x", "namespace": namespace}
        await cluster.put_json({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    kind = Kind("", "v1", "configmaps", "ConfigMap", True, _Plain)
    mirror = Mirror(cluster, kind)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        await mirror.objects.wait(lambda objects: sorted(objects) == ["one/x", "two/x"])
        task.cancel()


class _Plain(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta


@pytest.mark.parametrize("code", [None, 0, 500, 410])
async def test_it_survives_the_end_of_a_watch(code: int | None) -> None:
    """Ended cleanly, reset, broken or expired: nothing is lost, and a list is only needed when it expired."""
    cluster = FakeCluster()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.synced.wait(bool)
        await asyncio.sleep(5)
        cluster.watching.end(code)
        await cluster.create(RESOURCE_SLICE, a_slice("a"))
        await shows(mirror, "a")
        await asyncio.sleep(5)
        assert mirror.synced.value == (2 if code == 410 else 1)
        assert mirror.error.value is None
        assert cluster.watching.count == 1


async def test_it_lists_again_when_history_is_gone() -> None:
    """Deletions that no watch tells any more are found by the list."""
    cluster = FakeCluster()
    gone = await cluster.create(RESOURCE_SLICE, a_slice("a"))
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await shows(mirror, "a")
        cluster.watching.end()
        await cluster.delete(RESOURCE_SLICE, gone)
        await cluster.create(RESOURCE_SLICE, a_slice("b"))
        cluster.store.forget_history()
        await shows(mirror, "b")
        assert mirror.synced.value == 2


@pytest.mark.parametrize("code", [0, 401, 403, 422, 500, 503])
async def test_it_keeps_trying(code: int) -> None:
    """Whatever the server answers for a while: the error shows, goes, and the view becomes current."""
    cluster = FakeCluster()
    await cluster.create(RESOURCE_SLICE, a_slice("a"))
    cluster.faults.fail("list", code=code, times=5)
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        assert await mirror.error.wait(bool)
        await shows(mirror, "a")
        await mirror.error.wait(lambda error: error is None)


async def test_forbidden_watches_show() -> None:
    """Who may list but not watch is told so, and is not hammered."""
    cluster = FakeCluster()
    cluster.faults.fail("watch", code=403, times=1000)
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.error.wait(bool)
        await asyncio.sleep(300)
        assert mirror.synced.value < 60


async def test_retry_after_is_honoured() -> None:
    """The server says when to come again."""
    cluster = FakeCluster()
    cluster.faults.fail("list", code=429, retry_after=40)
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.synced.wait(bool)
    assert loop.time() - started >= 40


class Hasty(FakeCluster):
    """A server that accepts every watch and ends it at once, or after a bookmark."""

    def __init__(self, *, bookmark: bool) -> None:
        super().__init__()
        self.watches = 0
        self._bookmark = bookmark

    async def watch(
        self,
        kind: Kind[T],  # noqa: ARG002 - as in the port
        since: str,
        selector: Selector = EVERYTHING,  # noqa: ARG002 - as in the port
    ) -> AsyncGenerator[Change[T], None]:
        self.watches += 1
        yield Change("BOOKMARK", None, since)
        if self._bookmark:
            yield Change("BOOKMARK", None, str(int(since) + 1))


@pytest.mark.parametrize("bookmark", [False, True])
async def test_a_hasty_server_causes_no_hot_loop(bookmark: bool) -> None:
    """A server that ends each watch at once is asked ever more rarely."""
    cluster = Hasty(bookmark=bookmark)
    async with running(Mirror(cluster, RESOURCE_SLICE)):
        await asyncio.sleep(120)
    assert 5 < cluster.watches < 40


async def test_cancelling_ends_the_watch() -> None:
    """Nothing is left running at the server."""
    cluster = FakeCluster()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.synced.wait(bool)
        await asyncio.sleep(1)
        assert cluster.watching.count == 1
    assert cluster.watching.count == 0


# -------------------------------------------------------------------------------------------------- own writes


def at(version: int, name: str = "a", uid: str = "u1") -> ResourceSlice:
    meta = ObjectMeta(name=name, uid=uid, resource_version=str(version))
    return msgspec.structs.replace(a_slice(name), metadata=meta)


def view(mirror: Mirror[ResourceSlice]) -> dict[str, Any]:
    return {name: obj.metadata.resource_version for name, obj in mirror.objects.value.items()}


def empty() -> Mirror[ResourceSlice]:
    return Mirror(FakeCluster(), RESOURCE_SLICE)


def test_the_higher_version_wins() -> None:
    """A late answer does not undo a newer one; versions are numbers, not text."""
    mirror = empty()
    for version in (9, 10, 9):
        mirror.learn(at(version))
    assert view(mirror) == {"a": "10"}


def test_what_is_forgotten_stays_so() -> None:
    """No late answer revives an object that was deleted; another object of the name may come."""
    mirror = empty()
    mirror.learn(at(5))
    mirror.forget(at(5))
    mirror.learn(at(7))
    assert view(mirror) == {}
    mirror.learn(at(8, uid="u2"))
    mirror.forget(at(5))
    assert view(mirror) == {"a": "8"}


async def test_own_writes_show_at_once_and_only_once() -> None:
    """A write that is folded in shows before the watch tells of it, and the watch changes nothing."""
    cluster = FakeCluster()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.synced.wait(bool)
        made = await cluster.create(RESOURCE_SLICE, a_slice("a"))
        mirror.learn(made)
        assert mirror.objects.value == {"a": made}
        await cluster.delete(RESOURCE_SLICE, made)
        mirror.forget(made)
        assert mirror.objects.value == {}
        await asyncio.sleep(1)
        assert mirror.objects.value == {}


async def test_a_deletion_by_others_is_never_hidden_by_an_own_write() -> None:
    """Created by us, deleted by somebody else before the watch told of either: it is gone."""
    cluster = FakeCluster()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await mirror.synced.wait(bool)
        made = await cluster.create(RESOURCE_SLICE, a_slice("a"))
        await cluster.delete(RESOURCE_SLICE, made)
        await asyncio.sleep(1)
        mirror.learn(made)
        assert mirror.objects.value == {}


async def test_a_list_keeps_what_is_newer_than_it() -> None:
    """A write that happened after the list was taken survives it; what the list no longer has, does not."""
    mirror = empty()
    mirror.learn(at(1, "old", "u1"))
    mirror.learn(at(50, "new", "u2"))
    async with running(mirror):
        await mirror.synced.wait(bool)
        assert view(mirror) == {"new": "50"}


async def test_reading_anew_does_not_wait_for_the_watch() -> None:
    """A view that hears of nothing has what the server has, and nothing that its watch tells late brings back more."""
    cluster = FakeCluster()
    first = await cluster.create(RESOURCE_SLICE, a_slice("a"))
    mirror = Mirror(cluster, RESOURCE_SLICE)
    mirror.learn(first)
    later = await cluster.replace(RESOURCE_SLICE, with_devices(first, "d"))
    await cluster.delete(RESOURCE_SLICE, later)
    made = await cluster.create(RESOURCE_SLICE, a_slice("b"))
    await mirror.reread()
    assert mirror.objects.value == {"b": made}
    mirror.learn(later)
    assert mirror.objects.value == {"b": made}


async def test_reading_anew_keeps_what_is_newer() -> None:
    """Something that was made while the list was on its way is not taken for gone, now or later."""
    mirror = empty()
    mirror.learn(at(50, "new", "u2"))
    await mirror.reread()
    assert view(mirror) == {"new": "50"}
    mirror.learn(at(51, "new", "u2"))
    assert view(mirror) == {"new": "51"}


class _Counting(FakeCluster):
    lists = 0

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Listing[T]:
        self.lists += 1
        return await super().list(kind, selector)


async def test_a_server_that_fails_slowly_is_not_hammered() -> None:
    """Failures in a row are waited out longer and longer, also when each takes seconds: such a server is overloaded."""
    cluster = _Counting()
    cluster.faults.latency = 2.0
    cluster.faults.fail("list", code=500, times=1000)
    async with running(Mirror(cluster, RESOURCE_SLICE)):
        await asyncio.sleep(120)
    assert 3 < cluster.lists < 25


@pytest.mark.parametrize("seed", range(8))
async def test_a_server_that_is_back_is_found_soon(seed: int) -> None:
    """However long it was away; that it refuses at first, as servers do when they start, costs a moment only."""
    random.seed(seed)
    cluster = FakeCluster()
    async with running(Mirror(cluster, RESOURCE_SLICE)) as mirror:
        await asyncio.sleep(5)
        with cluster.away():
            await asyncio.sleep(600)
        cluster.faults.fail("watch", code=403, times=2)
        await asyncio.sleep(5.5)
        assert mirror.error.value is None


class _Alternating(_Counting):
    """Every other list gets no answer, and the rest a bad one."""

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Listing[T]:
        self.faults.fail("list", code=(0, 500)[self.lists % 2])
        return await super().list(kind, selector)


async def test_trouble_of_two_sorts_is_no_hot_loop() -> None:
    """A server that answers now and then, and badly, is asked ever more rarely."""
    cluster = _Alternating()
    async with running(Mirror(cluster, RESOURCE_SLICE)):
        await asyncio.sleep(300)
    assert 30 < cluster.lists < 80
