"""Problems of a device: what is wrong, since when, and when that counts as over. Values and rules, pure.

A problem holds from the first look that found it until it was gone for long enough. While it is merely gone its taint
stays, with its time. When it comes back after it was over it has to be gone twice as long the next time: so a device
that flaps is let in less and less often, and one that was repaired soon.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from drasim.config import ProblemsConfig
from drasim.config.problems import PROBLEM_KINDS, Effect
from drasim.hardware import Sign

__all__ = [
    "Problem",
    "describe",
    "effect_of",
    "lapsed",
    "lapses",
    "observed",
    "standing",
    "steady",
    "unseen",
    "worst_first",
]

_RANKS = {kind: rank for rank, kind in enumerate(PROBLEM_KINDS)}  # from the worst
_DOUBLINGS = 32  # more would leave what a float holds, long after clearAfterMost
_LAST_SECOND = 253_402_300_799  # of the year 9999, which a taint's time can name


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem of one device. It holds until it was gone for long enough (``problems.clearAfter``).

    Attributes:
        kind: one of ``config.problems.PROBLEM_KINDS``.
        code: says more, such as the number of an XID; a label value.
        message: for people, one line.
        since: Unix time at which it was seen first; the ``timeAdded`` of its taint is the second that began before.
        gone: Unix time from which looks have not found it any more; None while they do.
        relapses: how often it came back after it was over; each doubles the time that it must be gone.
        cleared: Unix time from which it does not count any more; None while it does. It is remembered for a while.
    """

    kind: str
    code: str = ""
    message: str = ""
    since: Annotated[float, msgspec.Meta(ge=0, le=_LAST_SECOND)]
    gone: float | None = None
    relapses: int = 0
    cleared: float | None = None


def standing(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return those that count now."""
    return tuple(problem for problem in problems if problem.cleared is None)


def steady(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return them without what any look may change, whether it found them: that matters to the next look alone."""
    return tuple(map(_undated, problems))


def effect_of(problem: Problem, config: ProblemsConfig) -> Effect:
    """Return the effect of the taint that a problem puts on its device."""
    return config.effect(problem.kind, problem.code)


def worst_first(problems: Iterable[Problem], config: ProblemsConfig) -> tuple[Problem, ...]:
    """Return them with what keeps claims away first, then by kind as listed in ``PROBLEM_KINDS``, then the oldest."""

    def badness(problem: Problem) -> tuple[bool, int, float, str]:
        harmless = effect_of(problem, config) == "None"
        return harmless, _RANKS.get(problem.kind, len(_RANKS)), problem.since, problem.code

    return tuple(sorted(problems, key=badness))


def describe(problem: Problem) -> str:
    """Return a problem for people: ``xid 79: GPU has fallen off the bus``."""
    name = f"{problem.kind} {problem.code}".rstrip()
    return f"{name}: {problem.message}" if problem.message else name


def observed(known: Iterable[Problem], signs: Iterable[Sign], at: float) -> tuple[Problem, ...]:
    """Return the problems of a device after a look at ``at`` (Unix time) that saw it and found ``signs``.

    Each problem, told by kind and code, is judged alone.
    """
    left = {(problem.kind, problem.code): problem for problem in known}
    found = {(sign.kind, sign.code): sign for sign in signs}
    seen = [_seen(left.pop(key, None), sign, at) for key, sign in found.items()]
    return _ordered([*seen, *(_missed(problem, at) for problem in left.values())])


def unseen(known: Iterable[Problem], why: Sign | None = None, since: float = 0.0) -> tuple[Problem, ...]:
    """Return the problems of a device that cannot be looked at: all that stood may still be there, and ``why``.

    What had begun to be gone has to be seen gone anew. ``why``, if it is new, holds since ``since`` (Unix time).
    """
    left = {(problem.kind, problem.code): problem for problem in known}
    own = [_seen(left.pop((why.kind, why.code), None), why, since)] if why else []
    return _ordered([*own, *steady(left.values())])


def lapsed(problems: tuple[Problem, ...], now: float, config: ProblemsConfig) -> tuple[Problem, ...]:
    """Return them as they are at ``now`` (Unix time): over when gone for long enough, forgotten some time later."""
    after = (_lapsed(problem, now, config) for problem in problems)
    return tuple(problem for problem in after if problem is not None)


def lapses(problem: Problem, config: ProblemsConfig) -> float | None:
    """Return the Unix time at which the problem is over, or forgotten; None while looks find it."""
    if problem.cleared is not None:
        return problem.cleared + _remembered(config)
    return None if problem.gone is None else problem.gone + _patience(problem, config)


def _seen(known: Problem | None, sign: Sign, began: float) -> Problem:
    fresh = Problem(kind=sign.kind, code=sign.code, message=sign.message, since=began)
    if known is None:
        return fresh
    if known.cleared is not None:
        return msgspec.structs.replace(fresh, relapses=known.relapses + 1)
    return msgspec.structs.replace(known, message=sign.message, gone=None)


def _undated(known: Problem) -> Problem:
    return known if known.cleared is not None or known.gone is None else msgspec.structs.replace(known, gone=None)


def _missed(known: Problem, at: float) -> Problem:
    """Note that a look did not find the problem; a time that lies ahead is of a clock that was set back since."""
    if known.cleared is not None or (known.gone is not None and known.gone <= at):
        return known
    return msgspec.structs.replace(known, gone=at)


def _lapsed(problem: Problem, now: float, config: ProblemsConfig) -> Problem | None:
    over = lapses(problem, config)
    if over is None or over > now:
        return problem
    if problem.cleared is not None:
        return None
    return _lapsed(msgspec.structs.replace(problem, cleared=over), now, config)


def _patience(problem: Problem, config: ProblemsConfig) -> float:
    """Return the seconds for which the problem must be gone."""
    return min(config.clear_after * 2.0 ** min(problem.relapses, _DOUBLINGS), _remembered(config))


def _remembered(config: ProblemsConfig) -> float:
    return float(max(config.clear_after, config.clear_after_most))


def _ordered(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return them in an order that does not depend on who found what first, so that equal states are equal."""
    return tuple(sorted(problems, key=lambda each: (_RANKS.get(each.kind, len(_RANKS)), each.kind, each.code)))
