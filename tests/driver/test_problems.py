"""Problems: when they begin, when they are over, which is the worst."""

import pytest

from drasim.config import ProblemsConfig, Seconds
from drasim.hardware import Sign
from drasim.problems import Problem, describe, effect_of, lapsed, lapses, observed, standing, unseen, worst_first
from tests.driver.looks import FALLEN, FULL, HOT, POLICY


def test_a_problem_begins_with_the_look_that_finds_it() -> None:
    """It stands since that look, with the words of the hardware."""
    assert observed((), [FALLEN], 12.7) == (Problem(kind="xid", code="79", message=FALLEN.message, since=12.7),)


def test_a_problem_that_is_found_again_keeps_its_time() -> None:
    """Its age is that of the problem, not of the look; what the hardware says of it may change."""
    worse = Sign(kind="xid", code="79", message="again")
    assert observed(observed((), [FALLEN], 1.0), [worse], 9.0) == (
        Problem(kind="xid", code="79", message="again", since=1),
    )


def test_a_problem_is_over_when_it_was_gone_for_long_enough() -> None:
    """It stands for `clearAfter` after the first look without it, to the moment."""
    gone = observed(observed((), [FALLEN], 1.0), [], 3.0)
    assert (gone[0].gone, lapses(gone[0], POLICY)) == (3.0, 8.0)
    assert standing(lapsed(gone, 7.9, POLICY)) == gone
    assert standing(lapsed(gone, 8.0, POLICY)) == ()


def test_looks_without_it_do_not_put_that_off() -> None:
    """Only the first of them counts."""
    gone = observed(observed((), [FALLEN], 1.0), [], 3.0)
    assert observed(gone, [], 6.0) == gone


def test_a_problem_that_comes_back_before_that_has_never_gone() -> None:
    """It keeps its time, and it is no relapse."""
    back = observed(observed(observed((), [FALLEN], 1.0), [], 3.0), [FALLEN], 5.0)
    assert back == observed((), [FALLEN], 1.0)


def test_each_relapse_doubles_the_time_up_to_a_limit() -> None:
    """A device that flaps is let in less and less often: after 5, 10, 20 seconds, and no longer than 20."""
    problems, at, waits = observed((), [FALLEN], 0.0), 0.0, []
    for _ in range(5):
        problems = observed(problems, [], at)
        over = lapses(problems[0], POLICY)
        assert over is not None
        waits.append(over - at)
        problems = observed(lapsed(problems, over, POLICY), [FALLEN], at := over + 1)
    assert waits == [5.0, 10.0, 20.0, 20.0, 20.0]
    assert problems[0].since == int(at)


def test_what_is_over_is_forgotten_in_time() -> None:
    """After `clearAfterMost` a problem that comes back is a new one; both times may pass between two looks."""
    gone = observed(observed((), [FALLEN], 0.0), [], 0.0)
    assert lapsed(gone, 24.9, POLICY)[0].cleared == 5.0
    assert lapsed(gone, 25.0, POLICY) == ()


def test_damping_for_longer_than_the_most() -> None:
    """A `clearAfter` above `clearAfterMost` holds as it is."""
    policy = ProblemsConfig(clear_after=Seconds(300), clear_after_most=Seconds(20))
    (gone,) = observed(observed((), [FALLEN], 0.0), [], 0.0)
    assert lapses(gone, policy) == 300.0


def test_nobody_looking_is_no_recovery() -> None:
    """What had begun to be gone has to be seen gone anew; what is over stays over."""
    gone = observed(observed((), [FALLEN], 1.0), [], 3.0)
    assert unseen(gone) == observed((), [FALLEN], 1.0)
    over = lapsed(gone, 9.0, POLICY)
    assert unseen(over) == over


def test_why_nobody_could_look_is_a_problem_of_its_own() -> None:
    """It holds since the last look, beside the others."""
    why = Sign(kind="probe-hangs", message="it does not answer")
    problems = unseen(observed((), [FALLEN], 1.0), why, 4.5)
    assert [(each.kind, each.since) for each in problems] == [("xid", 1), ("probe-hangs", 4.5)]
    assert unseen(problems, why, 9.0) == problems


def test_a_clock_that_was_set_back() -> None:
    """A time of recovery that lies ahead does not keep the problem standing until then."""
    gone = observed(observed((), [FALLEN], 1000.0), [], 1000.0)
    assert observed(gone, [], 10.0)[0].gone == 10.0


def test_the_worst_comes_first() -> None:
    """What keeps claims away before warnings, then by kind, then the oldest."""
    problems = [
        Problem(kind="thermal", since=1),
        Problem(kind="xid", code="13", since=1),
        Problem(kind="xid", code="79", since=3),
        Problem(kind="xid", code="48", since=2),
        Problem(kind="lost", since=9),
    ]
    ranked = [(each.kind, each.code) for each in worst_first(problems, POLICY)]
    assert ranked == [("lost", ""), ("xid", "48"), ("xid", "79"), ("xid", "13"), ("thermal", "")]


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(kind="xid", code="79", message="GPU has fallen off the bus", since=0), "xid 79: GPU has fallen off"),
        (Problem(kind="thermal", message="too hot", since=0), "thermal: too hot"),
        (Problem(kind="xid", code="140", since=0), "xid 140"),
    ],
)
def test_a_problem_in_words(problem: Problem, text: str) -> None:
    """Kind and code, then what the hardware said, if anything."""
    assert describe(problem).startswith(text)
    assert describe(problem).endswith(problem.message)


def test_effects_are_configured_by_kind_and_code() -> None:
    """The more special key decides; a kind that nobody knows (of another version) keeps claims away."""
    policy = ProblemsConfig(effects={"xid": "None", "xid/79": "NoSchedule"})
    problems = observed((), [FALLEN, FULL, HOT, Sign(kind="melted")], 0.0)
    effects = {each.kind + each.code: effect_of(each, policy) for each in problems}
    assert effects == {"xid79": "NoSchedule", "xid48": "None", "thermal": "None", "melted": "NoSchedule"}
