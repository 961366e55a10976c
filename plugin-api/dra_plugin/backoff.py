"""How long to wait before something that failed is tried again."""

import random

__all__ = ["backoff"]


def backoff(first: float, failures: int, longest: float = 30.0) -> float:
    """Return the seconds to wait after so many failures in a row: doubled each time, ``longest`` at most, jittered."""
    return min(first * 2.0 ** min(failures - 1, 16), longest) * random.uniform(0.5, 1.0)
