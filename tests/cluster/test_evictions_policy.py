"""Controllers with policies of their own, for a driver of their own: budget, dry run, rules that people made."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.tour.clients import Object
from tests.cluster.controlling import (
    LOST_AT_ONCE,
    RULES,
    Using,
    controller,
    devices_of,
    of_pod,
    rules,
    stays,
    template,
    template_pod,
    wait_gone,
    wait_rules,
)
from tests.cluster.faulting import HASTY, FaultFile, wait_event, wait_taints
from tests.cluster.objects import Space
from tests.cluster.outside import Outside, outside
from tests.cluster.real import RealCluster
from tests.cluster.watching import RULES as RULES_PATH
from tests.cluster.watching import Watching, watching

NODE = "node2"
GPUS = [f"gpu-{number}" for number in range(4)]
AWAY = 40.0  # seconds that the driver, and
DOWN = 60.0  # seconds that the API server is not there
LOST = {"lost": ("", "NoSchedule")}


@dataclass(frozen=True)
class Ground:
    """A driver on node 2, the file of its faults, and a namespace."""

    driver: Outside
    faults: FaultFile
    space: Space
    folder: Path

    @property
    def cluster(self) -> RealCluster:
        """The cluster."""
        return self.driver.cluster

    @property
    def gpu(self) -> str:
        """The name of the GPU driver."""
        return self.driver.gpu.driver

    def start(self, *names: str) -> dict[str, Using]:
        """Start Pods, each with a claim of its own, that nobody replaces."""
        self.space.create(*[template_pod(name, "gpu", NODE) for name in names])
        return {name: of_pod(self.space, name) for name in names}

    def lose(self, *used: Using) -> None:
        """Let their devices fail, all at once, and wait until that is published."""
        self.faults.put_all({found.device: (found.device, "lost", "") for found in used})
        for found in used:
            wait_taints(self.cluster, (self.gpu, NODE, found.device), LOST)

    def rules(self) -> list[Object]:
        """Return the rules for its GPUs."""
        return rules(self.cluster, self.gpu)


@pytest.fixture(scope="module")
def module_ground(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """One driver for all tests of this module."""
    folder = tmp_path_factory.mktemp("policy")
    faults = FaultFile(folder / "faults.yaml", NODE)
    with real_cluster.namespace("policy") as name:
        space, settings = Space(real_cluster, name), {"simulation.faults": str(faults.path), **HASTY}
        with outside(real_cluster, "policy", folder, settings, space) as driver:
            space.create(template("gpu", driver.gpu.driver))
            yield Ground(driver, faults, space, folder)


@pytest.fixture
def ground(module_ground: Ground) -> Iterator[Ground]:
    """That driver, with nothing wrong and nothing held, before and after."""
    yield module_ground
    module_ground.faults.repair()
    module_ground.space.delete_pods()
    for name in GPUS:
        wait_taints(module_ground.cluster, (module_ground.gpu, NODE, name), {})


def policy(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - any key of the section
    """Return a policy that evicts from lost devices at once, without a limit."""
    return {"evict": [LOST_AT_ONCE], "budget": {"perCluster": 100}, **more}


def listed(status: Object) -> dict[str, str]:
    """Return the state of each device that a controller speaks of."""
    return {entry["device"]: entry["state"] for entry in status.get("devices") or ()}


def test_the_budget_holds_back_and_goes_on(ground: Ground) -> None:
    """With one device a node, the second lost device waits; when the first is well again its turn comes."""
    used = ground.start("one", "two")
    by_device = {found.device: name for name, found in used.items()}
    only_one = policy(budget={"perNode": 1, "perCluster": "100%"})
    with controller(ground.driver, "budget", only_one, ground.folder) as running:
        with watching(ground.cluster, RULES_PATH) as seen:
            ground.lose(*used.values())
            (rule,) = ground.cluster.wait_for("a rule", ground.rules)
            first = rule["spec"]["deviceSelector"]["device"]
            (second,) = by_device.keys() - {first}
            wait_gone(ground.space, used[by_device[first]])
            ground.cluster.wait_for("it says so", lambda: listed(running.status()).get(second) == "budget")
            wait_event(ground.space, used[by_device[second]].claim, "DeviceEvictionHeld", "budget")
            assert stays(ground.space, used[by_device[second]])
            ground.faults.repair(first)
            wait_gone(ground.space, used[by_device[second]])
        wait_rules(ground.cluster, ground.gpu, second)
        check_at_most_one(seen, ground.gpu)


def check_at_most_one(seen: Watching, driver: str) -> None:
    """Never were there two rules for devices of a driver."""
    now: set[str] = set()
    for change in seen.changes:
        selector = change.object["spec"]["deviceSelector"]
        if selector["driver"] == driver:
            now = now - {selector["device"]} if change.what == "DELETED" else now | {selector["device"]}
            assert len(now) <= 1


def test_a_dry_run_names_the_pods(ground: Ground) -> None:
    """No rule and no eviction, but status and Event name the Pods that would go, and what is said is kept current."""
    used = ground.start("dry", "other")
    with controller(ground.driver, "dry", policy(dryRun=True), ground.folder) as running:
        ground.lose(*used.values())

        def named() -> dict[str, list[str]]:
            return {entry["device"]: list(entry["pods"]) for entry in running.status().get("devices") or ()}

        wanted = {found.device: [f"{ground.space.name}/{name}"] for name, found in used.items()}
        ground.cluster.wait_for("the Pods are named", lambda: named() == wanted)
        assert set(listed(running.status()).values()) == {"would-evict"}
        wait_event(ground.space, "dry", "DeviceWouldEvict", used["dry"].device)
        ground.space.delete_pods("dry")
        rest = {used["other"].device: wanted[used["other"].device]}
        ground.cluster.wait_for("only the other Pod is named", lambda: named() == rest)
        assert ground.rules() == []
        assert stays(ground.space, used["other"])


def mine(name: str, driver: str, device: str, effect: str) -> Object:
    """Return a rule as a person writes it."""
    selector = {"driver": driver, "pool": f"{NODE}-gpu", "device": device}
    taint = {"key": "example.com/maintenance", "value": "planned", "effect": effect}
    spec = {"deviceSelector": selector, "taint": taint}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_rules_that_people_made_are_left_alone(ground: Ground) -> None:
    """One for the same device stays; one that has the very name that the controller would use is not taken over."""
    cluster = ground.cluster
    with controller(ground.driver, "polite", policy(), ground.folder) as running:
        first = ground.start("first")["first"]
        cluster.clients.apply(json.dumps(mine("by-hand", ground.gpu, first.device, "None")), "default")
        try:
            ground.lose(first)
            own = cluster.wait_for("a rule", lambda: [r for r in ground.rules() if r["metadata"]["name"] != "by-hand"])
            name = own[0]["metadata"]["name"]
            wait_gone(ground.space, first)
            ground.faults.repair()
            wait_rules(cluster, ground.gpu, first.device)  # by-hand
            cluster.clients.apply(json.dumps(mine(name, ground.gpu, "gpu-99", "None")), "default")
            before = {rule["metadata"]["name"]: rule["metadata"]["resourceVersion"] for rule in ground.rules()}
            assert before.keys() == {name, "by-hand"}
            ground.space.delete_pods()
            again = ground.start("again")["again"]
            assert again.device == first.device, "the name is that of this device"
            ground.lose(again)
            cluster.wait_for("it is told", lambda: name in json.dumps(running.status()))
            now = {rule["metadata"]["name"]: rule["metadata"]["resourceVersion"] for rule in ground.rules()}
            assert {key: now.get(key) for key in before} == before
        finally:
            cluster.clients.run("delete", RULES, "by-hand", "--ignore-not-found")


# ------------------------------------------------------------------------------------- what is missing is not repaired


@dataclass(frozen=True)
class Standing:
    """A rule, and the Pod that its taint would evict in an hour."""

    rule: Object
    used: Using

    def check(self, ground: Ground) -> None:
        """It is the same rule with the same time, and the Pod is there."""
        (now,) = ground.rules()
        assert now["metadata"]["uid"] == self.rule["metadata"]["uid"]
        assert now["spec"] == self.rule["spec"], "timeAdded included"
        assert stays(ground.space, self.used)


@pytest.fixture
def standing(ground: Ground) -> Iterator[Standing]:
    """A rule for a lost device whose Pod tolerates it for an hour."""
    toleration = {"key": f"{ground.gpu}/lost", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    with controller(ground.driver, "steady", policy(), ground.folder):
        ground.space.create(template("hour", ground.gpu, toleration), template_pod("hour", "hour", NODE))
        used = of_pod(ground.space, "hour")
        ground.lose(used)
        (rule,) = wait_rules(ground.cluster, ground.gpu, used.device)
        yield Standing(rule, used)


def lives_through(ground: Ground, standing: Standing, what: Callable[[], None]) -> None:
    """Do something to the cluster; the rule is not touched meanwhile."""
    with watching(ground.cluster, RULES_PATH) as seen:
        what()
        wait_taints(ground.cluster, (ground.gpu, NODE, standing.used.device), LOST)
        standing.check(ground)
    touched = [c.what for c in seen.changes if c.object["spec"]["deviceSelector"].get("driver") == ground.gpu]
    assert set(touched) <= {"MODIFIED"}, "nothing but its annotations and status"


def test_a_missing_slice_is_not_recovery(ground: Ground, standing: Standing) -> None:
    """The kubelet is restarted, then the driver is away until its slices are gone: the rule and its time stay."""

    def restart() -> None:
        ground.cluster.launcher("restart", "kubelet", "--node", "2")
        ground.cluster.wait_for("the slices are back", ground.driver.published)

    def away() -> None:
        ground.driver.end("KILL")
        ground.cluster.wait_for("the kubelet deletes the slices", lambda: not ground.cluster.slices(ground.gpu), AWAY)
        ground.driver.start()

    lives_through(ground, standing, restart)
    lives_through(ground, standing, away)


def test_an_api_server_that_is_away_changes_nothing(ground: Ground, standing: Standing) -> None:
    """A minute without it: nothing is lifted and nobody evicted; what failed meanwhile is acted on afterwards."""
    other = ground.start("other")["other"]
    cluster = ground.cluster
    cluster.launcher("stop", "kube-apiserver")
    try:
        ground.faults.put("meanwhile", other.device, "lost")
        time.sleep(DOWN)
    finally:
        cluster.launcher("start", "kube-apiserver")
    wait_taints(cluster, (ground.gpu, NODE, other.device), LOST, within=90)
    found = wait_rules(cluster, ground.gpu, standing.used.device, other.device, within=90)
    kept = next(rule for rule in found if devices_of([rule]) == [standing.used.device])
    assert kept["metadata"]["uid"] == standing.rule["metadata"]["uid"]
    assert kept["spec"] == standing.rule["spec"], "timeAdded included"
    wait_gone(ground.space, other, within=90)
    assert stays(ground.space, standing.used)
