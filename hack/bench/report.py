"""The report: a table for people, and the same as plain values for JSON."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from hack.bench.figures import CONTESTANTS, DEFAULT, OURS, RAISED, Goal, Row
from hack.bench.stats import Summary

NOTE = (
    "Values are medians over all rounds, those of starts over all starts (lowest-highest). The ratio is ours to the Go "
    "driver's with raised limits, or, where the goal says so, to our own other figure."
)


def number(value: float) -> str:
    """Return a number with about three digits."""
    if abs(value) >= 100:  # noqa: PLR2004 - three digits before the point are enough
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"  # noqa: PLR2004 - the same


def spread(value: Summary | None) -> str:
    """Return the centre and how far the values lie apart."""
    if value is None:
        return "-"
    middle = number(value.centre)
    return middle if value.count == 1 else f"{middle} ({number(value.low)}-{number(value.high)})"


def goal_text(goal: Goal | None, unit: str) -> str:
    """Return a goal in a few words."""
    if goal is None:
        return ""
    if goal.against == "amount":
        return f"{goal.sense} {number(goal.limit)} {unit}"
    around = f" ±{goal.noise:.0%}" if goal.noise else ""
    return f"{goal.sense} {goal.limit:g}x{around}" + (f" of {goal.other}" if goal.other else "")


def met_text(met: bool | None) -> str:  # noqa: FBT001 - a value to show, not a switch
    """Return the verdict."""
    return {True: "yes", False: "NO", None: ""}[met]


def table(rows: Iterable[Row]) -> Table:
    """Return the table."""
    result = Table(title="drasim beside a driver on the Go helper", caption=NOTE, title_justify="left")
    result.add_column("figure")
    for name in ("unit", OURS, DEFAULT, RAISED, "ratio", "goal", "met?"):
        result.add_column(name, justify="left" if name in ("unit", "goal") else "right")
    for row in rows:
        style = {True: "green", False: "bold red", None: ""}[row.met]
        cells = [spread(row.values.get(name)) for name in (OURS, DEFAULT, RAISED)]
        share = "" if row.ratio is None else f"{row.ratio:.2f}x"
        goal = goal_text(row.figure.goal, row.figure.unit)
        verdict = f"[{style}]{met_text(row.met)}[/]" if style else ""
        result.add_row(row.figure.title, row.figure.unit, *cells, share, goal, verdict)
    return result


def plain(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows as plain values."""
    return [
        {
            "figure": row.figure.key,
            "title": row.figure.title,
            "unit": row.figure.unit,
            "centre": row.figure.centre,
            "values": {name: _plain(row.values.get(name)) for name in CONTESTANTS},
            "ratio": row.ratio,
            "goal": goal_text(row.figure.goal, row.figure.unit),
            "met": row.met,
        }
        for row in rows
    ]


def _plain(value: Summary | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def show(rows: Iterable[Row]) -> None:
    """Print the table; as wide as it needs where nobody watches a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table(rows))
