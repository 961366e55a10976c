"""The reading of the API: once, or kept current. What may not be read, or is not served, is said and left out."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from dra_plugin.capabilities import served
from dra_plugin.claims import RESOURCE_CLAIM
from dra_plugin.cluster import EVERYTHING, Cluster, HasMetadata, Selector
from dra_plugin.errors import ClusterError, Rejected, Retryable
from dra_plugin.latest import Latest
from dra_plugin.mirror import Mirror
from dra_plugin.resources import (
    CONFIG_MAP,
    DEVICE_TAINT_RULES,
    LEASE,
    POD,
    ConfigMap,
    Kind,
    Lease,
)
from drasim.cli.status.objects import SLICE, Snapshot, groups_of
from drasim.controller.status import STATUS_KEY, ControllerStatus, decode_status, status_name
from drasim.faults import DEVICE_FAULT

__all__ = ["SLICES", "Current", "Wanted", "current", "read"]

SLICES = "ResourceSlices"
"""What the text of ``Snapshot.unread`` begins with where devices could not be read."""

T = TypeVar("T", bound=HasMetadata)
_Found = Mapping[str, tuple[Any, ...]]

_NO_RULES = "DeviceTaintRules: the server serves none (feature gate DRADeviceTaintRules)"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read.

    Attributes:
        drivers: names of the drivers.
        node: the one Node whose devices are asked for; empty for all.
        controller: name of the controller (``controller.name``).
        namespace: where the controller is; empty where nobody says: everywhere.
    """

    drivers: tuple[str, ...]
    node: str = ""
    controller: str
    namespace: str = ""


class _Source(msgspec.Struct, frozen=True):
    """One thing to read: what it is called, its kind, and which of it."""

    title: str
    kind: Kind[Any]
    selector: Selector = EVERYTHING


async def read(cluster: Cluster, wanted: Wanted) -> Snapshot:
    """Return what the API server says now. Raises Retryable when it does not answer."""
    found: dict[str, tuple[Any, ...]] = {}
    async with _bare():
        sources, unread = await _sources(cluster, wanted, waits=False)
        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(_list(cluster, source, found, unread))
    return await _with_members(cluster, _snapshot(found, unread), wanted)


class Current:
    """What the API server says, while ``current`` keeps it so.

    Attributes:
        changes: what to follow; the snapshot may be another whenever one of them changes.
    """

    def __init__(self, cluster: Cluster, wanted: Wanted, sources: Iterable[_Source], unread: list[str]) -> None:
        """Made by ``current``; ``unread`` says what was found out before."""
        self._cluster, self._wanted, self._unread = cluster, wanted, unread
        self.mirrors = {each.title: Mirror(cluster, each.kind, each.selector) for each in sources}
        each = self.mirrors.values()
        self.changes: tuple[Latest[Any], ...] = tuple(
            latest for mirror in each for latest in (mirror.objects, mirror.error, mirror.synced)
        )
        self._claims: object = None
        self._members: Mapping[tuple[str, str], tuple[str, ...]] = {}

    @property
    def known(self) -> bool:
        """Whether everything was read, or is known to be out of reach."""
        return all(mirror.synced.value or mirror.error.value for mirror in self.mirrors.values())

    async def snapshot(self) -> Snapshot:
        """Return what is known now. Pods of PodGroups are asked for when claims have changed."""
        errors = _by_cause({title: mirror.error.value for title, mirror in self.mirrors.items() if mirror.error.value})
        found = {title: tuple(mirror.objects.value.values()) for title, mirror in self.mirrors.items()}
        snapshot = _snapshot(found, [*self._unread, *errors])
        claims = self.mirrors["ResourceClaims"].objects.value
        if claims is not self._claims:
            self._claims = claims
            self._members = (await _with_members(self._cluster, snapshot, self._wanted)).members
        return msgspec.structs.replace(snapshot, members=self._members)


def _by_cause(errors: Mapping[str, str]) -> list[str]:
    """Return a line for each cause, without the request that failed by it: a server that is away is one line."""
    causes: dict[str, list[str]] = {}
    for title, error in errors.items():
        causes.setdefault(error.partition(": ")[2] or error, []).append(title)
    return [f"{', '.join(titles)}: {cause}" for cause, titles in causes.items()]


@asynccontextmanager
async def current(cluster: Cluster, wanted: Wanted) -> AsyncIterator[Current]:
    """Keep reading while the body runs; an API server that goes away is said in the snapshot and waited for."""
    sources, unread = await _sources(cluster, wanted, waits=True)
    now = Current(cluster, wanted, sources, unread)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(mirror.run(), name=title) for title, mirror in now.mirrors.items()]
        try:
            yield now
        finally:
            for task in tasks:
                task.cancel()


