"""URL paths of the API server for kinds, objects and selectors."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from dra_plugin.cluster import Selector
from dra_plugin.errors import Rejected
from dra_plugin.resources import Kind

__all__ = ["collection_path", "group_path", "object_path", "query"]


def group_path(kind: Kind[Any]) -> str:
    """Return where the kind's group and version are described."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def collection_path(kind: Kind[Any], namespace: str | None) -> str:
    """Return the path of the kind's objects, of one namespace or of all."""
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind.namespaced else ""
    return f"{group_path(kind)}{inside}/{kind.plural}"


def object_path(kind: Kind[Any], name: str | None, namespace: str | None, subresource: str = "") -> str:
    """Return the path of one object; Rejected when name or namespace is missing."""
    if not name or (kind.namespaced and not namespace):
        raise Rejected(f"{kind.plural}: metadata.name or metadata.namespace is not set", code=400)
    path = f"{collection_path(kind, namespace)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def query(selector: Selector, **more: str) -> str:
    """Return ``?…`` for a selector and further parameters, or nothing."""
    parameters = {**more, "fieldSelector": _equalities(selector.fields), "labelSelector": _equalities(selector.labels)}
    text = urlencode({name: value for name, value in parameters.items() if value})
    return f"?{text}" if text else ""


def _equalities(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in wanted.items())
