"""KubeCluster over HTTP: repeats, waits and errors; the verbs themselves are in the contract suite."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web

from dra_plugin.claims import RESOURCE_CLAIM
from dra_plugin.errors import ClusterError, Conflict, Expired, Rejected, Retryable, SetupError
from dra_plugin.kube import Credentials, KubeCluster, in_cluster, plain
from dra_plugin.kube.answers import error_for, retry_after_of, status_of
from dra_plugin.kube.credentials import Endpoint
from dra_plugin.kube.gate import Gate
from dra_plugin.resources import NODE, RESOURCE_SLICE, ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster.http import serve_http

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
ENV = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """Serve one answer at every path; yields the URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def both(**options: float) -> AsyncIterator[tuple[FakeCluster, KubeCluster]]:
    """Yield a fake API server and a client of it."""
    fake = FakeCluster()
    async with serve_http(fake) as url, KubeCluster(plain(url), **options) as cluster:  # type: ignore[arg-type]  # floats
        yield fake, cluster


def a_slice() -> ResourceSlice:
    pool = ResourcePool(name="p", generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="d.example.com", node_name="n", pool=pool)
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


async def finds_node(cluster: KubeCluster) -> bool:
    return await cluster.get(NODE, "x") is not None


# --------------------------------------------------------------------------------------------------------- lazy


def test_importing_and_entering_costs_little() -> None:
    """Neither aiohttp nor kubernetes is imported before the first request."""
    program = (
        "import asyncio, sys\n"
        "from dra_plugin.kube import KubeCluster, plain, from_kubeconfig\n"
        "async def main():\n"
        "    async with KubeCluster(from_kubeconfig('/nowhere')): pass\n"
        "asyncio.run(main())\n"
        "print(sorted({'aiohttp', 'kubernetes', 'yarl'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_leaving_closes_every_connection() -> None:
    """After the block nothing is open, though nothing was awaited for it."""
    async with both() as (_, cluster), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(finds_node(cluster))
    with pytest.raises(Retryable):
        await cluster.get(NODE, "x")


# ------------------------------------------------------------------------------------------------------ repeats


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("verb", ["get", "list", "create", "replace", "apply", "delete"])
async def test_every_verb_comes_again_when_asked_to(verb: str, code: int) -> None:
    """429 and 503 with Retry-After are waited for, whatever the verb, and observed."""
    waits: list[str] = []
    fake = FakeCluster()
    stored = await fake.create(RESOURCE_SLICE, a_slice())
    fake.faults.fail(verb, code=code, times=2, retry_after=0.05)
    async with (
        serve_http(fake) as url,
        KubeCluster(plain(url), retried=lambda verb, _: waits.append(verb)) as cluster,
    ):
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: cluster.get(RESOURCE_SLICE, "s"),
            "list": lambda: cluster.list(RESOURCE_SLICE),
            "create": lambda: cluster.create(
                RESOURCE_SLICE, ResourceSlice(metadata=ObjectMeta(name="t"), spec=stored.spec)
            ),
            "replace": lambda: cluster.replace(RESOURCE_SLICE, stored),
            "apply": lambda: cluster.apply(RESOURCE_SLICE, {"metadata": {"name": "s", "labels": {"a": "b"}}}, "me"),
            "delete": lambda: cluster.delete(RESOURCE_SLICE, stored),
        }
        assert await calls[verb]()
    assert len(waits) >= 2


async def test_watches_come_again_too() -> None:
    """A watch that the server puts off starts later."""
    async with both() as (fake, cluster):
        fake.faults.fail("watch", code=429, retry_after=0.05)
        changes = cluster.watch(RESOURCE_SLICE, "1")
        assert (await anext(changes)).type == "BOOKMARK"
        await changes.aclose()


async def test_patience_ends() -> None:
    """Who would have to wait too long is told at once, with the time to come again."""
    async with both(patience=5.0) as (fake, cluster):
        fake.faults.fail("get", code=429, retry_after=60)
        with pytest.raises(Retryable) as caught:
            await cluster.get(NODE, "x")
        assert caught.value.retry_after is not None
        assert 50 < caught.value.retry_after <= 60


