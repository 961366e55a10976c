"""The documents by which an API server says what it serves."""

from collections.abc import Sequence
from typing import Any

from dra_plugin.testing.cluster.catalog import Resource

__all__ = ["described"]

_Json = dict[str, Any]
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0-fake"}


def described(path: str, rows: Sequence[Resource]) -> _Json | None:
    """Return the document at ``path`` about what is served, or None when it is none of discovery's."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return dict(_VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            names = sorted({row.group for row in rows if row.group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, rows) for name in names]}
        case ["api", version]:
            return _resources("", version, rows)
        case ["apis", group, version]:
            return _resources(group, version, rows)
    return None


def _group(group: str, rows: Sequence[Resource]) -> _Json:
    versions = dict.fromkeys(row.version for row in rows if row.group == group)
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resources(group: str, version: str, rows: Sequence[Resource]) -> _Json | None:
    served = [row for row in rows if (row.group, row.version) == (group, version)]
    if not served:
        return None
    entries = [
        {"name": row.plural, "kind": row.kind, "namespaced": row.namespaced, "singularName": "", "verbs": _VERBS}
        for row in served
    ]
    names = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served[0].api_version}
    return {**names, "resources": entries}
