"""Transport: requests and answers over one pool of connections, authorization, and the retries servers ask for.

The door of aiohttp, which is imported with the first request. Everything it raises is translated here.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import msgspec

from dra_plugin import __version__
from dra_plugin.errors import ClusterError, Rejected, Retryable, SetupError
from dra_plugin.kube.answers import Status, error_for, retry_after_of, status_of
from dra_plugin.kube.credentials import Credentials, Endpoint
from dra_plugin.kube.gate import Gate

if TYPE_CHECKING:
    from aiohttp import AddrInfoType, ClientResponse, ClientSession

__all__ = ["NoSuchObject", "Request", "Retried", "Slow", "Transport"]

Retried = Callable[[str, float], None]
"""Told of each retry: the verb, and the seconds waited before it."""
Slow = Callable[[str], None]
"""Told of each request that is not answered for some seconds: the server's URL; empty before credentials are known."""

_CONNECTIONS = 32
_KEEP_ALIVE = 75.0  # seconds; the API server closes idle connections after 90
_CONNECT_TIMEOUT = 5.0
_SLOW = 4.0  # seconds; whoever waits longer wants to know what for
_SILENCE = 150.0  # seconds without a byte after which a watch is taken for dead; bookmarks come every minute
_KEEP_ALIVES = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # not every system has all of them
"""A host or a router that vanished without a word is noticed after 35 s of silence, and a watch only listens."""
_FAREWELL = 1.0  # seconds in which all connections have to be closed
_INSTANT = 0.001
_LEAST_WAIT = 0.1  # seconds, where a server says "at once": no hot loop, and our patience ends
_WAIT_AND_REPEAT = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class NoSuchObject(Rejected):
    """404 for an object of a resource that is served."""


class Request(msgspec.Struct, frozen=True):
    """One request. ``verb`` is the API's (get, list, watch, create, update, patch, delete); path includes the query."""

    verb: str
    method: str
    path: str
    body: bytes | None = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        """Return method and path without query, for error texts."""
        return f"{self.method} {self.path.partition('?')[0]}"


class _Answer(msgspec.Struct, frozen=True):
    code: int
    body: bytes
    retry_after: str | None


