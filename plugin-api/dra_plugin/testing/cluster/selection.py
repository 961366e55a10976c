"""Which objects a selector matches, and what a watch with that selector says of a step of the history."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

from dra_plugin.cluster import Selector
from dra_plugin.testing.cluster.catalog import Resource
from dra_plugin.testing.cluster.refusal import Refusal

__all__ = ["Matcher", "event_for", "matcher"]

_Json = dict[str, Any]
_EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Matcher = Callable[[_Json], bool]
_COMMON = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}


def matcher(resource: Resource, selector: Selector) -> Matcher:
    """Return a test for objects; raises Refusal 400 for a field that cannot be selected."""
    known = {**_COMMON, **resource.fields}
    for label in selector.fields:
        if label not in known or (label == "metadata.namespace" and not resource.namespaced):
            text = f'"{label}" is not a known field selector of {resource.kind}'
            raise Refusal(HTTPStatus.BAD_REQUEST, "BadRequest", text)
    wanted = [(known[label], value) for label, value in selector.fields.items()]
    labels = selector.labels.items()

    def matches(obj: _Json) -> bool:
        meta = obj["metadata"]
        if selector.namespace is not None and (meta.get("namespace") or "") != selector.namespace:
            return False
        return labels <= (meta.get("labels") or {}).items() and all(_at(obj, path) == value for path, value in wanted)

    return matches


def _at(obj: Any, path: tuple[str, ...]) -> str:  # noqa: ANN401 - any JSON
    for part in path:
        obj = (obj or {}).get(part)
    return "" if obj is None else str(obj)


def event_for(matches: Matcher, before: _Json | None, after: _Json | None) -> tuple[_EventType, _Json] | None:
    """Return the watch event of a step: type and object; None when the selector never matched."""
    was = before is not None and matches(before)
    if after is not None and matches(after):
        return ("MODIFIED" if was else "ADDED"), after
    if was and before is not None:
        version = (after or before)["metadata"]["resourceVersion"]
        return "DELETED", {**before, "metadata": {**before["metadata"], "resourceVersion": version}}
    return None
