"""Rows in, lines of text out, as wide as asked for. Pure."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import zip_longest

import typer

from drasim.cli.status.view import ControllerRow, DeviceRow, UseRow

__all__ = ["HEADING", "age", "table"]

HEADING = ("NODE", "DEVICE", "HEALTH", "PROBLEM", "SINCE", "TAINT", "RULE", "CLAIM", "PODS")

_PARTS = (slice(0, 3), slice(3, 6), slice(6, 7), slice(7, 9))  # columns whose lines belong together
_FOLDED = (0, 3, 6, 7, 8)  # columns that are folded where there is no room
_NARROWEST = 10  # characters of such a column
_GAP = "  "
_HEALTH = 2
_COLORS = {"Unhealthy": typer.colors.RED, "Unknown": typer.colors.YELLOW, "Healthy": typer.colors.GREEN}
_STATES: Mapping[str, str] = {
    "evicting": "evicting",
    "recovering": "recovering",
    "missing": "device missing",
    "waiting": "not yet evicting",
    "budget": "held back by the budget",
    "named-claim": "held: claim named directly",
    "would-evict": "dry run, would evict",
}
_Line = tuple[str, ...]
_Block = tuple[tuple[_Line, ...], ...]  # the lines of each part
_ANY = 10**6  # characters: nothing is folded
_HEAD: _Block = (HEADING[:3],), (HEADING[3:6],), (HEADING[6:7],), (HEADING[7:],)


def table(rows: Iterable[DeviceRow], now: float, width: int | None, *, color: bool = False) -> Iterator[str]:
    """Yield the lines of a table of at most ``width`` characters; ``now`` is Unix time in seconds.

    What has no room is folded onto more lines. Only columns that cannot be folded make it wider. Without a ``width``
    it is as wide as what it says, and rules have their names.
    """
    blocks = [_HEAD, *(_parts(row, now, named=width is None) for row in rows)]
    widths = _fitted([max(map(len, column)) for column in zip(*map(_widest, blocks), strict=True)], width or _ANY)
    for block in blocks:
        stacks = [_stack(part, widths[at]) for part, at in zip(block, _PARTS, strict=True)]
        for line in zip_longest(*stacks, fillvalue=None):
            cells = [cell for part, at in zip(line, _PARTS, strict=True) for cell in part or [""] * len(HEADING[at])]
            yield _GAP.join(_padded(cells, widths, color=color)).rstrip()


def age(since: str, now: float) -> str:
    """Return how long ago a time in RFC 3339 was, in the two largest units: ``3m12s``; empty when there is none."""
    return _span(now - _unix(since)) if since else ""


def _span(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size, part, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f"{rest}{part}" if rest else "")
    return f"{whole}s"


def _unix(text: str) -> float:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def _parts(row: DeviceRow, now: float, *, named: bool) -> _Block:
    """Return what the device is, what is wrong with it, its rules and its users: lines below each other in each."""
    nothing = (("-", "-", "-"),), (("-", "-", "-"),), (("-",),), (("-", "-"),)
    what = (row.node or "-", row.device, row.health or "-")
    ruled = tuple((f"{text} {name}".rstrip() if named else text,) for name, text in _ruled(row, now))
    parts = ((what,), tuple(_wrong(row, now)), ruled, tuple(map(_used, row.used_by)))
    return tuple(part or none for part, none in zip(parts, nothing, strict=True))


def _widest(block: _Block) -> tuple[str, ...]:
    """Return the longest cell of each column."""
    return tuple(max(column, key=len) for part in block for column in zip(*part, strict=True))


def _stack(part: tuple[_Line, ...], widths: list[int]) -> Iterator[_Line]:
    """Yield the lines of a part, each folded so that its cells fit."""
    for line in part:
        folded = [textwrap.wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
        yield from zip_longest(*folded, fillvalue="")


def _wrong(row: DeviceRow, now: float) -> Iterator[_Line]:
    if not row.published:
        yield ("not published", "-", "-")
    for problem in row.problems:
        yield (f"{problem.kind} {problem.code}".rstrip(), age(problem.since, now) or "-", problem.effect or "-")
    for taint in row.taints:  # somebody else's: what it means only they know
        value = f"={taint.value}" if taint.value else ""
        yield (f"{taint.key}{value}", age(taint.since, now), taint.effect)


def _ruled(row: DeviceRow, now: float) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule, and what to say of it: of the controller's own what becomes of it."""
    since = {rule.name: rule.since for rule in row.rules}
    own = row.controller.rule if row.controller else ""
    yield from ((rule.name, f"{rule.effect} {age(rule.since, now)}".rstrip()) for rule in row.rules if rule.name != own)
    if row.controller:
        yield own, _plan(row.controller, since.get(own, ""), now)


def _plan(plan: ControllerRow, since: str, now: float) -> str:
    text = _STATES.get(plan.state, plan.state)
    left = _unix(plan.until) - now if plan.until else 0.0
    return f"{text}, {_span(left)} left" if left >= 1 else f"{text} {age(since, now)}".rstrip()


def _used(use: UseRow) -> _Line:
    admin = " (admin)" if use.admin_access else ""
    return (f"{use.namespace}/{use.claim}{admin}", " ".join(use.pods) or "-")


def _fitted(widths: list[int], width: int) -> list[int]:
    """Return the widths of the columns, the widest of those that can be folded made narrower until all fit."""
    fitted = list(widths)
    while sum(fitted) + len(_GAP) * (len(fitted) - 1) > width:
        widest = max(_FOLDED, key=lambda column: fitted[column])
        if fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def _padded(cells: Iterable[str], widths: list[int], *, color: bool) -> Iterator[str]:
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = cell.ljust(width)
        yield typer.style(text, fg=_COLORS[cell]) if color and column == _HEALTH and cell in _COLORS else text
