"""What a claim adds to the time from a Pod's creation until it is Running."""

import statistics
import time

from hack.bench import objects
from hack.bench.api import Watch
from hack.bench.contestants import Contestant
from hack.bench.instance import Place, started
from hack.bench.samples import Collected
from hack.bench.startup import remove_pod


def measure(place: Place, pods: Watch, contestant: Contestant, count: int, collected: Collected) -> None:
    """Create so many Pods with a claim and as many without, by turns; keep the difference of the medians."""
    with_claim, without = [], []
    with started(place, contestant) as instance:
        instance.wait_slices()
        _one_pod(place, pods, contestant, claimed=True)  # whatever is slow once
        for _ in range(count):
            without.append(_one_pod(place, pods, contestant, claimed=False))
            with_claim.append(_one_pod(place, pods, contestant, claimed=True))
    difference = statistics.median(with_claim) - statistics.median(without)
    collected.add("pod-extra", contestant.name, difference * 1000)


def _one_pod(place: Place, pods: Watch, contestant: Contestant, *, claimed: bool) -> float:
    """Return the seconds from the Pod's creation until it was seen Running."""
    name = f"pod-{contestant.name}"
    if claimed:
        place.api.create(objects.CLAIMS, objects.claim(name, contestant.name))
    begin = time.time()
    place.api.create(objects.PODS, objects.pod(name, name if claimed else None))
    took = pods.until(lambda items: objects.running(items.get(name))) - begin
    remove_pod(place, pods, name)
    if claimed:
        place.api.delete(f"{objects.CLAIMS}/{name}")
    return took
