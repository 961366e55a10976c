"""Refusal: how the fake API server says no; becomes a Status over HTTP and an error of the port in process."""

from collections.abc import Iterable
from http import HTTPStatus

__all__ = ["Refusal", "conflict", "invalid", "not_found", "other_version", "unknown_resource"]


class Refusal(Exception):
    """A request that is not done: HTTP code, the API's reason, text, the fields at fault, when to come again."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        fields: Iterable[str] = (),
        retry_after: float | None = None,
        name: str = "",
    ) -> None:
        """Keep everything; ``code`` 0 stands for a connection that broke, ``name`` is the object's."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.fields = tuple(fields)
        self.retry_after = retry_after
        self.name = name


def not_found(plural: str, name: str) -> Refusal:
    """Return the refusal for an object that does not exist."""
    return Refusal(HTTPStatus.NOT_FOUND, "NotFound", f'{plural} "{name}" not found', name=name)


def unknown_resource() -> Refusal:
    """Return the refusal for a resource or subresource that is not served."""
    return Refusal(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")


def other_version(said: str, expected: str) -> Refusal:
    """Return the refusal for an object that says to be of another version than the one it was sent to."""
    text = f"the API version in the data ({said}) does not match the expected API version ({expected})"
    return Refusal(HTTPStatus.BAD_REQUEST, "BadRequest", text)


def conflict(plural: str, name: str, why: str, reason: str = "Conflict") -> Refusal:
    """Return the refusal for an object that is not as the caller thought."""
    return Refusal(HTTPStatus.CONFLICT, reason, f'{plural} "{name}": {why}')


def invalid(kind: str, name: str, problems: Iterable[tuple[str, str]]) -> Refusal:
    """Return the refusal for an object that breaks rules: pairs of field and rule."""
    found = tuple(problems)
    text = "; ".join(f"{field}: {rule}" for field, rule in found)
    fields = (field for field, _ in found)
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", f'{kind} "{name}" is invalid: {text}', fields=fields)
