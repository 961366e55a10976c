"""Figures: percentiles, centres, goals and what is measured for which figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.bench import figures
from hack.bench.figures import DEFAULT, FIGURES, OURS, RAISED, Goal, judge
from hack.bench.stats import Summary, percentile, ratio, summary

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1, 100), (0, 1), (0.01, 1)])
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    """Of 1 to 100 the p50 is 50 and the p99 is 99."""
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


@given(VALUES, st.floats(0, 1))
def test_a_percentile_is_a_value_that_covers_its_share(values: list[float], share: float) -> None:
    """The result was measured, and at least that share of the values is not above it."""
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_no_values_have_no_percentile() -> None:
    """An empty measurement is an error, not a zero."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_summary_takes_the_centre_that_is_asked_for() -> None:
    """Median or mean, with the extremes; nothing measured is None."""
    assert summary([1.0, 2.0, 9.0]) == Summary(2.0, 1.0, 9.0, 3)
    assert summary([1.0, 2.0, 9.0], "mean") == Summary(4.0, 1.0, 9.0, 3)
    assert summary([]) is None


@pytest.mark.parametrize(("value", "other", "expected"), [(1, 2, 0.5), (None, 2, None), (1, None, None), (1, 0, None)])
def test_ratio(value: float | None, other: float | None, expected: float | None) -> None:
    """What is missing or cannot be divided by gives no ratio."""
    assert ratio(value, other) == expected


def test_a_ratio_is_held_against_the_go_driver_with_raised_limits() -> None:
    """The Go driver's default limits are shown and judge nothing."""
    samples = {"prepare-128-p50": {OURS: [3.0, 4.0, 5.0], RAISED: [10.0, 8.0, 12.0], DEFAULT: [200.0]}}
    (row,) = judge(samples)
    assert (row.ratio, row.met) == (0.4, True)
    values = row.values[DEFAULT]
    assert values is not None
    assert values.centre == 200


def test_more_is_better_for_rates() -> None:
    """A rate must be at least so many times the Go driver's."""
    (row,) = judge({"rate-128": {OURS: [240.0], RAISED: [100.0]}})
    assert (row.ratio, row.met) == (2.4, False)


def test_an_amount_is_held_against_itself() -> None:
    """A goal in seconds or MiB needs no other driver."""
    (row,) = judge({"sockets": {OURS: [0.2, 0.24, 0.9]}})
    assert (row.ratio, row.met) == (None, True)


def test_holding_many_claims_is_held_against_our_own_figure() -> None:
    """No slower: it compares with the same calls while nothing else is held, and allows for noise."""
    samples = {"rate-128": {OURS: [100.0]}, "held-rate": {OURS: [95.0], RAISED: [10.0]}}
    row = judge(samples)[-1]
    assert (row.ratio, row.met) == (0.95, True)


def test_nothing_measured_is_neither_met_nor_missed() -> None:
    """A figure without values has no row; one without the Go driver's value has no verdict."""
    rows = judge({"prepare-128-p50": {OURS: [3.0]}, "sockets": {}})
    assert [(row.figure.key, row.met) for row in rows] == [("prepare-128-p50", None)]


def test_goals_about_own_figures_name_one() -> None:
    """A goal against another figure of ours names one that exists."""
    keys = {figure.key for figure in FIGURES}
    named = {figure.goal.other for figure in FIGURES if figure.goal and figure.goal.against == "own"}
    assert named <= keys
    assert len(keys) == len(FIGURES)


@pytest.mark.parametrize(
    ("names", "expected"),
    [((), figures.GROUPS), (("sockets",), ("startup",)), (("memory", "rate-8"), ("calls", "memory"))],
)
def test_groups_for(names: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """A figure brings the group it is measured with; none asked for is all."""
    assert figures.groups_for(names) == expected


def test_an_unknown_figure_is_refused() -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match=r"no figure speed; there are sockets, .*, memory"):
        figures.groups_for(["speed"])


@pytest.mark.parametrize(("sense", "value", "met"), [("≤", 1.0, True), ("≤", 1.1, False), ("≥", 1.0, True)])
def test_goal(sense: str, value: float, met: bool) -> None:
    """The limit itself is good enough."""
    assert Goal("go", 1.0, "≤" if sense == "≤" else "≥").met(value) is met
