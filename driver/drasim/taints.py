"""What a device's problems mean for its users: taints and health. The one maker of both. Pure.

The node keeps claims away (NoSchedule) or informs (None); only the controller evicts (NoExecute).
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from dra_plugin.health import Health
from dra_plugin.resources import DeviceTaint
from drasim.config import ProblemsConfig
from drasim.problems import Problem, describe, effect_of, standing, worst_first

__all__ = ["health_of", "isolates", "message_of", "taints_for"]


def taints_for(problems: Iterable[Problem], driver: str, config: ProblemsConfig) -> tuple[DeviceTaint, ...]:
    """Return one taint for each kind of standing problem, the worst first: key ``<driver>/<kind>``, value its code.

    Several codes of one kind share the taint: its code is that of the worst of them, of equal ones the oldest.
    """
    worst: dict[str, Problem] = {}
    for problem in worst_first(standing(problems), config):
        worst.setdefault(problem.kind, problem)
    return tuple(_taint(problem, driver, config) for problem in worst.values())


def isolates(problems: Iterable[Problem], config: ProblemsConfig) -> bool:
    """Tell whether new claims are to be kept away from a device with these problems."""
    return any(effect_of(problem, config) == "NoSchedule" for problem in standing(problems))


def health_of(problems: Iterable[Problem], config: ProblemsConfig) -> Health:
    """Return the health of a device: warnings do not change it, and a device that does not answer is unknown."""
    holding = standing(problems)
    hanging = tuple(problem for problem in holding if problem.kind == "probe-hangs")
    if isolates((problem for problem in holding if problem not in hanging), config):
        return Health.UNHEALTHY
    return Health.UNKNOWN if hanging else Health.HEALTHY


def message_of(problems: Iterable[Problem], config: ProblemsConfig) -> str:
    """Return all standing problems for people, worst first; empty when there are none."""
    return "; ".join(describe(problem) for problem in worst_first(standing(problems), config))


def _taint(problem: Problem, driver: str, config: ProblemsConfig) -> DeviceTaint:
    return DeviceTaint(
        key=f"{driver}/{problem.kind}",
        value=problem.code or None,
        effect=effect_of(problem, config),
        time_added=datetime.fromtimestamp(problem.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
