"""What is known of this node's devices, and what is wrong with them: a fold over what was observed. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from drasim.config import ProblemsConfig
from drasim.hardware import Gpu, Looked, Nic, Sign
from drasim.problems import Problem, lapsed, lapses, observed, unseen

__all__ = ["REMEMBERED", "NodeState", "fold", "forgotten", "next_settling", "settled", "unanswered"]

REMEMBERED = 86_400.0
"""Seconds for which a device that is gone, and that nobody holds, is remembered."""

T = TypeVar("T")

_SILENT = Sign(kind="probe-hangs", message="it does not answer")
_GONE = Sign(kind="unplugged", message="it is not in the machine any more")


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one kind, by hardware identity everywhere.

    Attributes:
        devices: what is in the machine, in the order of the index; also what does not answer.
        looked_at: Unix time in seconds of the last look; 0 when nobody has looked yet.
        looks: Unix time of the last look that really saw the device; of the first question to one that no look of this
            process has seen.
        problems: what is or was wrong with a device, never empty; each problem is judged alone. Those that count are
            ``problems.standing``.
        missing: devices that were in the machine and are not any more, as they were last known.
        doubtful: devices of which nobody has seen yet whether what stood before the machine's last boot still does.
    """

    devices: Mapping[str, Gpu | Nic] = MappingProxyType({})
    looked_at: float = 0.0
    looks: Mapping[str, float] = MappingProxyType({})
    problems: Mapping[str, tuple[Problem, ...]] = MappingProxyType({})
    missing: Mapping[str, Gpu | Nic] = MappingProxyType({})
    doubtful: frozenset[str] = frozenset()


def fold(state: NodeState, observation: Looked, config: ProblemsConfig) -> NodeState:
    """Return the state after ``observation``. An older look than the last one changes nothing.

    What time alone has settled by then is settled first, so that the result does not depend on who looked at the clock.
    """
    if observation.at < state.looked_at:
        return state
    state = settled(state, observation.at, config)
    devices = {device.id: device for device in sorted(observation.devices, key=lambda device: device.index)}
    known = {**state.missing, **state.devices}
    missing = {name: device for name, device in known.items() if name not in devices}
    seen = devices.keys() - observation.silent.keys()
    judged = {name: _judged(state, observation, name, present=name in devices) for name in (*devices, *missing)}
    looks = {name: observation.at if name in seen else _last_look(state, observation, name) for name in judged}
    return NodeState(
        devices=_same(state.devices, devices),
        looked_at=observation.at,
        looks=MappingProxyType(looks),
        problems=_problems(state, judged),
        missing=_same(state.missing, missing),
        doubtful=state.doubtful - seen if state.doubtful else state.doubtful,
    )


def unanswered(state: NodeState, at: float) -> Looked:
    """Return the look at ``at`` (Unix time) to which nothing answered: all that was there is silent."""
    silent = {name: state.looks.get(name, 0.0) for name in state.devices}
    return Looked(at=at, devices=tuple(state.devices.values()), silent=silent)


def settled(state: NodeState, now: float, config: ProblemsConfig) -> NodeState:
    """Return the state at ``now`` (Unix time): what was gone for long enough is over, in time forgotten."""
    due = _due(state, config)
    if not any(time <= now for _, time in due):
        return state
    late = {name for name, time in due if time <= now}
    after = {name: lapsed(each, now, config) if name in late else each for name, each in state.problems.items()}
    return msgspec.structs.replace(state, problems=_problems(state, after))


def next_settling(state: NodeState, config: ProblemsConfig) -> float | None:
    """Return the Unix time at which ``settled`` has something to do; None while only a look can change anything."""
    return min((time for _, time in _due(state, config)), default=None)


def forgotten(state: NodeState, now: float, held: frozenset[str]) -> NodeState:
    """Return the state without devices that are gone for a day and held by no claim (``held``: hardware identities)."""
    gone = {name for name in state.missing.keys() - held if now - _gone_since(state, name) >= REMEMBERED}
    if not gone:
        return state
    return msgspec.structs.replace(
        state,
        looks=_without(state.looks, gone),
        problems=_without(state.problems, gone),
        missing=_without(state.missing, gone),
        doubtful=state.doubtful - gone,
    )


def _judged(state: NodeState, observation: Looked, name: str, *, present: bool) -> tuple[Problem, ...]:
    """Return the problems of one device after the look."""
    known = state.problems.get(name, ())
    if not present:
        return unseen(known, _GONE, observation.at)
    if name in observation.silent:
        return unseen(known, _SILENT, observation.silent[name] or observation.at)
    signs = observation.signs.get(name, ())
    if not known and not signs:
        return ()
    if name in state.doubtful:
        named = {(sign.kind, sign.code) for sign in signs}
        known = tuple(problem for problem in known if (problem.kind, problem.code) in named)
    return observed(known, signs, observation.at)


def _last_look(state: NodeState, observation: Looked, name: str) -> float:
    return observation.silent.get(name, state.looks.get(name, 0.0))


def _gone_since(state: NodeState, name: str) -> float:
    return max((problem.since for problem in state.problems.get(name, ()) if problem.kind == _GONE.kind), default=0.0)


def _due(state: NodeState, config: ProblemsConfig) -> list[tuple[str, float]]:
    """Return when something of which device is settled by time."""
    times = ((name, lapses(problem, config)) for name, each in state.problems.items() for problem in each)
    return [(name, time) for name, time in times if time is not None]


def _problems(state: NodeState, after: Mapping[str, tuple[Problem, ...]]) -> Mapping[str, tuple[Problem, ...]]:
    """Return what is left of ``after``; the problems of a device that did not change are the same object."""
    found = {name: problems for name, problems in after.items() if problems}
    return _same(state.problems, {name: _as_before(state, name, problems) for name, problems in found.items()})


def _as_before(state: NodeState, name: str, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    before = state.problems.get(name)
    return before if before == problems else problems


def _same(old: Mapping[str, T], new: dict[str, T]) -> Mapping[str, T]:
    """Return ``new``, or ``old`` itself when it equals it: followers of it have nothing to do then."""
    return old if old == new else MappingProxyType(new)


def _without(mapping: Mapping[str, T], names: Iterable[str]) -> Mapping[str, T]:
    return MappingProxyType({name: value for name, value in mapping.items() if name not in names})
