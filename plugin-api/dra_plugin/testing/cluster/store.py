"""The objects of the fake API server as plain JSON, its versions, and the history that watches read.

Objects are never changed in place: each write stores a new one. Everything here is synchronous, so a request is one
atomic step of the event loop. Requests that cannot be done raise Refusal.
"""

import random
import uuid
from collections import deque
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from dra_plugin.cluster import EVERYTHING, Selector
from dra_plugin.latest import Latest
from dra_plugin.testing.cluster.admission import Admission
from dra_plugin.testing.cluster.apply import Managers, applied
from dra_plugin.testing.cluster.catalog import Resource
from dra_plugin.testing.cluster.refusal import Refusal, conflict, invalid, not_found
from dra_plugin.testing.cluster.rules import now
from dra_plugin.testing.cluster.selection import matcher

__all__ = ["Entry", "Store", "shown"]

_Json = dict[str, Any]
_Key = tuple[str, str, str]  # qualified resource, namespace, name
_APPLIED_META = ("labels", "annotations", "ownerReferences", "finalizers")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_OLD = "The resourceVersion for the provided watch is too old."


class Entry(msgspec.Struct, frozen=True):
    """One step of the history: an object before and after (None: did not exist)."""

    version: int
    resource: str
    before: _Json | None
    after: _Json | None


class Store:
    """The API server's memory.

    Attributes:
        version: the newest resource version; watches follow it.
    """

    def __init__(self, *, disabled_gates: Collection[str] = (), window: int = 1000) -> None:
        """Keep ``window`` steps of history; fields of ``disabled_gates`` are removed on write."""
        self.version: Latest[int] = Latest(1)
        self._objects: dict[_Key, _Json] = {}
        self._managers: dict[_Key, Managers] = {}
        self._history: deque[Entry] = deque()
        self._window = window
        self._forgotten = 0
        self._admission = Admission(frozenset(disabled_gates))

    def disable_gates(self, gates: Collection[str]) -> None:
        """Be an API server whose feature gates ``gates`` are off, and all others on, from now on."""
        self._admission = Admission(frozenset(gates))

    def get(self, resource: Resource, namespace: str, name: str) -> _Json:
        """Return an object."""
        return shown(resource, self._stored(resource, namespace, name))

    def select(self, resource: Resource, selector: Selector = EVERYTHING) -> tuple[list[_Json], int]:
        """Return the matching objects in the order of their names, and the version they were read at."""
        matches = matcher(resource, selector)
        rows = sorted((key, obj) for key, obj in self._objects.items() if key[0] == resource.qualified)
        return [shown(resource, obj) for _, obj in rows if matches(obj)], self.version.value

    def since(self, version: int) -> list[Entry]:
        """Return the history after ``version``; Refusal 410 when some of it is forgotten."""
        if version < self._forgotten:
            raise Refusal(HTTPStatus.GONE, "Expired", f"{_OLD} {version} < {self._forgotten}")
        return [entry for entry in self._history if entry.version > version]

    def forget_history(self) -> None:
        """Compact: watches from any version before now, running ones too, end with 410."""
        self._history.clear()
        self._forgotten = self.version.value + 1
        self.version.set(self._forgotten)

    def create(self, resource: Resource, obj: _Json, *, dry_run: bool = False, with_status: bool = False) -> _Json:
        """Store a new object under its name, or under one made from generateName; a status is left out.

        ``dry_run``: return what would be stored, without a resource version.
        """
        meta = obj.get("metadata") or {}
        if meta.get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "", text)  # as the real server does
        if resource.namespaced and not meta.get("namespace"):
            text = "the server does not allow this method on the requested resource"
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", text)
        name = meta.get("name") or self._generated(resource, meta)
        if (resource.qualified, meta.get("namespace") or "", name) in self._objects:
            raise conflict(resource.qualified, name, "already exists", "AlreadyExists")
        fresh = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        body = {key: value for key, value in obj.items() if key != "status" or with_status or not resource.status}
        new = {**body, "metadata": {**meta, **fresh}}
        return self._admission.admitted(resource, new, None) if dry_run else self._write(resource, new, None)

    def replace(self, resource: Resource, obj: _Json, subresource: str = "") -> _Json:
        """PUT: the version must be the stored one where it is set, and most newer resources demand that it is."""
        meta = obj.get("metadata") or {}
        name = meta.get("name") or ""
        old = self._stored(resource, meta.get("namespace") or "", name)
        if not meta.get("resourceVersion") and not resource.unconditional:
            problem = ("metadata.resourceVersion", "must be specified for an update")
            raise invalid(f"{resource.kind}.{resource.group}", name, (problem,))
        for member in ("resourceVersion", "uid"):
            if meta.get(member) and meta[member] != old["metadata"][member]:
                raise conflict(resource.qualified, name, f"the object has been modified: {member} differs")
        return self._write(resource, _replaced(resource, obj, old, subresource), old)

    def put(self, resource: Resource, obj: _Json) -> _Json:
        """Store the whole object, status included, over whatever is there."""
        meta = obj["metadata"]
        old = self._objects.get((resource.qualified, meta.get("namespace") or "", meta.get("name") or ""))
        return self.create(resource, obj, with_status=True) if old is None else self._write(resource, obj, old)

    def apply(self, resource: Resource, fields: Mapping[str, Any], manager: str, subresource: str = "") -> _Json:
        """Server-side apply, forced; creates the object where it is missing, unless a subresource is applied."""
        meta = fields.get("metadata") or {}
        key = (resource.qualified, meta.get("namespace") or "", meta.get("name") or "")
        old = self._objects.get(key)
        if old is None and subresource:
            raise not_found(resource.qualified, key[2])
        if old and meta.get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            raise conflict(resource.qualified, key[2], "the object has been modified: resourceVersion differs")
        wanted, owner = _appliable(resource, fields, subresource), f"{manager}/{subresource}"
        new, managers = applied(
            old or _bare(resource, meta), wanted, owner, self._managers.get(key, {}), resource.lists
        )
        stored = self.create(resource, new) if old is None else self._write(resource, new, old)
        self._managers[key] = managers
        return stored

    def delete(self, resource: Resource, namespace: str, name: str, preconditions: Mapping[str, str | None]) -> _Json:
        """Delete the object if UID and version are the wanted ones; with finalizers it is only marked."""
        old = self._stored(resource, namespace, name)
        for member, wanted in preconditions.items():
            if wanted and wanted != old["metadata"][member]:
                raise conflict(resource.qualified, name, f"precondition failed: {member}: {wanted}")
        if old["metadata"].get("finalizers"):
            marked = {**old["metadata"], "deletionTimestamp": old["metadata"].get("deletionTimestamp") or now()}
            return self._write(resource, {**old, "metadata": marked}, old)
        return self._remove(resource, old)

    def _stored(self, resource: Resource, namespace: str, name: str) -> _Json:
        found = self._objects.get((resource.qualified, namespace, name))
        if found is None:
            raise not_found(resource.qualified, name)
        return found

    def _generated(self, resource: Resource, meta: _Json) -> str:
        prefix: str | None = meta.get("generateName")
        if not prefix:
            problem = ("metadata.name", "Required value: name or generateName is required")
            raise invalid(resource.kind, "", (problem,))
        return prefix[:58] + "".join(random.choices(_SUFFIX, k=5))

    def _write(self, resource: Resource, new: _Json, old: _Json | None) -> _Json:
        new = self._admission.admitted(resource, new, old)
        if old is not None:
            kept = {member: old["metadata"][member] for member in ("uid", "creationTimestamp", "resourceVersion")}
            grown = old["metadata"]["generation"] + (new.get("spec") != old.get("spec"))
            new = {**new, "apiVersion": old["apiVersion"], "metadata": {**new["metadata"], **kept, "generation": grown}}
            if new == old:
                return shown(resource, old)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._remove(resource, new)
        stored = self._numbered(new)
        self._objects[_key(resource, stored)] = stored
        self._remember(resource, old, stored)
        return shown(resource, stored)

    def _remove(self, resource: Resource, old: _Json) -> _Json:
        key = _key(resource, old)
        before = self._objects.pop(key)
        self._managers.pop(key, None)
        gone = self._numbered(before)
        self._remember(resource, gone, None)
        return shown(resource, gone)

    def _numbered(self, obj: _Json) -> _Json:
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version.value + 1)}}

    def _remember(self, resource: Resource, before: _Json | None, after: _Json | None) -> None:
        version = self.version.value + 1
        self._history.append(Entry(version, resource.qualified, before, after))
        if len(self._history) > self._window:
            self._forgotten = self._history.popleft().version
        self.version.set(version)


