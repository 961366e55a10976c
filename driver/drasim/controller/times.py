"""Times as the API writes them: UTC, whole seconds, RFC 3339 with ``Z``; inside they are Unix times."""

import math
from datetime import UTC, datetime

__all__ = ["moment", "stamp"]


def moment(text: str | None) -> int | None:
    """Return the Unix time that was written; None when there is none, or it is not a time."""
    try:
        return int(datetime.fromisoformat(text or "").timestamp())
    except ValueError:
        return None


_LAST = 253_402_300_799  # 9999-12-31T23:59:59Z


def stamp(at: float) -> str:
    """Return a Unix time as text; a part of a second counts as a whole one, so that no clock is short by it.

    What the calendar does not have becomes its nearest time: others write into slices and rules what they like.
    """
    return datetime.fromtimestamp(min(max(0, math.ceil(at)), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
