"""What happened, as frozen records, for metrics and Events. One callback type; an observer must not block or raise."""

from collections.abc import Callable

import msgspec

__all__ = [
    "CallDone",
    "ClaimFailed",
    "FieldsDropped",
    "Observation",
    "Observer",
    "PoolCorrected",
    "PoolSynced",
    "SliceWritten",
    "ignore",
]


class CallDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One claim of a NodePrepareResources or NodeUnprepareResources call was answered, after ``seconds``."""

    driver: str
    operation: str  # "prepare" or "unprepare"
    uid: str
    error: str | None
    seconds: float


class ClaimFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A claim could not be prepared or unprepared; the kubelet says nothing to users of a failed Unprepare."""

    driver: str
    operation: str
    namespace: str
    name: str
    uid: str
    error: str


class SliceWritten(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The publisher wrote one slice. ``verb`` is create, update or delete."""

    driver: str
    pool: str
    verb: str
    generation: int


class PoolSynced(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The stored slices of a pool equal the wanted ones (``error`` is None), or could not be made so."""

    driver: str
    pool: str
    error: str | None


class PoolCorrected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Parts of a wanted pool break limits of the API: what was changed or left out, one line for people each."""

    driver: str
    pool: str
    problems: tuple[str, ...]


class FieldsDropped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server did not keep these fields, or keeps all again when there are none.

    ``gates`` are the feature gates to switch on, as far as known, for people.
    """

    driver: str
    pool: str
    fields: tuple[str, ...]
    gates: tuple[str, ...]


Observation = CallDone | ClaimFailed | SliceWritten | PoolSynced | PoolCorrected | FieldsDropped
Observer = Callable[[Observation], None]


def ignore(_: Observation) -> None:
    """Observe nothing."""
