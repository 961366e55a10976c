"""A small client of the API server, of our own, so that neither contestant's client measures itself."""

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

Object = dict[str, Any]
READ_TIMEOUT = 60
NOT_FOUND, CONFLICT, BAD = 404, 409, 400


class ApiError(Exception):
    """The API server refused; the message says what and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Server:
    """Where the API server is and how to prove who we are."""

    host: str
    port: int
    context: ssl.SSLContext
    authority: bytes

    def connect(self, timeout: float | None = READ_TIMEOUT) -> http.client.HTTPSConnection:
        """Return a new connection."""
        return http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=timeout)


def from_kubeconfig(path: Path) -> Server:
    """Return the server of the current context of a kubeconfig with client certificates."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    address = urlsplit(cluster["server"])
    authority = _content(cluster, "certificate-authority", path)
    tls = ssl.create_default_context(cadata=authority.decode())
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.write_bytes(
            _content(user, "client-certificate", path) + b"\n" + _content(user, "client-key", path),
        )
        tls.load_cert_chain(pair)
    return Server(address.hostname or "", address.port or 443, tls, authority)


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _content(section: Object, key: str, kubeconfig: Path) -> bytes:
    inline = section.get(f"{key}-data")
    return base64.b64decode(inline) if inline else (kubeconfig.parent / section[key]).read_bytes()


class Api:
    """Requests to the API server, one connection per thread, each answered before the next."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._local = threading.local()

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list."""
        return self.request("GET", path + _query(query))

    def create(self, path: str, body: Object) -> Object:
        """Create an object; one of that name is taken away first."""
        try:
            return self.request("POST", path, body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        self.delete(f"{path}/{body['metadata']['name']}")
        return self.request("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object, or its status."""
        return self.request("PUT", path, body)

    def delete(self, path: str, **query: str) -> None:
        """Delete an object or a selection; what is not there is deleted already."""
        try:
            self.request("DELETE", path + _query(query))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def request(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request and return the decoded answer. Raises ApiError; a stale connection is opened again once."""
        try:
            return self._request(self._connection(), method, path, body)
        except (http.client.RemoteDisconnected, ConnectionError):
            self._local.connection = None
            return self._request(self._connection(), method, path, body)

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self.server.connect()
        return connection

    def _request(self, connection: http.client.HTTPSConnection, method: str, path: str, body: Object | None) -> Object:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= BAD:
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {_message(content)}")
        result: Object = json.loads(content)
        return result


def _query(query: Mapping[str, str]) -> str:
    return "?" + urlencode(query, quote_via=quote) if query else ""


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content).get("message", ""))
    except ValueError:
        return content[:200].decode(errors="replace")


@dataclass(frozen=True)
class Change:
    """A watch event and when it was read, in seconds since the epoch."""

    at: float
    type: str
    object: Object = field(default_factory=dict)


class Watch:
    """Follows one collection from a thread of its own, so that the moment of a change is exact."""

    def __init__(self, api: Api, path: str, **query: str) -> None:
        self.objects: dict[str, Object] = {}
        self._path = path
        self._changes: SimpleQueue[Change] = SimpleQueue()
        listing = api.get(path, **query)
        for item in listing["items"]:
            self.objects[item["metadata"]["name"]] = item
        query |= {"watch": "1", "resourceVersion": listing["metadata"]["resourceVersion"], "timeoutSeconds": "86400"}
        self._connection = api.server.connect(timeout=None)
        self._connection.request("GET", path + _query(query))
        threading.Thread(target=self._read, name=f"watch {path}", daemon=True).start()

    def until(self, wanted: Callable[[Mapping[str, Object]], bool], timeout: float = 60) -> float:
        """Wait until the objects are as wanted; return when that was seen. Raises TimeoutError."""
        at, end = time.time(), time.time() + timeout
        for change in self._pending():
            self._take(change)
        while not wanted(self.objects):
            try:
                change = self._changes.get(timeout=max(0.001, end - time.time()))
            except Empty:
                raise TimeoutError(f"not seen within {timeout:g} s: {self._path}") from None
            at = self._take(change)
        return at

    def _pending(self) -> Iterator[Change]:
        while not self._changes.empty():
            yield self._changes.get()

    def _take(self, change: Change) -> float:
        if change.type == "ENDED":
            raise ConnectionError("the API server ended the watch")
        name = change.object["metadata"]["name"]
        if change.type == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = change.object
        return change.at

    def _read(self) -> None:
        try:
            for line in self._connection.getresponse():
                at = time.time()
                event = json.loads(line)
                self._changes.put(Change(at, event["type"], event["object"]))
        finally:
            self._changes.put(Change(time.time(), "ENDED"))
