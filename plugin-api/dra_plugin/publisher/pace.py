"""When a pool may write again: back-off after errors, spacing of bursts, patience with what others did."""

import random

from dra_plugin.backoff import backoff
from dra_plugin.errors import ClusterError, Conflict, Rejected, Retryable

__all__ = ["FOREIGN", "LOST", "VANISHED", "Pace", "lost"]

_SPACING = 0.1  # seconds between two rounds of a pool, so that flapping devices share a write
LOST = (0.3, 0.6)  # after somebody deleted slices: long enough to see whether all of them go
VANISHED = 1.5  # after all are gone: the kubelet wiped them and registers us again soon
FOREIGN = 10.0  # after any other change by somebody: perhaps a newer instance is at work
_FIRST = 0.25
_CONFLICT = 0.05
_REJECTED = 60.0
_BACK = 1.0  # after the server can be read again: not every node in the same moment
_GONE = 404
_MAY_BE_GRANTED = (401, 403)  # an installation gives the rights in any order


class Pace:
    """The times (of the event loop) of one pool. ``ready`` is the time before which it must not write."""

    def __init__(self) -> None:
        """Nothing happened yet: write at once."""
        self.ready = 0.0
        self.rejected: object = None  # what was refused; anything else may be tried at once
        self._failures = 0
        self._unanswered = False  # the last write got no answer that says when to come again

    def done(self, now: float) -> None:
        """Note a round that went well, or one that was left early."""
        self.ready, self.rejected, self._failures = now + _SPACING, None, 0
        self._unanswered = False

    def back(self, now: float) -> None:
        """Note that the server can be read again: what it did not answer need not wait for its back-off."""
        if self._unanswered:
            self.ready = min(self.ready, now + random.uniform(0.0, _BACK))

    def failed(self, now: float, error: ClusterError, tried: object) -> None:
        """Note a failed round: ``tried`` is what cannot be written as it is."""
        self._failures += 1
        self.rejected = None
        self._unanswered = isinstance(error, Retryable) and not error.retry_after
        if isinstance(error, Conflict) or lost(error):
            self.ready = now + backoff(_CONFLICT, self._failures)
        elif isinstance(error, Rejected) and error.code not in _MAY_BE_GRANTED:
            self.ready, self.rejected = now + _REJECTED, tried
        else:
            after = error.retry_after if isinstance(error, Retryable) else None
            self.ready = now + max(backoff(_FIRST, self._failures), (after or 0.0) * random.uniform(1.0, 1.1))

    def allows(self, now: float, wanted: object) -> bool:
        """Tell whether ``wanted`` may be written now."""
        return now >= self.ready or (self.rejected is not None and self.rejected != wanted)


def lost(error: ClusterError) -> bool:
    """Tell whether the object of a write is not there any more."""
    return isinstance(error, Rejected) and error.code == _GONE
