"""The fake API server over HTTP: enough of the REST API for KubeCluster and for simple uses of kubectl.

kubectl needs ``--validate=false`` (there is no OpenAPI document); it prints names and ages only. Patches are
server-side apply, and merge patch for every other content type.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from dra_plugin.testing.cluster.catalog import Resource
from dra_plugin.testing.cluster.discovery import described
from dra_plugin.testing.cluster.port import FakeCluster
from dra_plugin.testing.cluster.refusal import Refusal, other_version
from dra_plugin.testing.cluster.target import Target, target_of

__all__ = ["serve_http"]

_Json = dict[str, Any]
_Handler = Callable[[FakeCluster, Target, web.Request], Awaitable[_Json | None]]
_VERBS = {"POST": "create", "PUT": "replace", "PATCH": "apply", "DELETE": "delete"}
_BIGGEST = 16 * 1024 * 1024  # bytes of a request


@asynccontextmanager
async def serve_http(cluster: FakeCluster, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve ``cluster`` over HTTP; yields the base URL. Port 0 is any free one."""
    app = web.Application(client_max_size=_BIGGEST)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _handled(cluster, request)

    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        found = runner.addresses[0]
        yield f"http://{found[0]}:{found[1]}"
    finally:
        await runner.cleanup()


async def _handled(cluster: FakeCluster, request: web.Request) -> web.StreamResponse:
    document = described(request.path, cluster.catalog.rows)
    try:
        if document is not None:
            await cluster.faults.meet("discover", "")
            return _answer(document)
        target = target_of(request.path, request.query, cluster.catalog)
        verb = _verb(target, request)
        await cluster.faults.meet(verb, target.resource.plural)
        if verb == "watch":
            return await _watch(cluster, target, request)
        body = await _HANDLERS[verb](cluster, target, request)
        return _answer(body or _success(target), HTTPStatus.CREATED if verb == "create" else HTTPStatus.OK)
    except Refusal as refusal:
        return _refused(request, refusal)


def _verb(target: Target, request: web.Request) -> str:
    if request.method == "GET":
        watch = request.query.get("watch") in ("true", "1")
        return "get" if target.name else "watch" if watch else "list"
    verb = _VERBS.get(request.method)
    if verb != "create" and _is_dry(request):
        raise Refusal(HTTPStatus.BAD_REQUEST, "BadRequest", "dryRun: the fake API server knows it for create only")
    if verb is None or (verb == "create") == bool(target.name):
        text = "the server does not allow this method on the requested resource"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", text)
    return verb


def _is_dry(request: web.Request) -> bool:
    asked = request.query.getall("dryRun", [])
    if set(asked) - {"All"}:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "dryRun: supported values: All", fields=("dryRun",))
    return bool(asked)


async def _get(cluster: FakeCluster, target: Target, _: web.Request) -> _Json:
    return cluster.store.get(target.resource, target.namespace, target.name)


async def _list(cluster: FakeCluster, target: Target, _: web.Request) -> _Json:
    items, version = cluster.store.select(target.resource, target.selector)
    names = {"kind": f"{target.resource.kind}List", "apiVersion": target.resource.api_version}
    return {**names, "metadata": {"resourceVersion": str(version)}, "items": items}


async def _create(cluster: FakeCluster, target: Target, request: web.Request) -> _Json:
    return cluster.store.create(target.resource, await _body(target, request), dry_run=_is_dry(request))


async def _replace(cluster: FakeCluster, target: Target, request: web.Request) -> _Json:
    return cluster.store.replace(target.resource, await _body(target, request), target.subresource)


async def _patch(cluster: FakeCluster, target: Target, request: web.Request) -> _Json:
    fields = await _body(target, request)
    if request.content_type == "application/apply-patch+yaml":
        manager = request.query.get("fieldManager", "")
        return cluster.store.apply(target.resource, fields, manager, target.subresource)
    stored = cluster.store.get(target.resource, target.namespace, target.name)
    return cluster.store.replace(target.resource, _merge_patched(stored, fields), target.subresource)


