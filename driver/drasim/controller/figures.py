"""Figures of the controller that are read when somebody asks. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from drasim.controller.loop import Outcome
from drasim.controller.status import DeviceState
from drasim.metrics import Gauge

__all__ = ["gauges"]


def gauges(outcome: Outcome, *, leading: bool, served: bool, problems: int) -> Iterator[Gauge]:
    """Yield the figures of one instance; those of the devices are the same in all, since all of them look.

    ``served``: the server has DeviceTaintRules. ``problems``: how much keeps this instance from being of use.
    """
    yield Gauge("controller_leading", "1 while this instance writes", {}, leading)
    yield Gauge("controller_rules_served", "1 while the API server serves DeviceTaintRules", {}, served)
    yield Gauge("controller_problems", "What keeps the controller from its work", {}, problems + len(outcome.problems))
    verdicts = outcome.decision.verdicts
    states = Counter(verdict.state for verdict in verdicts)
    for state in get_args(DeviceState):
        text = "Sick devices that the policy speaks of, by what becomes of them"
        yield Gauge("controller_devices", text, {"state": state}, states[state])
    ruled = Counter((each.place.driver, each.kind) for each in verdicts if each.is_ruled)
    for (driver, kind), count in sorted(ruled.items()):
        yield Gauge("controller_rules", "DeviceTaintRules that stand", {"driver": driver, "problem": kind}, count)
    yield from _budgets(outcome)


def _budgets(outcome: Outcome) -> Iterator[Gauge]:
    for use in outcome.decision.budgets:
        labels = {"scope": use.scope, "name": use.name}
        yield Gauge("controller_budget_limit", "Devices that may be under eviction at once", labels, use.limit or 0)
        yield Gauge("controller_budget_used", "Devices that are under eviction", labels, use.used)
        yield Gauge("controller_budget_held_back", "Devices that wait for the budget", labels, use.held)
