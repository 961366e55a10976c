"""The report: what people and programs read."""

import io
import json

import pytest
from rich.console import Console

from hack.bench import report
from hack.bench.figures import DEFAULT, OURS, RAISED, Goal, judge

SAMPLES = {
    "prepare-128-p50": {OURS: [3.0, 4.0, 5.0], RAISED: [10.0, 8.0, 12.0], DEFAULT: [200.0]},
    "rate-128": {OURS: [100.0], RAISED: [100.0]},
    "rss-idle": {OURS: [55.5]},
}


def rendered() -> str:
    """Return the table as text."""
    out = io.StringIO()
    Console(width=200, file=out).print(report.table(judge(SAMPLES)))
    return out.getvalue()


def test_the_table_shows_values_goals_and_verdicts() -> None:
    """Each line has the three drivers' values with their spread, the ratio, the goal and whether it is met."""
    lines = rendered().splitlines()
    met = next(line for line in lines if "Prepare, 128 claims, p50" in line)
    missed = next(line for line in lines if "16 callers" in line)
    for part in ("4.00 (3.00-5.00)", "200", "10.0 (8.00-12.0)", "0.40x", "≤ 0.45x", "yes"):
        assert part in met
    for part in ("1.00x", "≥ 2.5x", "NO"):
        assert part in missed


def test_what_was_not_measured_is_a_dash() -> None:
    """A driver without a value, and a figure without a goal, leave no verdict."""
    line = next(line for line in rendered().splitlines() if "RSS idle" in line)
    assert ("55.5" in line, line.count(" - "), "yes" in line) == (True, 2, False)


@pytest.mark.parametrize(("value", "text"), [(0.1234, "0.12"), (12.34, "12.3"), (123.4, "123"), (-0.5, "-0.50")])
def test_numbers_have_three_digits(value: float, text: str) -> None:
    """More would pretend to an exactness that is not there."""
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (None, ""),
        (Goal("amount", 0.25), "≤ 0.25 s"),
        (Goal("go", 2.5, "≥"), "≥ 2.5x"),
        (Goal("go", 0.9), "≤ 0.9x"),
        (Goal("go", 1, noise=0.1), "≤ 1x ±10%"),
        (Goal("own", 1, "≥", "rate-128", 0.1), "≥ 1x ±10% of rate-128"),
    ],
)
def test_goals_in_words(goal: Goal | None, text: str) -> None:
    """A goal says how much, of what, and how much noise it allows."""
    assert report.goal_text(goal, "s") == text


def test_programs_read_the_same() -> None:
    """The plain form survives JSON and has the verdicts."""
    rows = json.loads(json.dumps(report.plain(judge(SAMPLES))))
    assert [(row["figure"], row["met"]) for row in rows] == [
        ("prepare-128-p50", True),
        ("rate-128", False),
        ("rss-idle", None),
    ]
    assert rows[0]["values"][OURS] == {"centre": 4.0, "low": 3.0, "high": 5.0, "count": 3}
