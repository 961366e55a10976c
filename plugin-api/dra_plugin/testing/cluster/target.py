"""What a request of the REST API is about: resource, namespace, name, subresource, selector."""

from collections.abc import Mapping

import msgspec

from dra_plugin.cluster import Selector
from dra_plugin.testing.cluster.catalog import Catalog, Resource
from dra_plugin.testing.cluster.refusal import unknown_resource

__all__ = ["Target", "target_of"]


class Target(msgspec.Struct, frozen=True):
    """The parts of a path; empty where they are missing."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    selector: Selector


def target_of(path: str, parameters: Mapping[str, str], catalog: Catalog) -> Target:
    """Read path and query; Refusal 404 for what is not served."""
    parts = [part for part in path.split("/") if part]
    group, rest = ("", parts[1:]) if parts[:1] == ["api"] else ("/".join(parts[1:2]), parts[2:])
    version, rest = "".join(rest[:1]), rest[1:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - namespaces/<namespace>/<plural>
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    resource = catalog.at(group, version, plural)
    known = ("", "status") if resource and resource.status else ("",)
    if resource is None or subresource not in known:
        raise unknown_resource()
    selector = Selector(
        namespace=namespace or None,
        fields=_equalities(parameters.get("fieldSelector", "")),
        labels=_equalities(parameters.get("labelSelector", "")),
    )
    return Target(resource, namespace, name, subresource, selector)


def _equalities(text: str) -> dict[str, str]:
    pairs = [term.replace("==", "=").partition("=") for term in text.split(",") if term]
    return {name.strip(): value.strip() for name, _, value in pairs}
