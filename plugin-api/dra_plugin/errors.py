"""The error tree, named by what the caller may do.

    PluginError
    ├── SetupError     fix the environment of the process, then start again
    ├── ClaimError     this claim cannot be served; the kubelet is told, other claims go on
    └── ClusterError   the API server did not do what was asked
        ├── Retryable  try again, not before ``retry_after``
        │   └── Conflict   read again, decide again, then write
        ├── Expired    the watch is too old: list again
        └── Rejected   the object or the caller's rights must change first

Foreign exceptions (grpc, aiohttp, OSError) are translated where they enter and chained as the cause.
"""

__all__ = [
    "ClaimError",
    "ClusterError",
    "Conflict",
    "Expired",
    "PluginError",
    "Rejected",
    "Retryable",
    "SetupError",
]


class PluginError(Exception):
    """Anything this library raises on purpose."""


class SetupError(PluginError):
    """The process cannot work here: a folder is missing, a socket path is too long, another instance holds it."""


class ClaimError(PluginError):
    """One claim cannot be served. The text reaches the user in the Pod's event: one short line, no secrets."""


class ClusterError(PluginError):
    """The API server did not do what was asked."""


class Retryable(ClusterError):
    """The same request may succeed later: 429, 5xx, a broken connection, an expired token."""

    def __init__(self, message: str, *, retry_after: float | None = None, code: int | None = None) -> None:
        """Keep ``retry_after`` (seconds, from the Retry-After header) and the HTTP ``code``, if there was one."""
        super().__init__(message)
        self.retry_after = retry_after
        self.code = code


class Conflict(Retryable):
    """409: the object changed since it was read, or one of that name exists already."""


class Expired(ClusterError):
    """410: the resource version of a watch or a page is too old; list again."""


class Rejected(ClusterError):
    """Repeating the request cannot help: 400, 403, 404 on a write, 422."""

    def __init__(self, message: str, *, code: int, fields: tuple[str, ...] = ()) -> None:
        """Keep the HTTP ``code`` and the ``fields`` (API paths) that the server named as causes."""
        super().__init__(message)
        self.code = code
        self.fields = fields
