"""Our values have the API's own fields: compared with what a real 1.37 serves (openapi.json, made by hack/openapi)."""

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_plugin import claims, resources
from dra_plugin.quantity import Quantity
from dra_plugin.resources import Kind, Value

SCHEMAS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("openapi.json").read_text())
KINDS: tuple[Kind[Any], ...] = (
    resources.RESOURCE_SLICE,
    resources.NODE,
    resources.EVENT,
    resources.LEASE,
    resources.DEVICE_TAINT_RULE,
    resources.CONFIG_MAP,
    resources.POD,
    claims.RESOURCE_CLAIM,
)
SCALARS = {str: "string", int: "integer", bool: "boolean"}
TEXTS = ("Time", "MicroTime", "Quantity")  # schemas of their own that are plain text in JSON


def differences(struct: type[Value], schema: str) -> Iterator[str]:
    """Yield every field of ``struct``, and of what it holds, that the schema lacks or has with another type."""
    served = SCHEMAS[schema]
    for field in msgspec.structs.fields(struct):
        name = f"{struct.__name__}.{field.encode_name}"
        if field.encode_name not in served:
            yield f"{name}: no such field in {schema}"
        else:
            yield from _differ(name, field.type, served[field.encode_name])


def _differ(name: str, ours: Any, theirs: str) -> Iterator[str]:  # noqa: ANN401 - an annotation of any form
    ours = _required(ours)
    origin, arguments = typing.get_origin(ours), typing.get_args(ours)
    container, _, inner = theirs.rpartition(" ")
    if origin is tuple and container == "array":
        yield from _differ(name, arguments[0], inner)
    elif origin is dict and container == "map":
        yield from _differ(name, arguments[1], inner)
    elif isinstance(ours, type) and issubclass(ours, Value) and not container:
        yield from differences(ours, theirs)
    elif not _alike(ours, theirs):
        yield f"{name}: {ours} here, {theirs} in the API"


def _required(annotation: Any) -> Any:  # noqa: ANN401 - an annotation of any form
    """Return the annotation without its None."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = [each for each in typing.get_args(annotation) if each is not type(None)]
    return annotation


def _alike(ours: Any, theirs: str) -> bool:  # noqa: ANN401 - an annotation of any form
    last = theirs.rpartition(".")[2]
    if ours in (str, Quantity) and last in TEXTS:
        return (ours is Quantity) == (last == "Quantity")
    return SCALARS.get(ours) == theirs or (typing.get_origin(ours) is dict and last == "RawExtension")


def schema_of(kind: Kind[Any]) -> str:
    """Return the name of the kind's schema."""
    (name,) = [name for name in SCHEMAS if name.endswith(f".{kind.version}.{kind.name}")]
    return name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fields_are_the_apis_own(kind: Kind[Any]) -> None:
    """Each field that we read or write exists in the API under that name, with that type."""
    assert list(differences(kind.type, schema_of(kind))) == []


class Wrong(Value, frozen=True, kw_only=True):
    """A struct with a field that the API spells differently, and one of another type."""

    share_id: str | None = None
    pool: int


def test_comparison_finds_differences() -> None:
    """A misspelt field and a wrong type are both found."""
    schema = "io.k8s.api.resource.v1.DeviceRequestAllocationResult"
    assert [line.partition(":")[0] for line in differences(Wrong, schema)] == ["Wrong.shareId", "Wrong.pool"]
