"""The chart's controller: Pods leave lost devices, and all is lifted afterwards.

One story for the whole module, since each of its parts takes its time; the tests look at it in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pytest

from hack.tour.clients import Failed, Object
from tests.cluster.controlling import (
    MANAGED,
    Using,
    deployment,
    devices_of,
    of_deployment,
    of_pod,
    rules,
    status,
    stays,
    template,
    wait_evicted,
    wait_rules,
)
from tests.cluster.faulting import FAULTS, Faults, fault, faults, wait_event, wait_taints
from tests.cluster.objects import GPU, Space, claim, pod
from tests.cluster.real import RealCluster
from tests.cluster.watching import RULES as RULES_PATH
from tests.cluster.watching import Watching, watching

NODE = "node1"
CONTROLLER = "drasim-controller"
TAINT = f"{GPU}/lost"
TOLERATED = 20  # seconds
EVICTED = "DeletionByDeviceTaintManager"
LOST = {"lost": ("", "NoSchedule")}
TEMPLATES: Mapping[str, tuple[Object, ...]] = {
    "at-once": (),
    "patient": ({"key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED},),
    "for-ever": ({"key": TAINT, "operator": "Exists", "effect": "NoExecute"},),
}


@dataclass
class Story:
    """What runs, on which devices, and the faults of those."""

    space: Space
    faults: Faults
    seen: Watching
    pods: Watching
    used: dict[str, Using]

    @property
    def cluster(self) -> RealCluster:
        """The cluster."""
        return self.space.cluster

    def rule(self, name: str) -> Object | None:
        """Return the rule of the device that a Pod was given."""
        found = rules(self.cluster, GPU)
        return next((r for r in found if devices_of([r]) == [self.used[name].device]), None)

    def need_rule(self, name: str) -> Object:
        """Return that rule, once there is one."""
        return self.cluster.wait_for(f"a rule for the device of {name}", lambda: self.rule(name))

    def evicted_at(self, name: str) -> float:
        """Return when a Pod was told to end, once it was (Unix time): however late that is looked at."""
        wait_evicted(self.space, self.used[name])
        self.pods.catch_up()
        meta = next(
            change.object["metadata"]
            for change in self.pods.changes
            if change.object["metadata"]["uid"] == self.used[name].uid
            and "deletionTimestamp" in change.object["metadata"]
        )
        return _seconds(meta["deletionTimestamp"]) - float(meta["deletionGracePeriodSeconds"])


@pytest.fixture(scope="module")
def story(real_cluster: RealCluster) -> Iterator[Story]:
    """Deployments with template claims and a Pod with a claim by name, all of whose devices are lost at once."""
    with real_cluster.namespace("evictions") as name, faults(real_cluster, "evictions") as given:
        space = Space(real_cluster, name)
        for each, tolerations in TEMPLATES.items():
            space.create(template(each, GPU, *tolerations), deployment(each, each, NODE))
        space.create(claim("named", {GPU: 1}), pod("named", "named", 1))
        used = {each: of_deployment(space, each) for each in TEMPLATES} | {"named": of_pod(space, "named")}
        pods_path = f"/api/v1/namespaces/{name}/pods"
        with watching(real_cluster, RULES_PATH) as seen, watching(real_cluster, pods_path) as pods:
            given.create(*[fault(each, NODE, found.device, "lost") for each, found in used.items()])
            yield Story(space, given, seen, pods, used)


def test_the_pod_is_evicted_and_replaced_on_another_device(story: Story) -> None:
    """A rule with NoExecute for the lost device; the replacement of its Pod is given a device that is well."""
    old, cluster = story.used["at-once"], story.cluster
    rule = story.need_rule("at-once")
    taint = rule["spec"]["taint"]
    assert (taint["key"], taint["effect"]) == (TAINT, "NoExecute")
    assert rule["spec"]["deviceSelector"] == {"driver": GPU, "pool": f"{NODE}-gpu", "device": old.device}
    assert rule["metadata"]["labels"][MANAGED] == "drasim-controller"
    assert "lost" in rule["metadata"]["annotations"]["dra.example.com/reason"]
    (owner,) = rule["metadata"]["ownerReferences"]
    assert owner["kind"] == "ClusterRole"
    new = of_deployment(story.space, "at-once", besides=old.uid)
    assert new.device not in {found.device for found in story.used.values()}
    wait_event(story.space, old.pod["metadata"]["name"], "DeviceTaintManagerEviction")  # Kubernetes itself evicted it
    wait_taints(cluster, (GPU, NODE, old.device), LOST)


def test_a_named_claim_is_held(story: Story) -> None:
    """Its Pod would come back to the same device: no rule, the Pod stays, and claim and Pod say why."""
    held = story.used["named"]
    print(wait_event(story.space, "named", "NamedClaimOnSickDevice", held.device))
    where = ["--namespace", story.space.name, "--field-selector", "reason=NamedClaimOnSickDevice"]

    def told() -> bool:
        events = story.cluster.clients.items("events", *where)
        kinds = {event["involvedObject"]["kind"] for event in events}
        states = {entry["device"]: entry["state"] for entry in status(story.cluster, CONTROLLER)["devices"]}
        if (kinds, states.get(held.device)) != ({"Pod", "ResourceClaim"}, "named-claim"):
            raise Failed(f"events on {kinds}, states {states}")
        return True

    story.cluster.wait_for("events on Pod and claim, and the status", told)
    assert story.rule("named") is None
    assert stays(story.space, held)


def test_a_leader_that_is_killed_hands_over(story: Story) -> None:
    """Another Pod leads; while that happens no rule goes, none is made twice, and no tolerated time begins anew."""
    cluster = story.cluster
    for name in TEMPLATES:
        story.need_rule(name)
    story.seen.catch_up()
    before, noted = _times(cluster), len(story.seen.changes)
    leader = cluster.wait_for("a leader", lambda: _leader(cluster))
    where = ["--namespace", cluster.settings.namespace]
    cluster.clients.run("delete", "pod", leader, *where, "--force", "--grace-period=0")
    cluster.wait_for("another leader", lambda: (found := _leader(cluster)) != leader and found)
    cluster.wait_for("the new leader's status", lambda: leader not in status(cluster, CONTROLLER)["leader"])
    assert _times(cluster) == before
    assert len(before) == len(TEMPLATES)
    story.seen.catch_up()
    assert {change.what for change in story.seen.changes[noted:]} <= {"MODIFIED"}, "nothing but annotations and status"


def _times(cluster: RealCluster) -> dict[str, str]:
    """Return the times of the rules' taints, by UID and device."""
    return {
        f"{rule['metadata']['uid']} {devices_of([rule])}": rule["spec"]["taint"]["timeAdded"]
        for rule in rules(cluster, GPU)
    }


