"""Requests to the first process of the box: a line of JSON there and one back, over a socket."""

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hack.cluster.errors import ClusterError

Answer = dict[str, Any]
TIMEOUT = 60.0
LIMIT = 107  # bytes of a path that a Unix socket can have


def request(server: Path, /, **fields: object) -> Answer:
    """Send a request and return the answer; an answer with `error` is raised."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(str(server))
        client.sendall(json.dumps(fields).encode() + b"\n")
        with client.makefile("r") as lines:
            line = lines.readline()
    answer: Answer = json.loads(line or '{"error": "the box ended while it was asked"}')
    if "error" in answer:
        raise ClusterError(answer["error"])
    return answer


def listen(path: Path) -> socket.socket:
    """Return the socket on which the box takes requests; only root may write to it."""
    server = socket.socket(socket.AF_UNIX)
    path.unlink(missing_ok=True)
    server.bind(str(path))
    path.chmod(0o600)
    server.listen()
    return server


def serve(server: socket.socket, handle: Callable[[Answer], Answer]) -> None:
    """Take one request; a caller that goes away in the middle disturbs nobody."""
    client, _ = server.accept()
    with client, contextlib.suppress(OSError):
        client.settimeout(5)
        with client.makefile("r") as lines:
            line = lines.readline()
        client.settimeout(None)
        client.sendall(json.dumps(_handled(line, handle)).encode() + b"\n")


def _handled(line: str, handle: Callable[[Answer], Answer]) -> Answer:
    try:
        return handle(json.loads(line))
    except (ClusterError, OSError, ValueError, KeyError) as error:
        return {"error": str(error)}
