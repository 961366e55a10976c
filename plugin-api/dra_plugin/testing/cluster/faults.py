"""Faults: what goes wrong with the fake API server, on order; and what was asked of it."""

import asyncio
from collections import deque
from http import HTTPStatus

import msgspec

from dra_plugin.testing.cluster.refusal import Refusal

__all__ = ["Faults", "Requested"]

_RESET = 0
_REMEMBERED = 10_000  # requests


class Requested(msgspec.Struct, frozen=True):
    """A request that came in: when (time of the event loop), and for what."""

    at: float
    verb: str
    plural: str


class _Order(msgspec.Struct):
    verb: str
    plural: str
    refusal: Refusal
    times: int


class Faults:
    """Orders that the next requests meet.

    Verbs: get, list, watch, create, replace, apply, delete; discover for the question what is served, without plural.

    Attributes:
        latency: seconds that every request takes, watches apart.
        unreachable: every request fails at once, as long as this is true (``FakeCluster.away``).
        requests: the last ones that came in, those that were refused too; a test may clear it.
    """

    def __init__(self) -> None:
        """Start without faults."""
        self.latency = 0.0
        self.unreachable = False
        self.requests: deque[Requested] = deque(maxlen=_REMEMBERED)
        self._orders: list[_Order] = []

    def fail(
        self, verb: str = "", *, code: int = 500, times: int = 1, retry_after: float | None = None, plural: str = ""
    ) -> None:
        """Let the next ``times`` requests of ``verb`` (and ``plural``) fail; empty means any.

        ``code`` is an HTTP status (429 and 503 with ``retry_after`` seconds, 500, 403, 410 ...); 0 breaks the
        connection.
        """
        self._orders.append(_Order(verb, plural, _refusal(code, retry_after), times))

    def clear(self) -> None:
        """Drop what is left of the orders."""
        self._orders.clear()

    async def meet(self, verb: str, plural: str) -> None:
        """Wait out the latency, then raise the next matching order's Refusal, if there is one."""
        if self.unreachable:
            raise _refusal(_RESET, None)
        self.requests.append(Requested(asyncio.get_running_loop().time(), verb, plural))
        if self.latency and verb != "watch":
            await asyncio.sleep(self.latency)
        for order in self._orders:
            if order.verb in ("", verb) and order.plural in ("", plural):
                order.times -= 1
                self._orders = [left for left in self._orders if left.times > 0]
                raise order.refusal


def _refusal(code: int, retry_after: float | None) -> Refusal:
    if code == _RESET:
        return Refusal(_RESET, "", "connection reset by the fake API server")
    phrase = HTTPStatus(code).phrase
    reason = {429: "TooManyRequests", 410: "Expired", 500: "InternalError"}.get(code, phrase.replace(" ", ""))
    return Refusal(code, reason, f"ordered fault: {phrase}", retry_after=retry_after)
