"""Gate: after the API server said "not before", no request of that verb goes out until then."""

from collections.abc import Callable

__all__ = ["Gate"]


class Gate:
    """One time per verb before which nothing is sent, shared by all callers."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Use the clock ``now`` (seconds)."""
        self._now = now
        self._opens: dict[str, float] = {}

    def close(self, verb: str, seconds: float) -> None:
        """Keep the verb's requests back for ``seconds`` from now."""
        self._opens[verb] = max(self._opens.get(verb, 0.0), self._now() + seconds)

    def wait_for(self, verb: str) -> float:
        """Return the seconds until the verb's requests may go out; 0 when they may now."""
        return max(0.0, self._opens.get(verb, 0.0) - self._now()) if self._opens else 0.0
