"""Controllers with policies of their own, for a driver of their own: budget, dry run, rules that people made."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    wait_evicted,
    wait_rules,
)
from tests.cluster.faulting import wait_event, wait_taints
from tests.cluster.ground import LOST, Ground
from tests.cluster.objects import GPU, NIC
from tests.cluster.watching import RULES as RULES_PATH
from tests.cluster.watching import Watching, restart_kubelet, watching

DOWN = 60.0  # seconds that the API server is not there: longer than a leader, or any lease, goes on without it


def start(ground: Ground, *names: str) -> dict[str, Using]:
    """Start Pods, each with a claim of its own, that nobody replaces."""
    ground.space.create(template("gpu", ground.gpu), *[template_pod(name, "gpu", ground.node) for name in names])
    return {name: of_pod(ground.space, name) for name in names}


def policy(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - any key of the section
    """Return a policy that evicts from lost devices at once, without a limit."""
    return {"evict": [LOST_AT_ONCE], "budget": {"perCluster": 100}, **more}


def listed(status: Object) -> dict[str, str]:
    """Return the state of each device that a controller speaks of."""
    return {entry["device"]: entry["state"] for entry in status["devices"]}


def test_the_budget_holds_back_and_goes_on(ground: Ground) -> None:
    """With one device a node, the second lost device waits; when the first is well again its turn comes."""
    used = start(ground, "one", "two")
    by_device = {found.device: name for name, found in used.items()}
    only_one = policy(budget={"perNode": 1, "perCluster": "100%"})
    with controller(ground.driver, "budget", only_one, ground.folder) as running:
        with watching(ground.cluster, RULES_PATH) as seen:
            ground.lose(*by_device)
            (rule,) = ground.cluster.wait_for("a rule", lambda: rules(ground.cluster, ground.gpu))
            first = rule["spec"]["deviceSelector"]["device"]
            (second,) = by_device.keys() - {first}
            wait_evicted(ground.space, used[by_device[first]])
            ground.cluster.wait_for("it says so", lambda: listed(running.status()).get(second) == "budget")
            wait_event(ground.space, used[by_device[second]].claim, "DeviceEvictionHeld", "budget")
            assert stays(ground.space, used[by_device[second]])
            ground.faults.repair(first)
            wait_evicted(ground.space, used[by_device[second]])
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
    used = start(ground, "dry", "other")
    with controller(ground.driver, "dry", policy(dryRun=True), ground.folder) as running:
        ground.lose(*[found.device for found in used.values()])

        def named() -> dict[str, tuple[str, list[str]]]:
            found = running.status()["devices"]
            return {entry["device"]: (entry["state"], entry.get("pods", [])) for entry in found}

        wanted = {found.device: ("would-evict", [f"{ground.space.name}/{name}"]) for name, found in used.items()}
        ground.cluster.wait_for("the Pods are named", lambda: named() == wanted)
        wait_event(ground.space, "dry", "DeviceWouldEvict", used["dry"].device)
        ground.space.delete_pods("dry")
        rest = {used["other"].device: wanted[used["other"].device]}
        ground.cluster.wait_for("only the other Pod is named", lambda: named() == rest)
        assert rules(ground.cluster, ground.gpu) == []
        assert stays(ground.space, used["other"])


def test_a_recovering_device_evicts_nobody(ground: Ground) -> None:
    """Who tolerates a second is not given the only device that fits and evicted again, until the rule is lifted."""
    cluster, space, device = ground.cluster, ground.space, "gpu-1"
    second = {"key": f"{ground.gpu}/lost", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    space.create(template("only-this", ground.gpu, second, index=1))
    patient = policy(evict=[{**LOST_AT_ONCE, "recoverAfter": 3600}])
    with controller(ground.driver, "patient", patient, ground.folder):
        space.create(template_pod("first", "only-this", ground.node))
        first = of_pod(space, "first")
        ground.lose(device)
        wait_evicted(space, first)
        ground.faults.repair()
        wait_taints(cluster, ground.place(device), {})
        space.wait_free()  # from here on nothing but the rule keeps the device from the next one
        cluster.wait_for("a rule that evicts nobody", lambda: effects(ground) == ["NoSchedule"])
        space.create(template_pod("again", "only-this", ground.node))
        cluster.wait_for("no device for it", lambda: is_unschedulable(space.pod("again")))
        ground.lose(device)
        cluster.wait_for("a rule that evicts", lambda: effects(ground) == ["NoExecute"])
        assert not space.pod("again")["spec"].get("nodeName")


def effects(ground: Ground) -> list[str]:
    """Return what the rules for the driver's devices do."""
    return [rule["spec"]["taint"]["effect"] for rule in rules(ground.cluster, ground.gpu)]


def is_unschedulable(pod: Object) -> bool:
    """Tell whether the scheduler has found no Node for a Pod."""
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or ())


