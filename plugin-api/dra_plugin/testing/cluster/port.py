"""FakeCluster: the port ``dra_plugin.cluster.Cluster`` over the store, in process."""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from dra_plugin.cluster import EVERYTHING, Change, Listing, Selector
from dra_plugin.errors import ClusterError, Conflict
from dra_plugin.kube.answers import error_for
from dra_plugin.kube.paths import object_path
from dra_plugin.resources import Kind, decode, encode
from dra_plugin.testing.cluster.catalog import Catalog, Resource
from dra_plugin.testing.cluster.faults import Faults
from dra_plugin.testing.cluster.refusal import Refusal, other_version, unknown_resource
from dra_plugin.testing.cluster.store import Store
from dra_plugin.testing.cluster.watching import BOOKMARKS, Watching

__all__ = ["FakeCluster"]

T = TypeVar("T")
_Json = dict[str, Any]


class FakeCluster:
    """An API server in memory. Nothing runs in the background; there is nothing to close.

    A custom resource is served like this, ``MY_KIND`` being its Kind::

        FakeCluster(catalog=Catalog(extra=(Resource.custom(MY_KIND, "spec.node"),)))

    Attributes:
        store: the objects as plain JSON, for tests that look behind the port.
        catalog: which resources are served now.
        faults: what goes wrong, on order.
    """

    def __init__(
        self,
        *,
        disabled_gates: Collection[str] = (),
        catalog: Catalog | None = None,
        window: int = 1000,
        bookmarks: float = BOOKMARKS,
        watch_seconds: float | None = None,
    ) -> None:
        """Start empty.

        Fields of ``disabled_gates`` are dropped from slices without a word; ``catalog`` says what is served (None: as a
        1.37 does by default); watches remember ``window`` steps, send a bookmark every ``bookmarks`` seconds, and end
        after ``watch_seconds`` (None = never).
        """
        self.store = Store(disabled_gates=disabled_gates, window=window)
        self.faults = Faults()
        self.catalog = catalog or Catalog()
        self.watching = Watching(self.store, bookmarks)
        self._watch_seconds = watch_seconds

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        """Return the object, or None when there is none."""
        object_path(kind, name, namespace)  # refuses what has no path
        try:
            resource = await self._resource("get", kind)
            return _typed(kind, self.store.get(resource, namespace or "", name))
        except Refusal as refusal:
            if refusal.code == HTTPStatus.NOT_FOUND and refusal.name:
                return None
            raise _error(refusal, "get") from None

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Listing[T]:
        """Return all objects that the selector matches."""
        try:
            resource = await self._resource("list", kind)
            found, version = self.store.select(resource, selector)
        except Refusal as refusal:
            raise _error(refusal, "list") from None
        return Listing(tuple(_typed(kind, obj) for obj in found), str(version))

    async def watch(
        self, kind: Kind[T], since: str, selector: Selector = EVERYTHING
    ) -> AsyncGenerator[Change[T], None]:
        """Yield changes after ``since``, the first a BOOKMARK at ``since``."""
        try:
            resource = await self._resource("watch", kind)
            events = self.watching.watch(resource, int(since), selector, self._watch_seconds)
            async with aclosing(events):
                async for change, obj, version in events:
                    yield Change(change, None if obj is None else _typed(kind, obj), str(version))
        except Refusal as refusal:
            raise _error(refusal, "watch") from None

    async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False) -> T:
        """Create and return what was stored, or with ``dry_run`` would be; Conflict when the name exists."""
        try:
            resource = await self._resource("create", kind)
            return _typed(kind, self.store.create(resource, _plain(kind, obj), dry_run=dry_run))
        except Refusal as refusal:
            raise _error(refusal, "create") from None

    async def replace(self, kind: Kind[T], obj: T) -> T:
        """PUT the object; Conflict unless its resource version is the stored one."""
        if not _json(obj)["metadata"].get("resourceVersion"):
            raise Conflict("replace: metadata.resourceVersion is not set", code=409)
        try:
            resource = await self._resource("replace", kind)
            return _typed(kind, self.store.replace(resource, _plain(kind, obj)))
        except Refusal as refusal:
            raise _error(refusal, "replace") from None

    async def apply(self, kind: Kind[T], fields: Mapping[str, Any], manager: str, subresource: str = "") -> T:
        """Server-side apply, forced."""
        meta = fields.get("metadata") or {}
        object_path(kind, meta.get("name"), meta.get("namespace"))  # refuses what has no path
        try:
            resource = await self._resource("apply", kind)
            if subresource not in ("", *(("status",) if resource.status else ())):
                raise unknown_resource()
            return _typed(kind, self.store.apply(resource, _json(fields), manager, subresource))
        except Refusal as refusal:
            raise _error(refusal, "apply") from None

    async def delete(self, kind: Kind[T], obj: T) -> bool:
        """Delete the object if UID and resource version match; False when it was gone or replaced."""
        meta = _plain(kind, obj)["metadata"]
        where = (meta.get("namespace") or "", meta["name"])
        try:
            resource = await self._resource("delete", kind)
            if not self._is_stored(resource, where, meta.get("uid")):
                return False
            self.store.delete(resource, *where, {"resourceVersion": meta.get("resourceVersion")})
            return True
        except Refusal as refusal:
            raise _error(refusal, "delete") from None

    async def served(self, kind: Kind[T]) -> bool:
        """Tell whether the resource is in the catalog."""
        try:
            await self.faults.meet("discover", "")
        except Refusal as refusal:
            raise _error(refusal, "discover") from None
        return self.catalog.of(kind) is not None

    @contextmanager
    def away(self) -> Iterator[None]:
        """Be out of reach as long as the context lasts: running watches break, and every request fails at once."""
        self.faults.unreachable = True
        self.watching.end(0)
        try:
            yield
        finally:
            self.faults.unreachable = False

    async def put_json(self, obj: _Json) -> _Json:
        """Store an object as it is, status included, over what is there: how tests play scheduler and users."""
        resource = self.catalog.named(obj["apiVersion"], obj["kind"])
        try:
            return self.store.put(resource, _json(obj))
        except Refusal as refusal:
            raise _error(refusal, "put") from None

    def _is_stored(self, resource: Resource, where: tuple[str, str], uid: str | None) -> bool:
        try:
            stored = self.store.get(resource, *where)
        except Refusal:
            return False
        return uid is None or stored["metadata"]["uid"] == uid

    async def _resource(self, verb: str, kind: Kind[T]) -> Resource:
        await self.faults.meet(verb, kind.plural)
        resource = self.catalog.of(kind)
        if resource is None:
            raise unknown_resource()
        return resource


def _typed(kind: Kind[T], obj: _Json) -> T:
    return decode(msgspec.json.encode(obj), kind.type)


def _plain(kind: Kind[T], obj: T) -> _Json:
    plain = {"apiVersion": kind.api_version, **_json(obj), "kind": kind.name}
    if plain["apiVersion"] != kind.api_version:
        raise other_version(plain["apiVersion"], kind.api_version)
    return plain


def _json(obj: object) -> _Json:
    plain: _Json = msgspec.json.decode(encode(obj))
    return plain


def _error(refusal: Refusal, verb: str) -> ClusterError:
    return error_for(refusal.code, f"{verb}: {refusal}", fields=refusal.fields, retry_after=refusal.retry_after)
