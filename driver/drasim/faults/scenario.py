"""A scenario: a time line of faults in YAML, with a seed for what is left to chance. Read strictly, pure.

    seed: 7
    node: node-a                                   # --node says it for a file that does not
    steps:
      - {at: 0s, inject: {device: gpu-3, kind: xid, code: 79}}
      - {at: 20s, clear: {device: gpu-3}}
      - {at: 30s, times: 10, every: 5s, jitter: 2s, inject: {any: gpu, count: 2, kind: [xid, thermal], code: [48, 79],
         duration: {least: 5s, most: 20s}}}

``faults.timeline`` makes the events of it.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from drasim.config import ConfigError, Seconds, decode_file
from drasim.config.sections import Section
from drasim.config.strict import Delay
from drasim.hardware.simulated.faults import FAULT_KINDS, FaultRefused, checked_code, checked_kind

__all__ = ["Clear", "Inject", "Range", "Scenario", "Step", "load_scenario", "moment_of", "span_of"]

_Time = Annotated[
    str | int | float, msgspec.Meta(description="0s to 24h: a number of seconds, or text such as 5s, 500ms, 2m, 1h")
]
_Times = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Words = Annotated[
    str | tuple[str, ...], msgspec.Meta(description="a kind of fault, or a list of kinds to choose from")
]
_Codes = Annotated[
    str | int | tuple[str | int, ...], msgspec.Meta(description="a code such as 79, or a list of codes to choose from")
]


class Range(Section, frozen=True, kw_only=True):
    """Any time from ``least`` to ``most``."""

    least: Seconds
    most: Seconds


_Span = Annotated[
    str | int | float | Range,
    msgspec.Meta(description="1ms to 24h, such as 5s, or the range {least: 5s, most: 20s} to choose from"),
]


class Inject(Section, frozen=True, kw_only=True):
    """Let something fail.

    Attributes:
        node: the Node; empty: the scenario's.
        device: one device, as in a DeviceFault. Exactly one of this, ``all`` and ``any`` is given.
        all: all devices of a kind, as one DeviceFault.
        any: devices chosen by chance: ``count`` of that kind, or PCIe roots.
        count: how many devices are chosen, each another one.
        kind: what is wrong; of several, one is chosen for each device.
        code: of several, one is chosen for each fault whose kind has a code.
        duration: how long it lasts; None: until a ``clear``, or for ever.
    """

    node: str = ""
    device: str = ""
    all: Literal["gpu", "nic"] | None = None
    any: Literal["gpu", "nic", "root"] | None = None
    count: _Count = 1
    kind: _Words
    code: _Codes = ()
    duration: _Span | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds to choose from."""
        return (self.kind,) if isinstance(self.kind, str) else self.kind

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes to choose from."""
        return tuple(map(str, self.code if isinstance(self.code, tuple) else (self.code,)))


class Clear(Section, frozen=True, kw_only=True):
    """Repair what this scenario injected before: all of it, or what equals everything that is given here."""

    node: str = ""
    device: str = ""
    all: Literal["gpu", "nic"] | None = None
    kind: str = ""


class Step(Section, frozen=True, kw_only=True):
    """One entry of the time line.

    Attributes:
        at: the time since the start.
        inject: what fails then; exactly one of this and ``clear`` is given.
        clear: what is repaired then.
        times: how often it is done.
        every: the time between two of those.
        jitter: each of those comes later by up to that, by chance.
    """

    at: _Time
    inject: Inject | None = None
    clear: Clear | None = None
    times: _Times = 1
    every: Seconds | None = None
    jitter: Seconds | None = None


class Scenario(Section, frozen=True, kw_only=True):
    """The whole file. The same seed on the same machine gives the same events."""

    seed: int = 0
    node: str = ""
    steps: tuple[Step, ...]


def load_scenario(file: Path) -> Scenario:
    """Return the scenario of a file. Raises ConfigError that names the file, the key and what is allowed."""
    scenario = decode_file(file, Scenario)
    if not scenario.steps:
        raise ConfigError(str(file), "steps", "empty; needed: at least one step")
    for number, step in enumerate(scenario.steps):
        _check_step(step, str(file), f"steps[{number}]")
    _check_order(scenario.steps, str(file))
    return scenario


def moment_of(step: Step) -> float:
    """Return the time of a step in seconds. Raises ValueError."""
    return float(Delay.parse(step.at))


def span_of(inject: Inject) -> Range | None:
    """Return the range of durations, of one value where only that is allowed; None: it has none. Raises ValueError."""
    if inject.duration is None or isinstance(inject.duration, Range):
        return inject.duration
    only = Seconds.parse(inject.duration)
    return Range(least=only, most=only)


def _check_step(step: Step, file: str, where: str) -> None:
    try:
        moment_of(step)
    except ValueError:
        raise ConfigError(file, f"{where}.at", f'"{step.at}" is not allowed; allowed: 0s to 24h') from None
    if (step.inject is None) == (step.clear is None):
        raise ConfigError(file, where, "exactly one of inject and clear must be given")
    if step.times > 1 and step.every is None:
        raise ConfigError(file, f"{where}.every", f"missing; needed with times {step.times}: a duration such as 5s")
    if step.times == 1 and step.every is not None:
        raise ConfigError(file, f"{where}.every", f"{step.every} is not allowed without times above 1; allowed: none")
    if step.inject:
        _check_inject(step.inject, file, f"{where}.inject")
    elif step.clear and step.clear.kind:
        _check_kind(step.clear.kind, file, f"{where}.clear.kind")


def _check_order(steps: tuple[Step, ...], file: str) -> None:
    for number, (before, step) in enumerate(pairwise(steps), start=1):
        if moment_of(step) < moment_of(before):
            problem = (
                f'"{step.at}" goes back behind "{before.at}" of steps[{number - 1}]; allowed: {before.at} or later'
            )
            raise ConfigError(file, f"steps[{number}].at", problem)


def _check_inject(inject: Inject, file: str, where: str) -> None:
    given = [name for name in ("device", "all", "any") if getattr(inject, name)]
    if len(given) != 1:
        raise ConfigError(file, where, f"{' and '.join(given) or 'none'} given; allowed: one of device, all, any")
    if inject.count > 1 and not inject.any:
        raise ConfigError(file, f"{where}.count", f"{inject.count} is not allowed without any; allowed: 1")
    if not inject.kinds:
        raise ConfigError(file, f"{where}.kind", f"empty; allowed: {', '.join(FAULT_KINDS)}")
    for kind in inject.kinds:
        _check_kind(kind, file, f"{where}.kind")
    _check_codes(inject, file, f"{where}.code")
    _check_span(inject, file, f"{where}.duration")


def _check_codes(inject: Inject, file: str, where: str) -> None:
    """Refuse a code that does not suit each kind that has one, whatever chance will choose."""
    coded = [kind for kind in inject.kinds if FAULT_KINDS[kind].code]
    if inject.codes and not coded:
        raise ConfigError(file, where, f"not allowed with {', '.join(inject.kinds)}; allowed: none")
    for kind in coded:
        for code in inject.codes or ("",):
            _check_code(kind, code, file, where)


def _check_code(kind: str, code: str, file: str, where: str) -> None:
    try:
        checked_code(kind, code)
    except FaultRefused as refusal:
        raise ConfigError(file, where, refusal.problem) from None


def _check_span(inject: Inject, file: str, where: str) -> None:
    try:
        span = span_of(inject)
    except ValueError:
        raise ConfigError(file, where, f'"{inject.duration}" is not allowed; allowed: 1ms to 24h') from None
    if span and span.most < span.least:
        raise ConfigError(file, f"{where}.most", f"{span.most} is less than least; allowed: {span.least} or more")


def _check_kind(kind: str, file: str, where: str) -> None:
    try:
        checked_kind(kind)
    except FaultRefused as refusal:
        raise ConfigError(file, where, refusal.problem) from None