class Transport:
    """Sends requests. Entering does no I/O; leaving closes all connections."""

    def __init__(
        self, credentials: Credentials, *, patience: float, timeout: float, retried: Retried, slow: Slow
    ) -> None:
        """Wait at most ``timeout`` seconds for an answer, ``patience`` in total for what the server asks to repeat."""
        self._credentials = credentials
        self._patience, self._timeout = patience, timeout
        self._retried, self._slow = retried, slow
        self._session: ClientSession | None = None
        self._endpoint = Endpoint("")
        self._headers: dict[str, str] = {}
        self._reread_at = 0.0
        self._lock = asyncio.Lock()
        self._closed = False
        self._sockets = WeakSet[socket.socket]()
        self._gate = Gate(_now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                if self._session is not None:
                    await self._session.close()
                while self._hang_up():  # noqa: ASYNC110 - the loop closes them, and tells nobody
                    await asyncio.sleep(_INSTANT)

    async def send(self, request: Request) -> bytes:
        """Return the body of the answer; raises a ClusterError (NoSuchObject for a 404 that means that)."""
        return (await self._answered(request, self._once)).body

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Yield the chunks of a long answer; they end when the server ends it or falls silent."""
        opened: list[ClientResponse] = []

        async def once(request: Request) -> _Answer:
            response = await self._respond(request, total=None)
            if response.status == HTTPStatus.OK:
                opened.append(response)
                return _Answer(response.status, b"", None)
            return await _read(response, request)

        try:
            await self._answered(request, once)
            async with aclosing(_chunks(opened[0], request)) as chunks:
                yield chunks
        finally:
            for response in opened:
                response.close()

    async def _answered(self, request: Request, once: Callable[[Request], Awaitable[_Answer]]) -> _Answer:
        """Return the answer; say so when that takes long."""
        told = asyncio.get_running_loop().call_later(_SLOW, lambda: self._slow(self._endpoint.url))
        try:
            return await self._repeated(request, once)
        finally:
            told.cancel()

    async def _repeated(self, request: Request, once: Callable[[Request], Awaitable[_Answer]]) -> _Answer:
        """Repeat as often as the server asks for, within our patience; a 401 once, with a token read afresh."""
        deadline = _now() + self._patience
        refreshed = False
        while True:
            await self._pass_gate(request, deadline)
            used = await self._authorize(None)
            answer = await once(request)
            if answer.code < HTTPStatus.BAD_REQUEST:
                return answer
            if answer.code == HTTPStatus.UNAUTHORIZED and not refreshed:
                refreshed = True
                await self._authorize(used)
                continue
            seconds = retry_after_of(answer.retry_after)
            if seconds is None or answer.code not in _WAIT_AND_REPEAT:
                raise _error(request, status_of(answer.code, answer.body), seconds)
            self._gate.close(request.verb, max(seconds, _LEAST_WAIT))

    async def _pass_gate(self, request: Request, deadline: float) -> None:
        while seconds := self._gate.wait_for(request.verb):
            if _now() + seconds > deadline:
                raise Retryable(f"{request}: the server asked to wait {seconds:.1f} s", retry_after=seconds, code=429)
            self._retried(request.verb, seconds)
            await asyncio.sleep(seconds)

    async def _authorize(self, refused: str | None) -> str | None:
        """Return the Authorization header in use; read it afresh when it is due, or when this one was refused."""
        current = self._headers.get("Authorization")
        if self._session is not None and _now() < self._reread_at and refused is None:
            return current
        async with self._lock:
            current = self._headers.get("Authorization")
            renewed = current != refused if refused is not None else _now() < self._reread_at
            if self._session is None or not renewed:
                await self._read_credentials()
        return self._headers.get("Authorization")

    async def _read_credentials(self) -> None:
        try:
            header = await self._credentials.authorization()
        except SetupError as error:
            if self._session is None:
                raise
            raise Retryable(f"credentials that worked before: {error}") from error  # a login service may be away
        if self._session is None:
            self._endpoint = await self._credentials.endpoint()
            if self._closed:
                raise Retryable("the client is closed")
            self._session = _open(self._endpoint, self._socket)
        self._headers = {} if header is None else {"Authorization": header}
        self._reread_at = _now() + self._credentials.lifetime

    def _socket(self, address: "AddrInfoType") -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def _hang_up(self) -> bool:
        """End all connections in both directions; return whether some are still to be closed by the loop.

        The session does not know those that it has given up, a watch that ended or a call that was cut off: TLS would
        wait half a minute for the server's goodbye. Those that it knows could wait for ever until all is sent.
        """
        left = [each for each in self._sockets if each.fileno() >= 0]
        for each in left:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return bool(left)

    async def _once(self, request: Request) -> _Answer:
        return await _read(await self._respond(request, total=self._timeout), request)

    async def _respond(self, request: Request, total: float | None) -> "ClientResponse":
        """Send, and return as soon as the head of the answer is there."""
        from aiohttp import ClientError, ClientTimeout
        from yarl import URL

        if self._session is None or self._closed:
            raise Retryable(f"{request}: the client is closed")
        headers = self._headers if request.body is None else {**self._headers, "Content-Type": request.content_type}
        timeout = ClientTimeout(total=total, sock_connect=_CONNECT_TIMEOUT, sock_read=None if total else _SILENCE)
        try:
            return await self._session.request(
                request.method,
                URL(self._endpoint.url + request.path, encoded=True),
                data=request.body,
                headers=headers,
                timeout=timeout,
                proxy=self._endpoint.proxy,
                server_hostname=self._endpoint.server_name,
                allow_redirects=False,
            )
        except (ClientError, TimeoutError, OSError, ValueError) as error:
            raise _broken(request, error, self._endpoint.url) from error


def _open(endpoint: Endpoint, new_socket: "Callable[[AddrInfoType], socket.socket]") -> "ClientSession":
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    connector = TCPConnector(
        limit=_CONNECTIONS,
        keepalive_timeout=_KEEP_ALIVE,
        ssl=endpoint.tls if endpoint.tls is not None else True,
        socket_factory=new_socket,
    )
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",  # unpacking costs more than the local network
        "User-Agent": f"dra-plugin/{__version__}",
    }
    return ClientSession(connector=connector, headers=headers, cookie_jar=DummyCookieJar(), trust_env=False)


def _socket(address: "AddrInfoType") -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVES.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _read(response: "ClientResponse", request: Request) -> _Answer:
    """Read the whole answer; the connection goes back to the pool."""
    from aiohttp import ClientError

    try:
        async with response:
            return _Answer(response.status, await response.read(), response.headers.get("Retry-After"))
    except (ClientError, TimeoutError, OSError) as error:
        raise _broken(request, error, str(response.url.origin())) from error


async def _chunks(response: "ClientResponse", request: Request) -> AsyncGenerator[bytes, None]:
    from aiohttp import ClientError

    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except TimeoutError:
        return  # silence: whoever watches starts again from where they are
    except (ClientError, OSError) as error:
        raise _broken(request, error, str(response.url.origin())) from error


def _broken(request: Request, error: BaseException, server: str) -> Retryable:
    from aiohttp import ConnectionTimeoutError

    if isinstance(error, ConnectionTimeoutError):
        return Retryable(f"{request}: no connection to {server} within {_CONNECT_TIMEOUT:g} s")
    if isinstance(error, TimeoutError):
        return Retryable(f"{request}: no answer from {server} in time")
    return Retryable(f"{request}: {type(error).__name__}: {error}".removesuffix(": "))  # some have no text


def _error(request: Request, status: Status, retry_after: float | None) -> ClusterError:
    """Return the error for an answer."""
    text = f"{request}: {status.code} {status.message or status.reason}"
    if status.says_no_such_object:
        return NoSuchObject(text, code=status.code, fields=status.fields)
    return error_for(status.code, text, fields=status.fields, retry_after=retry_after)


def _now() -> float:
    return asyncio.get_running_loop().time()
