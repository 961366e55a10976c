"""Figures of evictions: from a DeviceFault to the Pod that goes, the one that comes, and back; and the controller."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from hack.bench import objects
from hack.bench.api import Api, Object, Watch
from hack.bench.contestants import GPU, SMALL, Contestant
from hack.bench.figures import OURS
from hack.bench.instance import Place, end, started, wait_for
from hack.bench.plan import Plan
from hack.bench.process import rss
from hack.bench.samples import Collected
from hack.bench.setup import WRITERS
from hack.bench.stats import percentile

NAME = "bench-controller"
DEPLOYMENT = "sick"
CLEAR = 1
"""Seconds that a problem must be gone, for the node and again for the controller."""
HASTY = (f"--set=problems.clearAfter={CLEAR}s", f"--set=problems.clearAfterMost={CLEAR}s")
LOST = {"evict": [{"problem": "lost", "after": 0, "recoverAfter": CLEAR}], "budget": {"perCluster": 100}}
SETTLE = 0.3
"""Seconds after which a write does not wait for the one before."""
SCALE_SETTLE = 5.0


@contextmanager
def controlling(place: Place, contestant: Contestant, policy: Mapping[str, Any]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a controller that leads; at the end it is gone with what it kept."""
    path = place.logs / "controller.json"
    own = {"name": NAME, "namespace": objects.NAMESPACE, **policy}
    path.write_text(json.dumps({"controller": own, "probes": {"address": ""}, "log": {"format": "json"}}))
    status = f"/api/v1/namespaces/{objects.NAMESPACE}/configmaps"
    _forget(place.api, status)
    command = [contestant.command[0], "controller", "--config", str(path)]
    with (place.logs / "controller.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=dict(place.environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: _has(place.api, status, f"{NAME}-status"), "the controller's status", timeout=60)
        yield process
    finally:
        end(process)
        _forget(place.api, status)


def _has(api: Api, path: str, name: str) -> bool:
    return any(item["metadata"]["name"] == name for item in api.get(path)["items"])


def _forget(api: Api, status: str) -> None:
    api.delete(f"{status}/{NAME}-status")
    api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{objects.NAMESPACE}/leases/{NAME}")
    api.delete(objects.RULES)


def measure(place: Place, pods: Watch, contestant: Contestant, plan: Plan, collected: Collected) -> None:
    """Let devices fail by DeviceFaults: free ones, then the one that a Deployment's Pod has."""
    hasty = replace(contestant, flags={name: (*flags, *HASTY) for name, flags in contestant.flags.items()})
    api = place.api
    with started(place, hasty, SMALL) as instance:
        instance.wait_slices()
        _objects(place, max(1, plan.faults // 6), collected)
        with controlling(place, contestant, LOST), _deployed(api, pods, contestant.name):
            story = _Story(place, pods, collected)
            for number in range(plan.evictions):
                story.one(number)
            story.summed()


@contextmanager
def _deployed(api: Api, pods: Watch, device_class: str) -> Iterator[None]:
    """Keep a Deployment; at the end it is gone with its Pods, and so are all faults."""
    api.create(objects.TEMPLATES, objects.template(DEPLOYMENT, device_class))
    api.create(objects.DEPLOYMENTS, objects.deployment(DEPLOYMENT, DEPLOYMENT))
    try:
        yield
    finally:
        api.delete(f"{objects.DEPLOYMENTS}/{DEPLOYMENT}")
        api.delete(f"{objects.TEMPLATES}/{DEPLOYMENT}")
        api.delete(objects.FAULTS)
        pods.until(lambda items: not items)


def _objects(place: Place, count: int, collected: Collected) -> None:
    """Create one DeviceFault after the other, and look when the slice shows it."""
    seconds = []
    for number in range(count):
        name = f"gpu-{number % 8}"
        time.sleep(SETTLE)
        began = time.time()
        place.api.create(objects.FAULTS, objects.fault(name, name, "lost"))
        seconds.append(place.slices.until(partial(objects.has_taint, GPU, name)) - began)
        place.api.delete(f"{objects.FAULTS}/{name}")
        place.slices.until(lambda items: not objects.tainted(items, GPU))
    collected.add("fault-object-p50", OURS, percentile(seconds, 0.5) * 1000)


class _Story:
    """A device fails again and again under a Deployment."""

    def __init__(self, place: Place, pods: Watch, collected: Collected) -> None:
        self._place, self._pods, self._collected = place, pods, collected
        self._rules = Watch(place.api, objects.RULES)
        self._went: list[float] = []

    def one(self, number: int) -> None:
        """Let the device of the running Pod fail, wait for everything that follows, and repair it."""
        api, old = self._place.api, self._running()
        device = self._device(old)
        time.sleep(SETTLE)
        began = time.time()
        api.create(objects.FAULTS, objects.fault(f"held-{number}", device, "lost"))
        self._went.append(self._pods.until(lambda items: objects.leaves(items.get(old))) - began)
        came = self._pods.until(lambda items: any(map(objects.running, _others(items, old))))
        self._collected.add("fault-replaced", OURS, came - began)
        self._pods.until(lambda items: old not in items)
        began = time.time()
        api.delete(f"{objects.FAULTS}/held-{number}")
        well = self._place.slices.until(lambda items: not objects.tainted(items, GPU))
        lifted = self._rules.until(lambda items: not items)
        self._collected.add("fault-recovered", OURS, max(well, lifted) - began)

    def summed(self) -> None:
        """Add the figure that is a percentile of all."""
        self._collected.add("fault-deletion-p50", OURS, percentile(self._went, 0.5) * 1000)

    def _running(self) -> str:
        """Return the name of the Pod that runs."""
        self._pods.until(lambda items: any(map(objects.running, items.values())))
        alive = [n for n, pod in self._pods.objects.items() if objects.running(pod) and not objects.leaves(pod)]
        return alive[0]

    def _device(self, pod: str) -> str:
        (entry,) = self._pods.objects[pod]["status"]["resourceClaimStatuses"]
        claim = self._place.api.get(f"{objects.CLAIMS}/{entry['resourceClaimName']}")
        return str(claim["status"]["allocation"]["devices"]["results"][0]["device"])


def _others(items: Mapping[str, Object], old: str) -> list[Object]:
    return [pod for name, pod in items.items() if name != old and not objects.leaves(pod)]


def many_nodes(place: Place, contestant: Contestant, count: int, collected: Collected) -> None:
    """Give the API server the slices of many nodes, and look what the controller needs to know them all."""
    api, label = place.api, {"labelSelector": objects.MANY}
    with started(place, contestant, SMALL) as instance:
        instance.wait_slices()
        models = [item for item in place.slices.objects.values() if item["spec"]["driver"] in contestant.drivers]
    try:
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(lambda number: _one_node(api, models, number), range(count)))
        with controlling(place, contestant, {}) as process:
            time.sleep(SCALE_SETTLE)
            collected.add("controller-1000", OURS, rss(process.pid))
    finally:
        api.delete(objects.SLICES, **label)
        api.delete(objects.NODES, **label)
        place.slices.until(lambda items: not items)


def _one_node(api: Api, models: list[Object], number: int) -> None:
    name = f"many-{number:04}"
    api.request("POST", objects.NODES, {"metadata": {"name": name, "labels": objects.many_labels()}})
    for model in models:
        api.request("POST", objects.SLICES, objects.slice_of(model, name))
