"""How much is measured: everything that a run's length and its noise depend on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hack.bench.figures import CONTESTANTS, DEFAULT, GROUPS, OURS

START_SECONDS = 5.5
POD_SECONDS = 2.2
FAULTY_SECONDS = 4
SETUP_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """Amounts of one run. Cycles are: prepare all claims, unprepare all claims."""

    rounds: int = 3
    groups: tuple[str, ...] = GROUPS
    starts: int = 6
    pods: int = 6
    many: int = 128
    few: int = 8
    held: int = 512
    cycles: int = 2
    callers: int = 16
    busy_cycles: int = 4
    memory_calls: int = 2000
    idle_seconds: float = 20
    limited: int = 40
    """Claims that the Go driver with default limits is measured with: it needs 0.2 s for each."""

    faults: int = 45
    evictions: int = 5
    flap_seconds: float = 12
    nodes: int = 1000
    """Nodes whose slices the controller knows; in the last round only."""

    machine: int = 640
    """GPUs of the machine on which every claim has a device of its own."""

    @property
    def claims(self) -> int:
        """Return the number of plain claims that each contestant needs, each with a device of its own."""
        return self.many + self.held

    def seconds(self) -> int:
        """Return roughly how long it takes, without building and starting the cluster."""
        costs = {
            "startup": self.starts * START_SECONDS,
            "pods": self.pods * 2 * POD_SECONDS + START_SECONDS,
            "memory": self.idle_seconds + self.memory_calls * 0.006 + 2 * START_SECONDS,
            "calls": self._call_seconds(),
        }
        each = sum(costs[group] for group in self.groups if group in costs)
        slow = self.limited * 0.2 * 4 if "calls" in self.groups else 0
        faults = self._fault_seconds() if "faults" in self.groups else 0
        return round(SETUP_SECONDS + self.rounds * (each * len(CONTESTANTS) + slow + faults) + self._node_seconds())

    def _fault_seconds(self) -> float:
        return self.faults * 1.3 + self.evictions * 6 + self.flap_seconds + 4 * FAULTY_SECONDS

    def _node_seconds(self) -> float:
        return self.nodes * 0.03 + FAULTY_SECONDS if "faults" in self.groups else 0

    def _call_seconds(self) -> float:
        calls = 2 * self.many * (self.cycles * 4 + self.busy_cycles * 2) + 4 * self.held
        return calls * 0.005 + START_SECONDS


def quick(groups: Sequence[str] = GROUPS) -> Plan:
    """Return a plan that only shows that everything works."""
    amounts = {"starts": 1, "pods": 1, "cycles": 1, "busy_cycles": 1}
    sizes = {"many": 32, "held": 32, "machine": 64, "memory_calls": 64, "idle_seconds": 2, "limited": 12}
    faults = {"faults": 8, "evictions": 1, "flap_seconds": 2, "nodes": 20}
    return Plan(rounds=1, groups=tuple(groups), **amounts, **sizes, **faults)


def changed(plan: Plan, **amounts: Any) -> Plan:  # noqa: ANN401 - any field of a plan
    """Return the plan with other amounts."""
    return replace(plan, **amounts)


def order(number: int) -> tuple[str, ...]:
    """Return who is measured when in this round: each round begins with another one."""
    first = number % len(CONTESTANTS)
    return CONTESTANTS[first:] + CONTESTANTS[:first]


def amounts(plan: Plan, number: int, contestant: str) -> Plan:
    """Return the amounts of one contestant in a round.

    Go drivers take minutes while many claims are held, so once; so are the slices of many nodes, at the end.
    """
    once = plan if number == plan.rounds - 1 else replace(plan, nodes=0)
    return once if contestant == OURS or number == 0 else replace(once, held=0)


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values."""
    return asdict(plan)


def from_json(values: dict[str, Any]) -> Plan:
    """Return the plan that `as_json` wrote."""
    return Plan(**{**values, "groups": tuple(values["groups"])})


def limited(contestant: str) -> bool:
    """Tell whether a contestant is measured with fewer claims, since its own limits make it slow."""
    return contestant == DEFAULT
