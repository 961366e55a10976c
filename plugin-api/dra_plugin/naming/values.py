"""Attribute values: what the API and CEL take, and the nearest value that fits. Source: dra-1.37.md 3.3."""

from collections.abc import Callable
from typing import Any

from dra_plugin.naming.names import version
from dra_plugin.resources import DeviceAttribute

__all__ = ["fitted_attribute", "value_count"]

_BYTES = 64
_ONE = "exactly one member must be set"
_RULES = {
    "boolean": "must be a boolean",
    "integer": "must be a whole number of 64 bits",
    "string": "must be a text of at most 64 bytes of UTF-8",
    "version": "must be a semantic version 2.0.0 of at most 64 characters, its numbers within 64 bits",
}
_LISTS = {"booleans": "boolean", "integers": "integer", "strings": "string", "versions": "version"}


def fitted_attribute(attribute: DeviceAttribute) -> tuple[DeviceAttribute | None, str | None]:
    """Return what to publish for ``attribute`` (None: nothing fits) and the rule it breaks (None: fine as it is)."""
    text = attribute.string
    if isinstance(text, str) and len(text) <= _BYTES and text.isascii() and attribute == DeviceAttribute(string=text):
        return attribute, None  # nearly all are like this: hundreds of devices are checked at each change
    members = [name for name in attribute.__struct_fields__ if getattr(attribute, name) is not None]
    if len(members) != 1:
        return None, _ONE
    name = members[0]
    value = getattr(attribute, name)
    fit = _fit_list(_LISTS[name], value) if name in _LISTS else _FITS[name](value)
    if fit is None:
        return None, _rule(name)
    if fit == value:
        return attribute, None
    changed: dict[str, Any] = {name: fit}
    return DeviceAttribute(**changed), _rule(name)


def value_count(attribute: DeviceAttribute) -> int:
    """Return how many values ``attribute`` holds; a device may have 48 in all."""
    if attribute.string is not None:
        return 1
    return max((len(items) for name in _LISTS if (items := getattr(attribute, name))), default=1)


def _rule(name: str) -> str:
    return f"must not be empty; each {_RULES[_LISTS[name]]}" if name in _LISTS else _RULES[name]


def _fit_list(member: str, items: Any) -> tuple[Any, ...] | None:  # noqa: ANN401 - msgspec does not check what it is given
    if not isinstance(items, tuple | list) or not items:
        return None
    fits = tuple(_FITS[member](item) for item in items)
    return None if None in fits else fits


def _fit_boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _fit_integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _fit_string(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "ignore")[:_BYTES].decode("utf-8", "ignore")


def _fit_version(value: object) -> str | None:
    return version(value) if isinstance(value, str) else None


_FITS: dict[str, Callable[[object], Any]] = {
    "boolean": _fit_boolean,
    "integer": _fit_integer,
    "string": _fit_string,
    "version": _fit_version,
}
