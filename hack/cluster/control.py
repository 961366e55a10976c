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
    try:
        answer: Answer = json.loads(_exchange(server, json.dumps(fields)))
    except (OSError, ValueError) as error:
        msg = f"the cluster does not answer on {server}: it is just being started or ended ({error})"
        raise ClusterError(msg) from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return answer


def _exchange(server: Path, line: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(str(server))
        client.sendall(line.encode() + b"\n")
        with client.makefile("r") as lines:
            return lines.readline()


def listen(path: Path) -> socket.socket:
    """Return the socket on which the box takes requests; only root may write to it."""
    server = socket.socket(socket.AF_UNIX)
    hidden = path.with_name(".s")
    server.bind(str(hidden))
    hidden.chmod(0o600)
    server.listen()
    hidden.rename(path)  # whoever sees it can connect
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
    except Exception as error:  # noqa: BLE001  the caller is told; process 1 must not end by a request
        return {"error": str(error) or repr(error)}