def mine(ground: Ground, name: str, device: str) -> Object:
    """Return a rule as a person writes it."""
    selector = {"driver": ground.gpu, "pool": f"{ground.node}-gpu", "device": device}
    taint = {"key": "example.com/maintenance", "value": "planned", "effect": "None"}
    spec = {"deviceSelector": selector, "taint": taint}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_rules_that_people_made_are_left_alone(ground: Ground) -> None:
    """One for the same device stays; one that has the very name that the controller would use is not taken over."""
    cluster, device = ground.cluster, "gpu-1"
    ground.space.create(template("this-one", ground.gpu, index=1))
    with controller(ground.driver, "polite", policy(), ground.folder) as running:
        cluster.clients.apply(json.dumps(mine(ground, "by-hand", device)), "default")
        try:
            first = start_on(ground, "first", device)
            ground.lose(device)
            wait_rules(cluster, ground.gpu, device, device)
            (name,) = as_written(ground).keys() - {"by-hand"}
            wait_evicted(ground.space, first)
            ground.faults.repair()
            wait_rules(cluster, ground.gpu, device)  # by-hand
            cluster.clients.apply(json.dumps(mine(ground, name, "gpu-99")), "default")
            before = as_written(ground)
            assert before.keys() == {name, "by-hand"}
            ground.space.delete_pods()
            start_on(ground, "again", device)
            ground.lose(device)
            cluster.wait_for("it is told", lambda: f"rule {name} exists" in json.dumps(running.status()))
            assert as_written(ground) == before
        finally:
            cluster.clients.run("delete", RULES, "by-hand", "--ignore-not-found")


def start_on(ground: Ground, name: str, device: str) -> Using:
    """Start a Pod with a certain device."""
    ground.space.create(template_pod(name, "this-one", ground.node))
    used = of_pod(ground.space, name)
    assert used.device == device
    return used


def as_written(ground: Ground) -> dict[str, Object]:
    """Return the rules by name without what Kubernetes' own controller writes into each: a status, so a version."""
    found = {rule["metadata"]["name"]: rule for rule in rules(ground.cluster, ground.gpu)}
    for rule in found.values():
        del rule["metadata"]["resourceVersion"]
        rule.pop("status", None)
    return found


# ------------------------------------------------------------------------------------- what is missing is not repaired


@dataclass(frozen=True)
class Standing:
    """A rule, and the Pod that its taint would evict in an hour."""

    rule: Object
    used: Using

    def check(self, ground: Ground) -> None:
        """It is the same rule with the same time, and the Pod is there."""
        (now,) = rules(ground.cluster, ground.gpu)
        assert now["metadata"]["uid"] == self.rule["metadata"]["uid"]
        assert now["spec"] == self.rule["spec"], "timeAdded included"
        assert stays(ground.space, self.used)


@pytest.fixture
def standing(ground: Ground) -> Iterator[Standing]:
    """A rule for a lost device whose Pod tolerates it for an hour."""
    toleration = {"key": f"{ground.gpu}/lost", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    with controller(ground.driver, "steady", policy(), ground.folder):
        ground.space.create(template("hour", ground.gpu, toleration), template_pod("hour", "hour", ground.node))
        used = of_pod(ground.space, "hour")
        ground.lose(used.device)
        (rule,) = wait_rules(ground.cluster, ground.gpu, used.device)
        yield Standing(rule, used)


def lives_through(ground: Ground, standing: Standing, what: Callable[[], None]) -> None:
    """Do something to the cluster; the rule is not touched meanwhile."""
    with watching(ground.cluster, RULES_PATH) as seen:
        what()
        wait_taints(ground.cluster, ground.place(standing.used.device), LOST)
        standing.check(ground)
    touched = [c.what for c in seen.changes if c.object["spec"]["deviceSelector"].get("driver") == ground.gpu]
    assert set(touched) <= {"MODIFIED"}, "nothing but its annotations and status"


def test_a_missing_slice_is_not_recovery(ground: Ground, standing: Standing) -> None:
    """The kubelet is restarted, then the driver is away until its slices are gone: the rule and its time stay."""

    def away() -> None:
        ground.driver.end("KILL")
        ground.cluster.wait_for("the kubelet deletes the slices", lambda: not ground.cluster.slices(ground.gpu))
        ground.driver.start()

    lives_through(ground, standing, lambda: restart_kubelet(ground.cluster, 2, ground.gpu, ground.driver.nic.driver))
    lives_through(ground, standing, away)


def test_an_api_server_that_is_away_changes_nothing(ground: Ground, standing: Standing) -> None:
    """A while without it: nothing is lifted and nobody evicted; what failed meanwhile is acted on afterwards."""
    other = start(ground, "other")["other"]
    cluster = ground.cluster
    cluster.launcher("stop", "kube-apiserver", "--kill")
    try:
        ground.faults.put("meanwhile", other.device, "lost")
        time.sleep(DOWN)
    finally:
        cluster.launcher("start", "kube-apiserver")
        for name in ("kube-controller-manager", "kube-scheduler"):  # they would look again up to a minute later
            cluster.launcher("restart", name)
    wait_taints(cluster, ground.place(other.device), LOST)
    found = wait_rules(cluster, ground.gpu, standing.used.device, other.device)
    kept = next(rule for rule in found if devices_of([rule]) == [standing.used.device])
    assert kept["metadata"]["uid"] == standing.rule["metadata"]["uid"]
    assert kept["spec"] == standing.rule["spec"], "timeAdded included"
    wait_evicted(ground.space, other)
    assert stays(ground.space, standing.used)
    for node in (1, 2):  # the kubelets would, too
        restart_kubelet(cluster, node, GPU, NIC)
    cluster.well()
