"""Watch streams: chunks into lines of any length, lines into changes."""

from collections.abc import AsyncGenerator
from typing import Any, Literal, TypeVar

import msgspec

from dra_plugin.cluster import Change
from dra_plugin.errors import ClusterError, Retryable
from dra_plugin.kube.answers import Status, error_for
from dra_plugin.resources import Kind, decode

__all__ = ["change_of", "lines"]

T = TypeVar("T")


class _Versioned(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Versioned = msgspec.field(default_factory=_Versioned)


class _Line(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


async def lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream; Retryable when it ends in the middle of one."""
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        for piece in rest:
            line = b"".join(parts)
            parts = [piece]
            if line.strip():
                yield line
    if b"".join(parts).strip():
        raise Retryable("watch: the stream ended in the middle of a line")


def change_of(line: bytes, kind: Kind[T]) -> Change[T]:
    """Read one line; raises Expired or another ClusterError for an ERROR, Retryable for what cannot be read."""
    try:
        read = msgspec.json.decode(line, type=_Line)
        if read.type == "ERROR":
            raise _error_of(msgspec.json.decode(read.object, type=Status), kind)
        version = msgspec.json.decode(read.object, type=_Object).metadata.resource_version
        if read.type == "BOOKMARK":
            return Change("BOOKMARK", None, version)
        return Change(read.type, decode(read.object, kind.type), version)
    except msgspec.MsgspecError as error:
        raise Retryable(f"watch {kind.plural}: unreadable line of {len(line)} bytes: {error}") from error


def _error_of(status: Status, kind: Kind[Any]) -> ClusterError:
    return error_for(status.code, f"watch {kind.plural}: {status.code} {status.message or status.reason}")
