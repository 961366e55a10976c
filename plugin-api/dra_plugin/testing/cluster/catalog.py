"""The resources that the fake API server serves."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_plugin.resources import Kind

__all__ = ["CATALOG", "Resource", "resource_of"]


class Resource(msgspec.Struct, frozen=True):
    """One resource: where it is served, and which fields a field selector may name (label -> path)."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    fields: Mapping[str, tuple[str, ...]] = {}
    status: bool = False

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name that error texts use: ``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _paths(*dotted: str) -> dict[str, tuple[str, ...]]:
    return {text: tuple(text.split(".")) for text in dotted}


CATALOG = (
    Resource("", "v1", "namespaces", "Namespace", status=True),
    Resource("", "v1", "nodes", "Node", status=True),
    Resource("", "v1", "pods", "Pod", namespaced=True, status=True, fields=_paths("spec.nodeName", "status.phase")),
    Resource("", "v1", "events", "Event", namespaced=True, fields=_paths("reason", "type", "involvedObject.name")),
    Resource("", "v1", "configmaps", "ConfigMap", namespaced=True),
    Resource(
        "events.k8s.io", "v1", "events", "Event", namespaced=True, fields=_paths("reason", "type", "regarding.name")
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    Resource(
        "resource.k8s.io",
        "v1",
        "resourceslices",
        "ResourceSlice",
        fields=_paths("spec.nodeName", "spec.driver", "spec.pool.name"),
    ),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True, status=True),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True),
    Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
    Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", status=True),
)


def resource_of(kind: Kind[Any]) -> Resource | None:
    """Return the served resource of a Kind, or None."""
    wanted = (kind.group, kind.version, kind.plural)
    return next((row for row in CATALOG if (row.group, row.version, row.plural) == wanted), None)