def shown(resource: Resource, obj: _Json) -> _Json:
    """Return the object as ``resource`` shows it: its versions share their objects and their fields."""
    return obj if obj.get("apiVersion") == resource.api_version else {**obj, "apiVersion": resource.api_version}


def _key(resource: Resource, obj: _Json) -> _Key:
    return resource.qualified, obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def _replaced(resource: Resource, obj: _Json, old: _Json, subresource: str) -> _Json:
    """Return what a PUT stores: the status only through its subresource, everything else only without."""
    if subresource:
        return {**old, "status": obj.get("status")}
    if not resource.status:
        return obj
    return {**{key: value for key, value in obj.items() if key != "status"}, **_only(old, "status")}


def _bare(resource: Resource, meta: Mapping[str, Any]) -> _Json:
    """Return an object that has a name and nothing else."""
    named = {member: meta[member] for member in ("name", "namespace") if member in meta}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": named}


def _appliable(resource: Resource, fields: Mapping[str, Any], subresource: str) -> _Json:
    if subresource:
        return _only(fields, subresource)
    named = {"apiVersion", "kind", "status"} if resource.status else {"apiVersion", "kind"}
    meta = {key: value for key, value in (fields.get("metadata") or {}).items() if key in _APPLIED_META}
    return {**{key: value for key, value in fields.items() if key not in named}, "metadata": meta}


def _only(obj: Mapping[str, Any], member: str) -> _Json:
    return {member: obj[member]} if member in obj else {}
