"""Cluster: the port to the API server. Implemented by ``kube.KubeCluster`` and by ``testing.FakeCluster``.

Every method raises ``Retryable`` (try again later), ``Conflict`` (read again first), ``Rejected`` (cannot succeed
as it is) or ``Expired`` (watch only: list again). Implementations retry on their own only what the server asked to be
retried (429 and 503 with Retry-After); everything else is the caller's decision.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from dra_plugin.resources import Kind, ObjectMeta

__all__ = ["EVERYTHING", "Change", "Cluster", "HasMetadata", "Listing", "Selector"]

T = TypeVar("T")


class HasMetadata(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta:
        """``metadata``."""
        ...


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind: a namespace (None = all), field and label equalities, all of which must hold."""

    namespace: str | None = None
    fields: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


EVERYTHING = Selector()


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A consistent list and the resource version from which to watch on."""

    items: tuple[T, ...]
    resource_version: str


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One watch event. A BOOKMARK carries no object, only a newer ``resource_version`` to watch on from."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str


class Cluster(Protocol):
    """The verbs of the API server over any Kind."""

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        """Return the object as a quorum read, or None when there is none."""
        ...

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Listing[T]:
        """Return all objects that the selector matches."""
        ...

    def watch(self, kind: Kind[T], since: str, selector: Selector = EVERYTHING) -> AsyncGenerator[Change[T], None]:
        """Yield changes after the resource version ``since``; ends when the server ends the watch (watch on then).

        The first change is always a BOOKMARK at ``since``: the server has accepted the watch. Close the generator
        (``contextlib.aclosing``) when leaving it early.
        """
        ...

    async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False) -> T:
        """Create and return what the server stored; Conflict when the name exists.

        ``dry_run``: all checks and changes are made, and nothing is stored; what comes back has no resource version.
        """
        ...

    async def replace(self, kind: Kind[T], obj: T) -> T:
        """PUT the object; its ``metadata.resource_version`` must be the stored one, else (also when unset) Conflict."""
        ...

    async def apply(self, kind: Kind[T], fields: Mapping[str, Any], manager: str, subresource: str = "") -> T:
        """Server-side apply (forced) of the owned ``fields``, plain JSON with metadata.name and namespace."""
        ...

    async def delete(self, kind: Kind[T], obj: T) -> bool:
        """Delete the object if UID (and resource version, where set) still match; False when it was gone or replaced.

        Conflict when it is the same object at another resource version.
        """
        ...

    async def served(self, kind: Kind[T]) -> bool:
        """Tell whether the server serves this group, version and resource."""
        ...
