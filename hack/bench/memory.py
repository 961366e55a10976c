"""What a driver with 8 devices of a kind takes when nothing happens, and after some work."""

import time

from hack.bench.calling import call
from hack.bench.contestants import Contestant
from hack.bench.instance import Place, started
from hack.bench.load import Order
from hack.bench.plan import Plan, limited
from hack.bench.process import cpu, rss
from hack.bench.samples import Collected
from hack.bench.setup import Claims

SETTLE = 5.0


def measure(place: Place, contestant: Contestant, claims: Claims, plan: Plan, collected: Collected) -> None:
    """Measure a fresh process: memory, CPU of doing nothing, memory after many calls."""
    with started(place, contestant) as instance:
        instance.wait_slices()
        time.sleep(min(SETTLE, plan.idle_seconds))
        collected.add("rss-idle", contestant.name, rss(instance.pid))
        before = cpu(instance.pid)
        time.sleep(plan.idle_seconds)
        collected.add("cpu-idle", contestant.name, (cpu(instance.pid) - before) / plan.idle_seconds * 100)
        if limited(contestant.name):
            return  # the same program as with raised limits, and it would take minutes
        few = claims.plain[: plan.few]
        cycles = max(1, plan.memory_calls // (2 * len(few)))
        result = call(Order(str(instance.socket), few, cycles=cycles))
        collected.failed(contestant.name, result)
        collected.add("rss-after", contestant.name, rss(instance.pid))