async def _sources(cluster: Cluster, wanted: Wanted, *, waits: bool) -> tuple[tuple[_Source, ...], list[str]]:
    """Return what to read, and what is known to be missing. Who ``waits`` for a server that is away assumes all."""
    node = {"spec.nodeName": wanted.node} if wanted.node else {}
    status, lease = (
        Selector(namespace=wanted.namespace or None, fields={"metadata.name": name})
        for name in (status_name(wanted.controller), wanted.controller)
    )
    sources = [
        *(
            _Source(f"{SLICES} of {each}", SLICE, Selector(fields={"spec.driver": each, **node}))
            for each in wanted.drivers
        ),
        _Source("ResourceClaims", RESOURCE_CLAIM),
        _Source("ConfigMap of the controller", CONFIG_MAP, status),
        _Source("Lease of the controller", LEASE, lease),
    ]
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(_served(cluster, DEVICE_TAINT_RULES, waits=waits))
        faulty = group.create_task(_served(cluster, (DEVICE_FAULT,), waits=waits))
    if rules := asked.result():
        sources.append(_Source("DeviceTaintRules", rules))
    if faults := faulty.result():
        sources.append(_Source("DeviceFaults", faults, Selector(fields={"spec.node": wanted.node} if node else {})))
    return tuple(sources), [] if rules else [_NO_RULES]


async def _served(cluster: Cluster, kinds: Sequence[Kind[T]], *, waits: bool) -> Kind[T] | None:
    """Return the version that is served; of a server that cannot be asked the newest: reading it will say what is."""
    try:
        return await served(cluster, kinds)
    except ClusterError as error:
        if isinstance(error, Retryable) and not waits:
            raise
        return kinds[0]


async def _list(cluster: Cluster, source: _Source, found: dict[str, tuple[Any, ...]], unread: list[str]) -> None:
    try:
        found[source.title] = (await cluster.list(source.kind, source.selector)).items
    except Rejected as error:
        unread.append(f"{source.title}: {error}")


def _snapshot(found: _Found, unread: Iterable[str]) -> Snapshot:
    controller, misfits = _status(found.get("ConfigMap of the controller", ()))
    leases: tuple[Lease, ...] = found.get("Lease of the controller", ())
    return Snapshot(
        slices=tuple(each for title, items in found.items() if title.startswith(SLICES) for each in items),
        rules=tuple(sorted(found.get("DeviceTaintRules", ()), key=lambda rule: rule.metadata.name or "")),
        claims=found.get("ResourceClaims", ()),
        faults=tuple(sorted(found.get("DeviceFaults", ()), key=lambda fault: fault.metadata.name or "")),
        controller=controller,
        lease=max(leases, key=lambda lease: lease.spec.renew_time or "", default=None),
        unread=tuple(sorted((*unread, *misfits))),
    )


def _status(maps: Iterable[ConfigMap]) -> tuple[ControllerStatus | None, list[str]]:
    """Return what was written last (two controllers of one name are in two namespaces), and what cannot be read.

    The chart makes the ConfigMap, so until a controller leads nothing stands in it.
    """
    found: list[ControllerStatus] = []
    misfits: list[str] = []
    for each in maps:
        if not (text := (each.data or {}).get(STATUS_KEY)):
            continue
        try:
            found.append(decode_status(text))
        except msgspec.MsgspecError as error:
            misfits.append(f"ConfigMap {each.metadata.namespace}/{each.metadata.name}, {STATUS_KEY}: {error}")
    return max(found, key=lambda status: status.written, default=None), misfits


async def _with_members(cluster: Cluster, snapshot: Snapshot, wanted: Wanted) -> Snapshot:
    """Add the Pods of the PodGroups that claims are reserved for. Without the right to list Pods, the groups do."""
    groups = groups_of(snapshot.claims, wanted.drivers)
    members: dict[tuple[str, str], tuple[str, ...]] = {}
    unread = list(snapshot.unread)
    for namespace in sorted({namespace for namespace, _ in groups}):
        try:
            pods = (await cluster.list(POD, Selector(namespace=namespace))).items
        except ClusterError as error:
            unread.append(f"Pods of {namespace}: {error}")
            continue
        for pod in pods:
            key = (namespace, (pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name) or "")
            if key in groups:
                members[key] = (*members.get(key, ()), pod.metadata.name or "")
    return msgspec.structs.replace(snapshot, members=members, unread=tuple(unread))


@asynccontextmanager
async def _bare() -> AsyncIterator[None]:
    """Let the first error out of the group: all of them say that the server is away."""
    try:
        yield
    except* ClusterError as errors:
        raise errors.exceptions[0] from None
