"""Does a component answer: the question that decides when the next one may start."""

import http.client
import json
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from hack.cluster.topology import API_ADDRESS, API_PORT

TIMEOUT = 2.0  # seconds: an answer that a busy machine makes late is no failure
OK = 200


def answers(probe: str, root: str = "/") -> bool:
    """Tell whether the component behind this address is ready; `root` is where a socket's path begins."""
    try:
        if probe.startswith("unix:"):
            return _connects(root.rstrip("/") + probe.removeprefix("unix:"))
        return _status(probe) == OK
    except (OSError, http.client.HTTPException):
        return False


def _connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(path)
    return True


def _status(url: str) -> int:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    secure = parts.scheme == "https"
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=_trusting())
        if secure
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    )
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status
    finally:
        connection.close()


def _trusting() -> ssl.SSLContext:
    """Return a context that takes any certificate: components sign their own, and nobody else is in this network."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def read(path: str, pki: Path) -> tuple[int, object]:
    """Read an object of the API server as administrator; returns the status and the decoded body."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connection = http.client.HTTPSConnection(API_ADDRESS, API_PORT, timeout=5, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()
