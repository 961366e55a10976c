"""Strict decoding of what people write, with errors that name the key, the value and what is allowed instead."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

import msgspec

from dra_plugin.quantity import Quantity

__all__ = ["Delay", "Misfit", "Seconds", "decode_strictly", "suggestion"]

T = TypeVar("T")
_TYPES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
_AT = re.compile(r"(?s)(.*?)(?: - at `(?:key` in `)?\$(.*)`)?$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`$")
_PATH_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_LONGEST = 86_400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")


class Misfit(ValueError):
    """A document does not fit. ``key`` is the path of keys (``gpu.driver``), empty for the whole document."""

    def __init__(self, key: str, problem: str) -> None:
        """Keep the key and the problem, a text for people."""
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem


class Seconds(float):
    """A duration from 1ms to 24h in seconds, written as a number or as text such as ``5s``, ``500ms``, ``2m``."""

    __slots__ = ()
    shortest = 0.001

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a number of seconds or a text; raises ValueError."""
        match = None if isinstance(value, bool) else _DURATION.fullmatch(str(value))
        seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else -1.0
        if not cls.shortest <= seconds <= _LONGEST:
            raise ValueError(f"not a duration from {cls.shortest:g}s to 24h")
        return cls(seconds)

    def __str__(self) -> str:
        return f"{float(self):.9f}".rstrip("0").rstrip(".") + "s"


class Delay(Seconds):
    """The same, and 0 for at once."""

    __slots__ = ()
    shortest = 0.0


def decode_strictly(document: object, into: type[T], *, texts: bool = False) -> T:
    """Return ``document`` (mappings, lists, scalars) as ``into``, a struct that forbids unknown fields.

    ``texts`` says that numbers and booleans may be written as text, as on a command line. Raises Misfit.
    """
    try:
        return msgspec.convert(document, into, strict=not texts, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), document, into) from None


def suggestion(word: object, known: Iterable[object]) -> str:
    """Return `` (did you mean "x"?)`` when one of the ``known`` is near, else nothing."""
    import difflib

    near = difflib.get_close_matches(str(word), [str(name) for name in known], n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


def _decode(into: type, value: Any) -> object:  # noqa: ANN401 - msgspec's hook signature
    if issubclass(into, Seconds):
        return into.parse(value)
    if into is Quantity:
        return Quantity(str(value))
    raise NotImplementedError(f"{into.__name__} cannot be decoded")


def _misfit(message: str, document: object, into: type) -> Misfit:
    """Translate msgspec's message: find the place in the document and in the type, then say it for people."""
    match = _AT.fullmatch(message)
    text, where = match.groups() if match else (message, "")
    path = [name or int(index) for name, index in _PATH_PART.findall(where or "") if index != "..."]
    node = _node_at(msgspec.inspect.type_info(into), path)
    for form, say in ((_UNKNOWN, _unknown), (_MISSING, _missing)):
        if found := form.fullmatch(text):
            return Misfit(_key([*path, found[1]]), say(found[1], node))
    return Misfit(_key(path), _wrong(_value_at(document, path), node, text))


def _unknown(name: str, node: msgspec.inspect.Type) -> str:
    keys = _keys(node)
    return f"unknown key{suggestion(name, keys)}; allowed: {', '.join(keys)}"


def _missing(name: str, node: msgspec.inspect.Type) -> str:
    fields = {field.encode_name: field.type for field in getattr(_plain(node), "fields", ())}
    return f"missing; needed: {_allowed(fields[name])}" if name in fields else "missing"


def _wrong(value: object, node: msgspec.inspect.Type, text: str) -> str:
    allowed = _allowed(node) or text
    return f"{_shown(value)} is not allowed{suggestion(value, _literals(node))}; allowed: {allowed}"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"  # noqa: PLR2004 - a line for people


def _key(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _value_at(document: Any, path: Sequence[str | int]) -> object:  # noqa: ANN401 - any document
    for part in path:
        document = document[part]
    return document


def _node_at(node: msgspec.inspect.Type, path: Sequence[str | int]) -> msgspec.inspect.Type:
    for part in path:
        node = _child(_plain(node), part)
    return node


def _child(node: msgspec.inspect.Type, part: str | int) -> msgspec.inspect.Type:
    if isinstance(node, msgspec.inspect.StructType):
        return next(field.type for field in node.fields if field.encode_name == part)
    if isinstance(node, msgspec.inspect.DictType):
        return node.value_type
    if isinstance(node, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        return node.item_type
    return msgspec.inspect.AnyType()


def _plain(node: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Strip descriptions and an alternative None."""
    while isinstance(node, msgspec.inspect.Metadata):
        node = node.type
    if isinstance(node, msgspec.inspect.UnionType):
        return _plain(next(kind for kind in node.types if not isinstance(kind, msgspec.inspect.NoneType)))
    return node


def _keys(node: msgspec.inspect.Type) -> tuple[str, ...]:
    return tuple(field.encode_name for field in getattr(_plain(node), "fields", ()))


def _literals(node: msgspec.inspect.Type) -> tuple[object, ...]:
    plain = _plain(node)
    return tuple(plain.values) if isinstance(plain, msgspec.inspect.LiteralType) else ()


def _allowed(node: msgspec.inspect.Type) -> str:
    """Say what the type takes: its description, its values, its keys, or its kind and range."""
    described = _described(node)
    if described:
        return described
    plain = _plain(node)
    say: Callable[[Any], str] = {
        msgspec.inspect.LiteralType: lambda kind: ", ".join(str(value) for value in kind.values),
        msgspec.inspect.StructType: lambda kind: f"a mapping with the keys {', '.join(_keys(kind))}",
        msgspec.inspect.DictType: lambda _: "a mapping",
        msgspec.inspect.VarTupleType: lambda _: "a list",
    }.get(type(plain), _scalar)
    return say(plain)


def _described(node: msgspec.inspect.Type) -> str:
    if isinstance(node, msgspec.inspect.Metadata):
        return str((node.extra_json_schema or {}).get("description", "")) or _described(node.type)
    if isinstance(node, msgspec.inspect.UnionType):
        return next((text for text in map(_described, node.types) if text), "")
    return ""


def _scalar(node: msgspec.inspect.Type) -> str:
    kind = _TYPES.get(type(node).__name__.removesuffix("Type").lower(), "")
    least, most = getattr(node, "ge", None), getattr(node, "le", None)
    if least is not None and most is not None:
        return f"{kind} from {least} to {most}"
    return kind if least is None else f"{kind}, at least {least}"