async def test_others_of_the_verb_are_held_back() -> None:
    """After "not before" no request of that verb goes out until then; other verbs do."""
    async with both(patience=5.0) as (fake, cluster):
        fake.faults.fail("get", code=429, retry_after=60)
        with pytest.raises(Retryable):
            await cluster.get(NODE, "x")
        with pytest.raises(Retryable, match="asked to wait"):
            await cluster.get(NODE, "y")
        assert (await cluster.list(NODE)).items == ()


def test_gate_keeps_the_longest_wait() -> None:
    """A shorter "not before" does not shorten one that stands."""
    time = [100.0]
    gate = Gate(lambda: time[0])
    assert gate.wait_for("get") == 0
    gate.close("get", 10)
    gate.close("get", 3)
    time[0] = 104.0
    assert (gate.wait_for("get"), gate.wait_for("list")) == (6.0, 0.0)
    time[0] = 111.0
    assert gate.wait_for("get") == 0


# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((code, Retryable) for code in (0, 401, 429, 500, 503, 504)),
        *((code, Rejected) for code in (400, 403, 405, 413, 422)),
        (409, Conflict),
        (410, Expired),
    ],
)
async def test_errors_by_code(code: int, expected: type[ClusterError]) -> None:
    """Each answer becomes the error that says what the caller may do, with verb and path."""
    async with both() as (fake, cluster):
        fake.faults.fail("get", code=code, times=3)
        with pytest.raises(expected, match="GET /api/v1/nodes/x") as caught:
            await cluster.get(NODE, "x")
        assert type(caught.value) is expected


async def test_nobody_listens() -> None:
    """An API server that is away is worth another try."""
    async with KubeCluster(plain("http://127.0.0.1:9")) as cluster:
        with pytest.raises(Retryable, match="GET /api/v1/nodes/x"):
            await cluster.get(NODE, "x")


async def test_an_answer_that_is_no_status() -> None:
    """A proxy's page is quoted shortly; what cannot be read at all can be tried again."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(status=503, text="<html>" + "busy " * 1000)

    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(text="nonsense")

    async with serving(page) as url, KubeCluster(plain(url)) as cluster:
        with pytest.raises(Retryable, match="503 <html>busy") as caught:
            await cluster.get(NODE, "x")
        assert len(str(caught.value)) < 700
    async with serving(nonsense) as url, KubeCluster(plain(url)) as cluster:
        with pytest.raises(Retryable, match="unreadable"):
            await cluster.get(NODE, "x")


async def test_redirects_are_not_followed() -> None:
    """A token never goes to another address."""

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}, text="away")

    async with serving(elsewhere) as url, KubeCluster(plain(url)) as cluster:
        with pytest.raises(ClusterError):
            await cluster.get(NODE, "x")


async def test_reads_are_quorum_reads() -> None:
    """Neither get nor list names a resource version, which would allow an old answer."""
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.path_qs)
        return web.json_response({"metadata": {"resourceVersion": "1"}})

    async with serving(note) as url, KubeCluster(plain(url)) as cluster:
        await cluster.get(RESOURCE_CLAIM, "c", "ns")
        await cluster.list(RESOURCE_SLICE)
    assert seen == [
        "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c",
        "/apis/resource.k8s.io/v1/resourceslices",
    ]


async def test_discovery_is_asked_once_a_minute() -> None:
    """Many questions about what is served are one request."""
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.json_response({"resources": [{"name": "resourceslices"}]})

    async with serving(note) as url, KubeCluster(plain(url)) as cluster:
        assert [await cluster.served(RESOURCE_SLICE), await cluster.served(RESOURCE_CLAIM)] == [True, False]
    assert seen == ["/apis/resource.k8s.io/v1"]


def test_retry_after() -> None:
    """Seconds or a date; never negative; nonsense is nothing."""
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=90), usegmt=True)
    earlier = format_datetime(now - timedelta(seconds=90), usegmt=True)
    given = ["3", "0.5", "-1", later, earlier, "soon", "", None]
    assert [retry_after_of(text, now) for text in given] == [3.0, 0.5, 0.0, 90.0, 0.0, None, None, None]


def test_causes_of_a_status() -> None:
    """The fields that the server names reach the error."""
    body = (
        b'{"message": "no", "details": {"causes": [{"field": "a"}, {"field": "a"}, {"reason": "x"}, {"field": "b"}]}}'
    )
    status = status_of(422, body)
    error = error_for(status.code, status.message, fields=status.fields)
    assert isinstance(error, Rejected)
    assert (error.code, error.fields) == (422, ("a", "b"))


# -------------------------------------------------------------------------------------------------- credentials


class Local(Credentials):
    """A service account's token, but plain HTTP to a local address."""

    def __init__(self, folder: Path, url: str) -> None:
        self._account, self._url = in_cluster(ENV, folder), url
        self.lifetime = self._account.lifetime

    async def endpoint(self) -> Endpoint:
        return Endpoint(self._url)

    async def authorization(self) -> str | None:
        return await self._account.authorization()


