"""The resources that the fake API server serves."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from dra_plugin.resources import DEVICE_TAINT_RULES, Kind

__all__ = ["OPTIONAL_APIS", "SERVED", "Catalog", "Resource"]

_Path = tuple[str, ...]


class Resource(msgspec.Struct, frozen=True):
    """One resource in one version. Resources that differ in the version alone share their objects.

    Attributes:
        fields: which fields a field selector may name, and where they are: label -> path.
        status: there is a subresource ``status``: it alone writes the status, and it writes nothing else.
        lists: which lists are maps for server-side apply: path -> the members that name an item.
        unconditional: a PUT without ``metadata.resourceVersion`` overwrites whatever is there; otherwise it is refused.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    fields: Mapping[str, _Path] = {}
    status: bool = False
    lists: Mapping[_Path, tuple[str, ...]] = {}
    unconditional: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name that error texts use, and under which objects are stored: ``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @classmethod
    def custom(cls, kind: Kind[Any], *selectable: str) -> "Resource":
        """Return what a CustomResourceDefinition with a status subresource serves.

        ``selectable`` are the paths of its selectable fields, ``spec.node``.
        """
        names = (kind.group, kind.version, kind.plural, kind.name, kind.namespaced)
        return cls(*names, fields=_paths(*selectable), status=True, unconditional=False)


class Catalog:
    """What is served now; it may change, as it does on a real server when a CRD is installed or an API switched off."""

    def __init__(
        self, *, apis: Collection[str] = (), unserved: Collection[str] = (), extra: Iterable[Resource] = ()
    ) -> None:
        """Serve what a 1.37 serves by default.

        ``apis``: of ``OPTIONAL_APIS`` those that are on (``resource.k8s.io/v1beta2``). ``unserved``: plurals that are
        not served in any version. ``extra``: custom resources.
        """
        unknown = sorted(set(apis) - {row.api_version for row in _OPTIONAL})
        if unknown:
            raise ValueError(f"apis: {unknown[0]!r} is none of {', '.join(OPTIONAL_APIS)}")
        rows = (*SERVED, *(row for row in _OPTIONAL if row.api_version in apis), *extra)
        self.rows = tuple(row for row in rows if row.plural not in unserved)

    def serve(self, resource: Resource) -> None:
        """Serve one more, from now on; what was stored of it before is there."""
        self.rows = (*self.rows, resource)

    def withdraw(self, plural: str, api_version: str = "") -> None:
        """Serve a resource no more, in one version or (empty) in any; its objects stay stored."""
        self.rows = tuple(row for row in self.rows if row.plural != plural or api_version not in ("", row.api_version))

    def at(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource that is served there, or None."""
        wanted = (group, version, plural)
        return next((row for row in self.rows if (row.group, row.version, row.plural) == wanted), None)

    def of(self, kind: Kind[Any]) -> Resource | None:
        """Return the served resource of a Kind, or None."""
        return self.at(kind.group, kind.version, kind.plural)

    def named(self, api_version: str, kind: str) -> Resource:
        """Return the resource of an object by its apiVersion and kind; ValueError when it is not served."""
        found = next((row for row in self.rows if (row.api_version, row.kind) == (api_version, kind)), None)
        if found is None:
            raise ValueError(f"{api_version} {kind} is not served")
        return found


def _paths(*dotted: str) -> dict[str, _Path]:
    return {text: tuple(text.split(".")) for text in dotted}


def _rule(kind: Kind[Any], *, unconditional: bool) -> Resource:
    names = (kind.group, kind.version, kind.plural, kind.name)
    return Resource(*names, status=True, unconditional=unconditional)


_CLAIM_LISTS: Mapping[_Path, tuple[str, ...]] = {
    ("status", "devices"): ("driver", "device", "pool", "shareID"),
    ("status", "reservedFor"): ("uid",),
}
SERVED = (
    Resource("", "v1", "namespaces", "Namespace", status=True),
    Resource("", "v1", "nodes", "Node", status=True),
    Resource("", "v1", "pods", "Pod", namespaced=True, status=True, fields=_paths("spec.nodeName", "status.phase")),
    Resource("", "v1", "events", "Event", namespaced=True, fields=_paths("reason", "type", "involvedObject.name")),
    Resource("", "v1", "configmaps", "ConfigMap", namespaced=True),
    Resource(
        "events.k8s.io", "v1", "events", "Event", namespaced=True, fields=_paths("reason", "type", "regarding.name")
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, unconditional=False),
    Resource(
        "resource.k8s.io",
        "v1",
        "resourceslices",
        "ResourceSlice",
        fields=_paths("spec.nodeName", "spec.driver", "spec.pool.name"),
    ),
    Resource(
        "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True, status=True, lists=_CLAIM_LISTS
    ),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True),
    Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
    _rule(DEVICE_TAINT_RULES[0], unconditional=False),
)
"""What is served by default."""
_OPTIONAL = tuple(_rule(kind, unconditional=True) for kind in DEVICE_TAINT_RULES[1:])
OPTIONAL_APIS = tuple(row.api_version for row in _OPTIONAL)
"""Group and version of what a 1.37 serves only when it is switched on (``--runtime-config``)."""
