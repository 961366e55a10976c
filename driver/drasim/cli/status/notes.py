"""What a table of devices cannot say: why something happens or does not, and what is not known. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from dra_plugin.resources import Lease
from drasim.cli.status.objects import Slice, Snapshot
from drasim.cli.status.view import DeviceRow, Scope
from drasim.controller.status import BudgetUse, ControllerStatus
from drasim.faults.wanted import moment

__all__ = ["UNREAD", "notes", "summary"]

_SKEW = 10.0  # seconds by which the clocks of two machines may differ
UNREAD = "not read: "
"""What a note of something that could not be read begins with."""


def notes(snapshot: Snapshot, rows: Sequence[DeviceRow], scope: Scope, now: float) -> Iterator[str]:
    """Yield lines for people: what could not be read, what is odd about pools and devices, what the controller says.

    ``now`` is Unix time in seconds.
    """
    yield from (f"{UNREAD}{text}" for text in snapshot.unread)
    yield from _pools(snapshot.slices, scope)
    yield from _untainted(rows)
    yield from _leader(snapshot, rows, now)
    if snapshot.controller:
        yield from _controller(snapshot.controller)
    yield from _reasons(rows)


def summary(shown: int, known: int, *, unread: bool = False) -> str:
    """Return how many devices there are, and why not all of them are shown; ``unread``: something was not read."""
    devices = f"{known} device" if known == 1 else f"{known} devices"
    if not known and unread:
        return "No device is known; not everything could be read."
    if not known:
        return "No device is published, and no claim holds one."
    if shown == known:
        return f"{devices}."
    return f"{shown} of {devices} shown: those with problems or in use (all of them: --all)."


def _pools(slices: tuple[Slice, ...], scope: Scope) -> Iterator[str]:
    """Yield the pools of which slices are missing: their devices are not allocated."""
    if scope.pools is not None and not slices:
        names = " or ".join(sorted(scope.pools))
        yield f"no slice of {names} is published: is that the Node, and does the driver run there?"
    pools: dict[tuple[str, str], list[Slice]] = {}
    for each in slices:
        if scope.has(each.spec.driver, each.spec.pool.name):
            pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
    for (driver, name), parts in sorted(pools.items()):
        newest = max((each.spec.pool for each in parts), key=lambda pool: pool.generation)
        found = sum(each.spec.pool.generation == newest.generation for each in parts)
        if found < newest.resource_slice_count:
            yield f"pool {name} of {driver}: {found} of {newest.resource_slice_count} slices are published"


def _untainted(rows: Iterable[DeviceRow]) -> Iterator[str]:
    for row in rows:
        if row.health in ("Unhealthy", "Unknown") and not row.problems:
            yield (
                f"{_named(row)}: {row.health} without a taint; the server drops taints (feature gate DRADeviceTaints), "
                "the device is left out of its slice as soon as no claim holds it"
            )


def _leader(snapshot: Snapshot, rows: Iterable[DeviceRow], now: float) -> Iterator[str]:
    """Say that nobody leads; where nothing of a controller was found, though all was read, only if one is needed."""
    if snapshot.lease and _is_over(snapshot.lease, now):
        since = snapshot.lease.spec.renew_time
        yield f"controller: none {f'leads since {since}' if since else 'has led yet'}; no rule is made or lifted"
    elif not (snapshot.lease or snapshot.controller or snapshot.unread) and any(row.problems for row in rows):
        yield "controller: none is found, so no Pod is evicted; if its name is another: --set controller.name=NAME"


def _is_over(lease: Lease, now: float) -> bool:
    """Tell whether nobody has renewed the Lease for so long that clocks cannot be the reason."""
    renewed = moment(lease.spec.renew_time) or 0.0
    return now > renewed + (lease.spec.lease_duration_seconds or 0) + _SKEW


def _controller(status: ControllerStatus) -> Iterator[str]:
    yield from (f"controller: {problem}" for problem in status.problems)
    if not status.rules_api:
        yield "controller: the server serves no DeviceTaintRules, so no Pod is evicted; sick devices are isolated"
    if status.dry_run:
        yield "controller: dry run, no rule is made"
    yield from (_budget(each) for each in status.budgets if each.held)
    if status.omitted:
        yield f"controller: {status.omitted} more devices that its status does not list"


def _budget(use: BudgetUse) -> str:
    where = f"{use.scope} {use.name}".rstrip()
    return f"budget of {where}: {use.used} of {use.limit} devices under eviction, {use.held} held back"


def _reasons(rows: Iterable[DeviceRow]) -> Iterator[str]:
    yield from (f"{_named(row)}: {row.controller.reason}" for row in rows if row.controller and row.controller.reason)


def _named(row: DeviceRow) -> str:
    return f"{row.node or row.pool} {row.device}"
