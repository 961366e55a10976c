"""What a list of measured values says: percentiles, the centre and how far values lie apart."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Centre = Literal["median", "mean"]


@dataclass(frozen=True)
class Summary:
    """The centre of several values, the smallest, the largest and how many there are."""

    centre: float
    low: float
    high: float
    count: int


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share (0 to 1) of all values does not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]


def summary(values: Sequence[float], centre: Centre = "median") -> Summary | None:
    """Return what the values say; None when there are none."""
    if not values:
        return None
    middle = statistics.fmean(values) if centre == "mean" else statistics.median(values)
    return Summary(middle, min(values), max(values), len(values))


def ratio(value: float | None, other: float | None) -> float | None:
    """Return value / other; None when one is missing or the other is not positive."""
    if value is None or other is None or other <= 0:
        return None
    return value / other
