"""What an answer of the API server means: errors from its Status objects, Retry-After."""

import math
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from dra_plugin.errors import ClusterError, Conflict, Expired, Rejected, Retryable

__all__ = ["Cause", "Details", "Status", "error_for", "retry_after_of", "status_of"]

_FINAL = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_TEXT = 500  # characters of an answer that is no Status


class Cause(msgspec.Struct, frozen=True):
    """``details.causes[]`` of a Status."""

    field: str = ""
    message: str = ""
    reason: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """``details`` of a Status."""

    name: str = ""
    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """The API's Status object: why a request was not done."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def says_no_such_object(self) -> bool:
        """The server knows the resource, but no object of that name (an unknown resource is a 404 as well)."""
        return self.code == HTTPStatus.NOT_FOUND and bool(self.details and self.details.name)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the server named as causes."""
        causes = (self.details and self.details.causes) or ()
        return tuple(dict.fromkeys(cause.field for cause in causes if cause.field))


def status_of(code: int, body: bytes) -> Status:
    """Read a Status; an answer that is none (a proxy's page) becomes one with the start of its text."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        status = Status(message=" ".join(body[:_TEXT].decode(errors="replace").split()))
    return msgspec.structs.replace(status, code=code)


def error_for(code: int, text: str, *, fields: tuple[str, ...] = (), retry_after: float | None = None) -> ClusterError:
    """Return the error of the port for an HTTP code; 0 stands for a broken connection."""
    if code == HTTPStatus.CONFLICT:
        return Conflict(text, retry_after=retry_after, code=code)
    if code == HTTPStatus.GONE:
        return Expired(text)
    if code in _FINAL:
        return Rejected(text, code=code, fields=fields)
    return Retryable(text, retry_after=retry_after, code=code or None)


def retry_after_of(header: str | None, now: datetime | None = None) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date; None when there is none that makes sense."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return _seconds_until(header, now or datetime.now(UTC))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: datetime) -> float | None:
    from email.utils import parsedate_to_datetime  # rare, and costs start-up time

    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())