def _leader(cluster: RealCluster) -> str:
    """Return the name of the Pod that leads."""
    lease = cluster.clients.find("lease", CONTROLLER, "--namespace", cluster.settings.namespace)
    holder = str(lease["spec"].get("holderIdentity") or "") if lease else ""
    pods = cluster.clients.items("pods", "--namespace", cluster.settings.namespace)
    names = [entry["metadata"]["name"] for entry in pods]
    return next((name for name in names if holder.startswith(name)), "")


def test_a_tolerated_eviction_comes_later(story: Story) -> None:
    """A Pod that tolerates the rule's taint for some seconds goes after that; its replacement avoids the device."""
    old = story.used["patient"]
    added = story.need_rule("patient")["spec"]["taint"]["timeAdded"]
    stayed = story.evicted_at("patient") - _seconds(added)
    print(f"evicted {stayed:.1f} s after the taint of its rule, {TOLERATED} s tolerated")
    assert stayed >= TOLERATED - 1, "whole seconds"
    assert story.need_rule("patient")["spec"]["taint"]["timeAdded"] == added, "that time began anew for nobody"
    new = of_deployment(story.space, "patient", besides=old.uid)
    assert new.device not in {found.device for found in story.used.values()}
    assert stays(story.space, story.used["for-ever"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_uninstalling_lifts_the_rules_and_keeps_the_faults(story: Story) -> None:
    """Rules belong to an object of the chart and go with it; faults and their CRD stay; installed again all is back."""
    cluster, held = story.cluster, story.used["for-ever"]
    story.need_rule("for-ever")
    for name in ("at-once", "patient"):
        wait_evicted(story.space, story.used[name])
    story.space.wait_free()  # a device still held would get its rule again
    settings = cluster.settings
    try:
        settings.clients.chart("uninstall", settings.release, "--namespace", settings.namespace, "--wait")
        wait_rules(cluster, GPU)
        names = [entry["metadata"]["name"] for entry in cluster.clients.items(FAULTS)]
        assert story.faults.named("for-ever") in names
    finally:
        cluster.install({})
    wait_rules(cluster, GPU, held.device)
    wait_taints(cluster, (GPU, NODE, held.device), LOST)
    assert stays(story.space, held)


def test_repaired_devices_are_used_again(story: Story) -> None:
    """The faults are deleted: no taint is left, no rule, no Pod was evicted meanwhile, and the devices are reused."""
    cluster, space = story.cluster, story.space
    alive = {name: of_deployment(space, name) for name in TEMPLATES}
    story.faults.repair()
    for found in story.used.values():
        wait_taints(cluster, (GPU, NODE, found.device), {})
    wait_rules(cluster, GPU)
    assert all(stays(space, found) for found in alive.values())
    cluster.clients.run("scale", "deployment", "at-once", "--replicas=0", "--namespace", space.name)
    wait_evicted(space, alive["at-once"])
    wanted = claim("again", {GPU: 5})  # all that nobody holds
    space.create(wanted, pod("again", "again", 1))
    space.running("again")
    given = {entry["device"] for entry in space.claim("again")["status"]["allocation"]["devices"]["results"]}
    assert given & {story.used["at-once"].device, story.used["patient"].device}


def test_only_this_chart_kept_rules(story: Story) -> None:
    """Through the whole story each rule was about a device that was lost, and was made by the controller."""
    lost = {found.device for found in story.used.values()}
    story.seen.catch_up()
    for change in story.seen.changes:
        rule = change.object
        if rule["spec"]["deviceSelector"].get("driver") == GPU:
            assert rule["metadata"]["labels"][MANAGED] == "drasim-controller"
            assert rule["spec"]["deviceSelector"]["device"] in lost - {story.used["named"].device}