async def _delete(cluster: FakeCluster, target: Target, request: web.Request) -> _Json | None:
    options = _parsed(await request.read()) if request.can_read_body else {}
    wanted = options.get("preconditions") or {}
    if target.name:
        stored = cluster.store.delete(target.resource, target.namespace, target.name, wanted)
        return stored if stored["metadata"].get("finalizers") else None
    for obj in cluster.store.select(target.resource, target.selector)[0]:
        meta = obj["metadata"]
        cluster.store.delete(target.resource, meta.get("namespace") or "", meta["name"], {})
    return None


_HANDLERS: Mapping[str, _Handler] = {
    "get": _get,
    "list": _list,
    "create": _create,
    "replace": _replace,
    "apply": _patch,
    "delete": _delete,
}


async def _watch(cluster: FakeCluster, target: Target, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b"\n")  # the head goes out with the first byte; a blank line means nothing
    since = int(request.query.get("resourceVersion") or 0) or cluster.store.version.value
    lasts = request.query.get("timeoutSeconds")
    events = cluster.watching.watch(target.resource, since, target.selector, float(lasts) if lasts else None)
    try:
        async with aclosing(events):
            await anext(events)  # "accepted": the head of the answer says it here
            async for change, obj, version in events:
                await response.write(_line(change, obj or _bookmark(target.resource, version)))
    except Refusal as refusal:
        if refusal.code == 0:
            return _cut(request)
        await response.write(_line("ERROR", _status(refusal)))
    except ConnectionResetError:
        pass  # the client left
    return response


def _line(change: str, obj: _Json) -> bytes:
    return msgspec.json.encode({"type": change, "object": obj}) + b"\n"


def _bookmark(resource: Resource, version: int) -> _Json:
    names = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {**names, "metadata": {"resourceVersion": str(version), "creationTimestamp": None}}


async def _body(target: Target, request: web.Request) -> _Json:
    """Read the object; the path decides on its kind, name and namespace."""
    body, expected = _parsed(await request.read()), target.resource.api_version
    if body.get("apiVersion", expected) != expected:
        raise other_version(body["apiVersion"], expected)
    named = {"name": target.name} if target.name else {}
    placed = {"namespace": target.namespace} if target.namespace else {}
    names = {"apiVersion": expected, "kind": target.resource.kind}
    return {**body, **names, "metadata": {**(body.get("metadata") or {}), **named, **placed}}


def _parsed(data: bytes) -> _Json:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "BadRequest", f"the object cannot be read: {error}") from error


def _merge_patched(stored: Any, patch: Any) -> Any:  # noqa: ANN401 - any JSON
    if not isinstance(patch, dict):
        return patch
    kept = stored if isinstance(stored, dict) else {}
    changed = {name: _merge_patched(kept.get(name), value) for name, value in patch.items() if value is not None}
    return {**{name: value for name, value in kept.items() if name not in patch}, **changed}


def _success(target: Target) -> _Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": target.name}}


def _status(refusal: Refusal) -> _Json:
    causes = [{"field": field, "message": str(refusal)} for field in refusal.fields]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": refusal.code,
        "reason": refusal.reason,
        "message": str(refusal),
        "details": {"name": refusal.name, "causes": causes},
    }


def _refused(request: web.Request, refusal: Refusal) -> web.StreamResponse:
    if refusal.code == 0:
        return _cut(request)
    headers = {} if refusal.retry_after is None else {"Retry-After": f"{refusal.retry_after:g}"}
    return _answer(_status(refusal), refusal.code, headers)


def _answer(body: _Json, code: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=code, content_type="application/json", headers=headers or {}
    )


def _cut(request: web.Request) -> web.Response:
    """Break the connection; what is returned reaches nobody."""
    if isinstance(request.transport, asyncio.Transport):
        request.transport.abort()
    return web.Response()
