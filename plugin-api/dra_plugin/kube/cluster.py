"""KubeCluster: the port ``dra_plugin.cluster.Cluster`` over HTTP."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from dra_plugin.cluster import EVERYTHING, Change, HasMetadata, Listing, Selector
from dra_plugin.errors import Conflict, Rejected, Retryable
from dra_plugin.kube.credentials import Credentials
from dra_plugin.kube.lines import change_of, lines
from dra_plugin.kube.paths import collection_path, group_path, object_path, query
from dra_plugin.kube.transport import NoSuchObject, Request, Retried, Slow, Transport
from dra_plugin.resources import Kind, ObjectMeta, decode, encode

__all__ = ["KubeCluster"]

T = TypeVar("T")

_DISCOVERY_LIFETIME = 60.0  # seconds
_APPLY = "application/apply-patch+yaml"


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: tuple[T, ...] | None = None


class _Name(msgspec.Struct):
    name: str


class _Names(msgspec.Struct):
    resources: tuple[_Name, ...] | None = None


def _unheard(*_what: object) -> None:
    """Ignore what is told."""


class KubeCluster:
    """The API server that ``credentials`` lead to. ``async with`` it; entering does no I/O.

    Reads are quorum reads. 429 and 503 with Retry-After are repeated, on every verb, and hold back further requests of
    that verb; a 401 is repeated once with a fresh token. Everything else is raised.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float = 30.0,
        patience: float = 30.0,
        watch_seconds: tuple[float, float] = (300.0, 600.0),
        retried: Retried = _unheard,
        slow: Slow = _unheard,
    ) -> None:
        """Prepare; nothing is read or sent.

        ``timeout``: seconds until an answer has to be there. ``patience``: seconds that a request waits in total
        because the server asked for it. ``watch_seconds``: a watch lasts a random time between these. ``retried`` is
        told of each retry: verb and seconds waited. ``slow`` is told of each request that has no answer after 4
        seconds: the server's URL, empty while credentials are made.
        """
        self._transport = Transport(credentials, patience=patience, timeout=timeout, retried=retried, slow=slow)
        self._watch_seconds = watch_seconds
        self._served: dict[str, tuple[float, frozenset[str]]] = {}

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        """Return the object as a quorum read, or None when there is none."""
        try:
            return await self._send(kind, Request("get", "GET", object_path(kind, name, namespace)))
        except NoSuchObject:
            return None

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Listing[T]:
        """Return all objects that the selector matches."""
        request = Request("list", "GET", collection_path(kind, selector.namespace) + query(selector))
        found = _read(await self._transport.send(request), _list_of(kind.type), request)
        return Listing(found.items or (), found.metadata.resource_version)

    async def watch(
        self, kind: Kind[T], since: str, selector: Selector = EVERYTHING
    ) -> AsyncGenerator[Change[T], None]:
        """Yield changes after ``since``, the first a BOOKMARK at ``since``."""
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(round(random.uniform(*self._watch_seconds))),
        }
        path = collection_path(kind, selector.namespace) + query(selector, **parameters)
        async with self._transport.stream(Request("watch", "GET", path)) as chunks, aclosing(lines(chunks)) as found:
            yield Change("BOOKMARK", None, since)
            async for line in found:
                yield change_of(line, kind)

    async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False) -> T:
        """Create and return what the server stored, or with ``dry_run`` would store; Conflict when the name exists."""
        path = collection_path(kind, _meta(obj).namespace) + query(EVERYTHING, dryRun="All" if dry_run else "")
        return await self._send(kind, Request("create", "POST", path, encode(obj)))

    async def replace(self, kind: Kind[T], obj: T) -> T:
        """PUT the object; Conflict unless its resource version is the stored one."""
        path = _path(kind, obj)
        if not _meta(obj).resource_version:  # the server would overwrite whatever is there
            raise Conflict(f"PUT {path}: metadata.resourceVersion is not set")
        return await self._send(kind, Request("update", "PUT", path, encode(obj)))

    async def apply(self, kind: Kind[T], fields: Mapping[str, Any], manager: str, subresource: str = "") -> T:
        """Server-side apply, forced."""
        meta: Mapping[str, str] = fields.get("metadata") or {}
        path = object_path(kind, meta.get("name"), meta.get("namespace"), subresource)
        path += query(EVERYTHING, fieldManager=manager, force="true")
        body = encode({"apiVersion": kind.api_version, "kind": kind.name, **fields})
        return await self._send(kind, Request("patch", "PATCH", path, body, _APPLY))

    async def delete(self, kind: Kind[T], obj: T) -> bool:
        """Delete the object if UID and resource version match; False when it was gone or replaced."""
        meta = _meta(obj)
        wanted = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = encode({"preconditions": {name: value for name, value in wanted.items() if value}})
        try:
            await self._transport.send(Request("delete", "DELETE", _path(kind, obj), body))
            return True
        except NoSuchObject:
            return False
        except Conflict:
            stored = await self.get(kind, meta.name or "", meta.namespace)
            if stored is not None and _meta(stored).uid == meta.uid:
                raise
            return False

    async def served(self, kind: Kind[T]) -> bool:
        """Tell whether the server serves this group, version and resource; known for a minute."""
        path = group_path(kind)
        asked, plurals = self._served.get(path, (float("-inf"), frozenset()))
        now = asyncio.get_running_loop().time()
        if now - asked > _DISCOVERY_LIFETIME:
            plurals = await self._plurals(path)
            self._served[path] = (now, plurals)
        return kind.plural in plurals

    async def _plurals(self, path: str) -> frozenset[str]:
        request = Request("get", "GET", path)
        try:
            found = _read(await self._transport.send(request), _Names, request)
        except Rejected as error:
            if error.code == 404:  # noqa: PLR2004 - HTTP: no such group or version
                return frozenset()
            raise
        return frozenset(row.name for row in found.resources or ())

    async def _send(self, kind: Kind[T], request: Request) -> T:
        return _read(await self._transport.send(request), kind.type, request)


def _read(body: bytes, into: type[T], request: Request) -> T:
    try:
        return decode(body, into)
    except msgspec.MsgspecError as error:
        raise Retryable(f"{request}: unreadable answer of {len(body)} bytes: {error}") from error


def _list_of(item: type[T]) -> type[_List[T]]:
    return _List[item]  # type: ignore[valid-type]  # msgspec reads the parameter at run time


def _meta(obj: object) -> ObjectMeta:
    return cast("HasMetadata", obj).metadata


def _path(kind: Kind[Any], obj: object) -> str:
    meta = _meta(obj)
    return object_path(kind, meta.name, meta.namespace)
