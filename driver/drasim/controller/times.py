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


def stamp(at: float) -> str:
    """Return a Unix time as text; a part of a second counts as a whole one, so that no clock is short by it."""
    return datetime.fromtimestamp(math.ceil(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