async def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    """After a 401 the file is read once more, by one of many callers, and the requests are repeated."""
    refused: list[str] = []
    token = tmp_path / "token"

    async def check(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") == "Bearer new":
            return web.json_response({"metadata": {"name": "x"}})
        refused.append(request.headers["Authorization"])
        return web.Response(status=401)

    token.write_text("old\n")
    async with serving(check) as url, KubeCluster(Local(tmp_path, url)) as cluster:
        with pytest.raises(Retryable) as caught:
            await cluster.get(NODE, "x")
        assert caught.value.code == 401
        assert "old" not in str(caught.value)
        assert refused == ["Bearer old"] * 2
        token.write_text("new\n")
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(finds_node(cluster)) for _ in range(5)]
        assert all(read.result() for read in reads)


async def test_a_missing_token_is_worth_another_try(tmp_path: Path) -> None:
    """The kubelet may not have written it yet."""
    async with KubeCluster(in_cluster(ENV, tmp_path)) as cluster:
        with pytest.raises(Retryable, match="token"):
            await cluster.get(NODE, "x")
        (tmp_path / "token").write_text("secret")
        with pytest.raises(Retryable, match="CA") as caught:
            await cluster.get(NODE, "x")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("header", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
async def test_a_wait_of_nothing_ends_too(header: str) -> None:
    """A server that says "come again at once" for ever is asked a few times, not in a hot loop without end."""
    asked: list[str] = []

    async def busy(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=429, headers={"Retry-After": header})

    async with serving(busy) as url, KubeCluster(plain(url), patience=0.5) as cluster, asyncio.timeout(5):
        with pytest.raises(Retryable):
            await cluster.get(NODE, "x")
    assert len(asked) <= 10


@pytest.mark.parametrize("header", ["nan", "inf", "1e999"])
def test_a_wait_that_is_no_number(header: str) -> None:
    """What would shut a verb for ever is no Retry-After."""
    assert retry_after_of(header) is None


async def test_credentials_that_fail_later() -> None:
    """At the start they are a mistake to fix; once they worked, a login that fails for a while is tried again."""

    class Flaky:
        lifetime = 0.0

        def __init__(self, url: str) -> None:
            self.url, self.logins = url, 0

        async def endpoint(self) -> Endpoint:
            return Endpoint(self.url)

        async def authorization(self) -> str | None:
            self.logins += 1
            if self.logins == 2:
                raise SetupError("the login plugin cannot be run")
            return None

    async with serve_http(FakeCluster()) as url, KubeCluster(Flaky(url)) as cluster:
        assert not await finds_node(cluster)
        with pytest.raises(Retryable, match="login plugin"):
            await finds_node(cluster)
        assert not await finds_node(cluster)
