"""Figures of calls: how long Prepare takes, how many fit into a second, and what they cost."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from hack.bench.contestants import BIG, SMALL, Contestant
from hack.bench.figures import OURS
from hack.bench.instance import Instance, Place, started
from hack.bench.load import PREPARE, UNPREPARE, Order, Ref, Result, decode
from hack.bench.plan import Plan, limited
from hack.bench.process import cpu
from hack.bench.samples import Collected
from hack.bench.setup import Claims
from hack.bench.stats import percentile


def call(order: Order) -> Result:
    """Let the load client carry out an order in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "hack.bench.load"],
        input=json.dumps(asdict(order)),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return decode(done.stdout)


class Calls:
    """Calls to one running driver; what they took is collected."""

    def __init__(self, instance: Instance, claims: Claims, plan: Plan, collected: Collected) -> None:
        self._instance, self._claims, self._plan, self._collected = instance, claims, plan, collected
        self._name, self._slow = instance.contestant.name, limited(instance.contestant.name)
        self._socket = str(instance.socket)
        self._cycles = 1 if self._slow else plan.cycles

    def few(self) -> None:
        """Measure with as many claims as a node has devices."""
        plan, cycles = self._plan, self._cycles_of_few()
        claims, parameters = self._claims.plain[: plan.few], self._claims.parameters[: plan.few]
        self._times("prepare-8", self._order(claims, cycles=cycles).prepare)
        self._times("prepare-params", self._order(parameters, cycles=cycles).prepare)
        busy = self._order(claims, plan.callers, max(1, cycles // 2))
        self._add("rate-8", busy.calls / busy.wall)

    def many(self) -> None:
        """Measure with many claims, then with many more held meanwhile."""
        plan = self._plan
        size = plan.limited if self._slow else plan.many
        claims, held = self._claims.plain[:size], self._claims.plain[plan.many : plan.claims]
        result = self._order(claims, cycles=self._cycles)
        self._times("prepare-128", result.prepare)
        self._add("unprepare-128-p50", percentile(result.unprepare, 0.5) * 1000)
        self._busy(claims)
        parameters = self._order(self._claims.parameters[:size], cycles=1)
        self._add("params-128-p50", percentile(parameters.prepare, 0.5) * 1000)
        if held and not self._slow:
            self._with_others(claims, held)

    def _busy(self, claims: Sequence[Ref]) -> None:
        before = cpu(self._instance.pid)
        result = self._order(claims, self._plan.callers, 1 if self._slow else self._plan.busy_cycles)
        self._add("cpu-call", (cpu(self._instance.pid) - before) / result.calls * 1000)
        self._add("callers-128-p50", percentile(result.prepare, 0.5) * 1000)
        self._add("rate-128", result.calls / result.wall)

    def _with_others(self, claims: Sequence[Ref], held: Sequence[Ref]) -> None:
        ours = self._name == OURS  # the Go driver takes minutes here, and is not what we are held to
        cycles, busy_cycles = (self._plan.cycles, self._plan.busy_cycles) if ours else (1, 1)
        self._order(held, self._plan.callers, phases=(PREPARE,))
        result = self._order(claims, cycles=cycles)
        self._add("held-p50", percentile(result.prepare, 0.5) * 1000)
        busy = self._order(claims, self._plan.callers, busy_cycles)
        self._add("held-rate", busy.calls / busy.wall)
        self._order(held, self._plan.callers, phases=(UNPREPARE,))

    def _cycles_of_few(self) -> int:
        """Return how often few claims are called for, to make as many calls as with many."""
        size = self._plan.limited if self._slow else self._plan.many
        return max(1, self._cycles * size // self._plan.few)

    def _order(
        self, claims: Sequence[Ref], callers: int = 1, cycles: int = 1, phases: Sequence[str] = (PREPARE, UNPREPARE)
    ) -> Result:
        result = call(Order(self._socket, claims, callers, cycles, phases))
        self._collected.failed(self._name, result)
        return result

    def _times(self, figure: str, seconds: Sequence[float]) -> None:
        self._add(f"{figure}-p50", percentile(seconds, 0.5) * 1000)
        self._add(f"{figure}-p99", percentile(seconds, 0.99) * 1000)

    def _add(self, figure: str, value: float) -> None:
        self._collected.add(figure, self._name, value)


def measure(place: Place, contestant: Contestant, claims: Claims, plan: Plan, collected: Collected) -> None:
    """Start the driver on a machine of the usual size, then on one with a GPU for each claim, and call it."""
    with started(place, contestant, SMALL) as instance:
        instance.wait_slices()
        Calls(instance, claims, plan, collected).few()
    with started(place, contestant, BIG) as instance:
        # Ours lends no device twice, so it needs one for each claim. Others do not look.
        instance.wait_slices(gpus=plan.machine if contestant.name == OURS else None)
        Calls(instance, claims, plan, collected).many()
