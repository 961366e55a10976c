"""The figures, their goals, and whether what was measured meets them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hack.bench.stats import Centre, Summary, ratio, summary

OURS, DEFAULT, RAISED = "drasim", "go-default", "go-raised"
CONTESTANTS = (OURS, RAISED, DEFAULT)
NOISE = 0.1
"""Two runs of the same thing differ by this much on a small machine: "no slower" allows for it."""

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""The values of each figure, of each contestant: one per round, or one per start."""


@dataclass(frozen=True)
class Goal:
    """What our value is held to: an amount, the Go driver's value (raised limits), or another figure of our own."""

    against: Literal["amount", "go", "own"]
    limit: float
    sense: Literal["≤", "≥"] = "≤"
    other: str = ""
    noise: float = 0.0

    def met(self, value: float) -> bool:
        """Tell whether a value (for `go` and `own`: a ratio) is good enough."""
        if self.sense == "≤":
            return value <= self.limit * (1 + self.noise)
        return value >= self.limit * (1 - self.noise)


@dataclass(frozen=True)
class Figure:
    """One line of the table. `group` is what is measured together."""

    key: str
    title: str
    unit: str
    group: str
    goal: Goal | None = None
    centre: Centre = "median"


@dataclass(frozen=True)
class Row:
    """A figure with what was measured. `ratio` is what a relative goal looks at; None: not measured, or no goal."""

    figure: Figure
    values: Mapping[str, Summary | None]
    ratio: float | None
    met: bool | None


def _go(limit: float, sense: Literal["≤", "≥"] = "≤") -> Goal:
    return Goal("go", limit, sense)


NO_MORE = Goal("go", 1, noise=NOISE)
FIGURES = (
    Figure("sockets", "exec → all sockets listening", "s", "startup", Goal("amount", 0.25)),
    Figure("slices", "exec → all slices visible, mean", "s", "startup", _go(0.75), "mean"),
    Figure("notify", "Notify → slices visible", "ms", "startup", Goal("amount", 40)),
    Figure("start-pod", "exec → waiting Pod Running", "s", "startup", _go(1)),
    Figure("fault-8-p50", "Fault → slice seen, 8 devices, p50", "ms", "faults", Goal("amount", 12)),
    Figure("fault-8-p99", "Fault → slice seen, 8 devices, p99", "ms", "faults", Goal("amount", 25)),
    Figure("fault-64-p50", "Fault → slice seen, 64 devices, p50", "ms", "faults", Goal("amount", 20)),
    Figure("fault-64-p99", "Fault → slice seen, 64 devices, p99", "ms", "faults", Goal("amount", 40)),
    Figure("fault-object-p50", "DeviceFault created → slice seen, p50", "ms", "faults", Goal("amount", 50)),
    Figure("fault-deletion-p50", "DeviceFault created → Pod being deleted, p50", "ms", "faults", Goal("amount", 150)),
    Figure("fault-replaced", "DeviceFault created → replacement Pod Running", "s", "faults"),
    Figure("fault-recovered", "DeviceFault deleted → no taint, no rule (1 s + 1 s wanted)", "s", "faults"),
    Figure("flap-cpu-node", "CPU of the node, 16 devices flap", "% of a core", "faults", Goal("amount", 5)),
    Figure("flap-rss-node", "RSS of the node, 16 devices flap", "MiB", "faults"),
    Figure("flap-cpu-controller", "CPU of the controller, 16 devices flap", "% of a core", "faults"),
    Figure("flap-rss-controller", "RSS of the controller, 16 devices flap", "MiB", "faults"),
    Figure("controller-1000", "RSS of the controller, slices of 1,000 nodes", "MiB", "faults"),
    Figure("prepare-128-p50", "Prepare, 128 claims, p50", "ms", "calls", _go(0.45)),
    Figure("prepare-128-p99", "Prepare, 128 claims, p99", "ms", "calls", _go(0.45)),
    Figure("prepare-8-p50", "Prepare, 8 claims, p50", "ms", "calls", _go(0.75)),
    Figure("prepare-8-p99", "Prepare, 8 claims, p99", "ms", "calls", _go(0.75)),
    Figure("prepare-params-p50", "Prepare with parameters, 8 claims, p50", "ms", "calls", _go(0.9)),
    Figure("prepare-params-p99", "Prepare with parameters, 8 claims, p99", "ms", "calls", _go(0.9)),
    Figure("params-128-p50", "Prepare with parameters, 128 claims, p50", "ms", "calls"),
    Figure("unprepare-128-p50", "Unprepare, 128 claims, p50", "ms", "calls"),
    Figure("callers-128-p50", "Prepare, 16 callers, 128 claims, p50", "ms", "calls", _go(0.4)),
    Figure("rate-128", "Prepare + Unprepare, 16 callers, 128 claims", "calls/s", "calls", _go(2.5, "≥")),
    Figure("rate-8", "Prepare + Unprepare, 16 callers, 8 claims", "calls/s", "calls", _go(1.5, "≥")),
    Figure("held-p50", "Prepare, 512 more held, p50", "ms", "calls", Goal("own", 1, "≤", "prepare-128-p50", NOISE)),
    Figure("held-rate", "16 callers, 512 more held", "calls/s", "calls", Goal("own", 1, "≥", "rate-128", NOISE)),
    Figure("cpu-call", "CPU per call, 16 callers, 128 claims", "ms", "calls", _go(0.4)),
    Figure("pod-extra", "Pod with claim minus Pod without", "ms", "pods", NO_MORE),
    Figure("rss-idle", "RSS idle", "MiB", "memory"),
    Figure("rss-after", "RSS after 2,000 calls", "MiB", "memory", Goal("amount", 66)),
    Figure("cpu-idle", "CPU idle", "% of a core", "memory", Goal("amount", 0.3)),
)
GROUPS = tuple(dict.fromkeys(figure.group for figure in FIGURES))


def groups_for(names: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that have to be measured for these figures or groups (none: all). Raises ValueError."""
    known = {figure.key: figure.group for figure in FIGURES} | {group: group for group in GROUPS}
    wanted = list(names)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no figure {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {known[name] for name in wanted}
    return tuple(group for group in GROUPS if group in chosen or not chosen)


def judge(samples: Samples) -> tuple[Row, ...]:
    """Return a row for each figure of which anything was measured."""
    rows = (_row(figure, samples) for figure in FIGURES if samples.get(figure.key))
    return tuple(rows)


def _row(figure: Figure, samples: Samples) -> Row:
    values = {name: _summary(samples, figure, name) for name in CONTESTANTS}
    ours, share = _centre(values[OURS]), ratio(_centre(values[OURS]), _centre(values[RAISED]))
    if figure.goal is None:
        return Row(figure, values, share, None)
    if figure.goal.against == "own":
        other = next(f for f in FIGURES if f.key == figure.goal.other)
        share = ratio(ours, _centre(_summary(samples, other, OURS)))
    judged = ours if figure.goal.against == "amount" else share
    return Row(figure, values, share, None if judged is None else figure.goal.met(judged))


def _summary(samples: Samples, figure: Figure, contestant: str) -> Summary | None:
    return summary(samples.get(figure.key, {}).get(contestant, ()), figure.centre)


def _centre(value: Summary | None) -> float | None:
    return None if value is None else value.centre
