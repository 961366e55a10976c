"""Server-side apply over plain JSON: who owns which field, and what an apply changes (KEP-555), always forced.

A path is a tuple of member names; an item of a list that is a map (``status.devices`` of a claim, ``conditions`` ...)
is named by its keys. Lists that are no maps are one value. Which lists are maps depends on the resource.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Managers", "applied"]

_Json = dict[str, Any]
_Path = tuple[Any, ...]
_Lists = Mapping[_Path, tuple[str, ...]]
Managers = Mapping[str, frozenset[_Path]]


def applied(
    live: _Json, fields: _Json, manager: str, managers: Managers, lists: _Lists | None = None
) -> tuple[_Json, Managers]:
    """Return the object and its managers after ``manager`` applied ``fields``.

    ``lists`` are the resource's own lists that are maps: path -> the members that name an item.
    """
    lists = {("metadata", "ownerReferences"): ("uid",), **(lists or {})}
    wanted = frozenset(_paths(fields, lists))
    others = {
        name: frozenset(path for path in owned if path not in wanted or _at(live, path) == _at(fields, path))
        for name, owned in managers.items()
        if name != manager
    }
    merged = _merged(live, fields, lists, ())
    given_up = managers.get(manager, frozenset()) - wanted
    for path in sorted(given_up - frozenset().union(*others.values()), key=len):
        merged = _removed(merged, path)
    return merged, {**others, manager: wanted}


def _item_keys(path: _Path, lists: _Lists) -> tuple[str, ...] | None:
    """Return the keys of the list at ``path``, or None when it is one value."""
    return ("type",) if path and path[-1] == "conditions" else lists.get(path)


def _item_name(item: _Json, keys: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, item.get(key)) for key in keys)


def _paths(value: Any, lists: _Lists, path: _Path = ()) -> Iterator[_Path]:  # noqa: ANN401 - any JSON
    keys = _item_keys(path, lists)
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _paths(member, lists, (*path, name))
    elif isinstance(value, list) and keys:
        for item in value:
            name = _item_name(item, keys)
            yield (*path, name)
            yield from _paths(item, lists, (*path, name))
    else:
        yield path


def _merged(live: Any, fields: Any, lists: _Lists, path: _Path) -> Any:  # noqa: ANN401 - any JSON
    keys = _item_keys(path, lists)
    if isinstance(fields, dict) and isinstance(live, dict):
        new = {name: _merged(live.get(name), value, lists, (*path, name)) for name, value in fields.items()}
        return {**live, **new}
    if isinstance(fields, list) and keys:
        found = {_item_name(item, keys): item for item in live or ()}
        for item in fields:
            name = _item_name(item, keys)
            found[name] = _merged(found.get(name, {}), item, lists, (*path, name))
        return list(found.values())
    return fields


def _at(value: Any, path: _Path) -> Any:  # noqa: ANN401 - any JSON
    for part in path:
        value = _member(value, part)
    return value


def _member(value: Any, part: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(part, str):
        return value.get(part) if isinstance(value, dict) else None
    keys = [key for key, _ in part]
    return next((item for item in value or () if _item_name(item, keys) == part), None)


def _removed(value: Any, path: _Path) -> Any:  # noqa: ANN401 - any JSON
    """Return ``value`` without what is at ``path``."""
    part, rest = path[0], path[1:]
    member = _member(value, part)
    if member is None:
        return value
    if isinstance(part, str):
        without = {name: item for name, item in value.items() if rest or name != part}
        return {**without, part: _removed(member, rest)} if rest else without
    return [_removed(item, rest) if item is member else item for item in value if rest or item is not member]
