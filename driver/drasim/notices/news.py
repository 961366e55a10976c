"""What is new about the problems of devices, and what is worth an Event. Pure."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from drasim.config import ProblemsConfig
from drasim.problems import Problem, describe, effect_of, standing, worst_first
from drasim.state import NodeState

__all__ = [
    "DEVICE_DEGRADED",
    "DEVICE_HEALTH_UNKNOWN",
    "DEVICE_RECOVERED",
    "DEVICE_UNHEALTHY",
    "DEVICE_UNPUBLISHED",
    "UNPUBLISHED",
    "News",
    "Told",
    "known_at_start",
    "news",
    "stands",
]

DEVICE_UNHEALTHY = "DeviceUnhealthy"
DEVICE_DEGRADED = "DeviceDegraded"
DEVICE_HEALTH_UNKNOWN = "DeviceHealthUnknown"
DEVICE_RECOVERED = "DeviceRecovered"
DEVICE_UNPUBLISHED = "DeviceUnpublished"

UNPUBLISHED = "left out of its ResourceSlice: the server drops taints (feature gate DRADeviceTaints)"
"""Why a device that is there is not published, for people."""

Told = frozenset[tuple[str, str, str]]
"""Problems that users were told of, or that somebody else has told them of: hardware identity, kind, code."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """Something about one device.

    Attributes:
        hardware: identity of the device.
        reason: of the Event, one of this module's constants.
        text: for people, one line that does not name the device.
    """

    hardware: str
    reason: str
    text: str


def known_at_start(state: NodeState, started: float) -> Told:
    """Return the problems that stood before this process started: whoever saw them first has told of them.

    ``started`` is Unix time in seconds. A problem that was over before then is no news either.
    """
    return frozenset(
        (hardware, problem.kind, problem.code)
        for hardware, problems in state.problems.items()
        for problem in problems
        if problem.since < started and (problem.cleared is None or problem.cleared >= started)
    )


def stands(state: NodeState) -> Told:
    """Return the problems that count now."""
    return frozenset(
        (hardware, problem.kind, problem.code)
        for hardware, problems in state.problems.items()
        for problem in standing(problems)
    )


def news(told: Told, state: NodeState, config: ProblemsConfig) -> tuple[News, ...]:
    """Return what is new since ``told``: problems, then recoveries, each in the order of the devices.

    A device that is not there any more has not recovered from anything.
    """
    now = stands(state)
    begun, ended = now - told, told - now
    return (
        *(_begun(hardware, problem, config) for hardware, problem in _each(state.problems, begun)),
        *(_ended(hardware, codes, state, config) for hardware, codes in _by_device(ended) if hardware in state.devices),
    )


def _begun(hardware: str, problem: Problem, config: ProblemsConfig) -> News:
    return News(hardware=hardware, reason=_reason(problem, config), text=describe(problem) + _again(problem.relapses))


def _ended(hardware: str, over: list[tuple[str, str]], state: NodeState, config: ProblemsConfig) -> News:
    """Say which problems are over and which are not: there is one recovery for all that ended at the same time."""
    known = state.problems.get(hardware, ())
    left = worst_first(standing(known), config)
    relapses = {(problem.kind, problem.code): problem.relapses for problem in known}
    names = (f"{kind} {code}".rstrip() + _again(relapses.get((kind, code), 0)) for kind, code in over)
    rest = f"still there: {', '.join(map(describe, left))}" if left else "no problem is left"
    return News(hardware=hardware, reason=DEVICE_RECOVERED, text=f"over: {', '.join(names)}; {rest}")


def _again(relapses: int) -> str:
    """Return what tells a problem from its earlier times: an Event that says the same as one before is not written."""
    return f" (seen {relapses + 1} times)" if relapses else ""


def _reason(problem: Problem, config: ProblemsConfig) -> str:
    if problem.kind == "probe-hangs":
        return DEVICE_HEALTH_UNKNOWN
    return DEVICE_DEGRADED if effect_of(problem, config) == "None" else DEVICE_UNHEALTHY


def _each(problems: Mapping[str, tuple[Problem, ...]], wanted: Told) -> Iterator[tuple[str, Problem]]:
    for hardware, each in problems.items():
        for problem in standing(each):
            if (hardware, problem.kind, problem.code) in wanted:
                yield hardware, problem


def _by_device(ended: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for hardware, kind, code in sorted(ended):
        found.setdefault(hardware, []).append((kind, code))
    yield from found.items()
