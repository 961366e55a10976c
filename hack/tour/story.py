"""The second part of the tour: a device fails, its Pods leave, it is repaired, and when each of that happens.

Times count from the moment in which a watch showed the fault; what follows is seen by watches as well.
"""

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

from hack.tour import chart, pods
from hack.tour.clients import Failed, Object, wait_for
from hack.tour.devices import Key, attributes
from hack.tour.health import (
    OURS,
    device_of,
    fault,
    free,
    health,
    hits,
    runs,
    seconds,
    taints,
    told,
    told_to_end,
    unschedulable,
)
from hack.tour.runner import Skipped, Step
from hack.tour.steps import FAULTS, Tour, expect
from hack.tour.watching import Change, Watch, watching

EVICTED, TOLERANT = "evicted-deployment", "toleration-seconds"
WAITS, BESIDE = "waits", "beside"
TOLERATED = 20.0  # seconds, as examples/toleration-seconds.yaml says
REPAIRED_WITHIN = 180.0  # a device that failed several times in a row must stay well for longer
SAID = "DeviceUnhealthy"  # the reason of the Events that the driver writes
FREE = 4  # GPUs that the steps need besides those of the two Deployments
NO_UUID = "GPU-00000000-0000-0000-0000-000000000000"


@dataclass
class Story:
    """What happens to Pods when devices fail. Each step goes on from where the one before ended.

    Attributes:
        tour: the first part: where it runs, how it prints, the claims it has seen.
        sick: the devices that were made to fail.
        pods: the newest Pod of each Deployment, and its device.
    """

    tour: Tour
    sick: dict[Key, str] = field(default_factory=dict)
    pods: dict[str, tuple[Object, Key]] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        """Return the steps in order."""
        told_by = (
            ("Two Deployments have a GPU each, through claim templates", self.started),
            ("A free GPU fails: no new Pod gets it, and its neighbours are still handed out", self.isolated),
            ("A GPU is lost: its Pod is evicted, and the Deployment's next Pod gets another one", self.evicted),
            (
                f"A Pod that tolerates that for {TOLERATED:.0f} seconds goes {TOLERATED:.0f} seconds later",
                self.tolerated,
            ),
            ("The GPUs are repaired: taints and rules go, and the Pod that waited runs", self.repaired),
            ("Everything is deleted, and nothing is left behind", self.tour.unprepared),
        )
        return [Step(title, self._where_possible(step)) for title, step in told_by]

    def started(self) -> None:
        """Start the two Deployments."""
        for name in (EVICTED, TOLERANT):
            self.tour.apply(name)
        for name in (EVICTED, TOLERANT):
            self._learn(name)

    def isolated(self) -> None:
        """Let a free GPU fail; of two Pods that want a certain one, only that with the sound one starts."""
        (node, sick), (_, sound) = self._two_free()
        known = attributes(chart.slices(self.tour.settings))
        with self._watches() as seen:
            since = self._fail(seen, sick, node, "nvlink")
            self._tainted(seen["slices"], since, sick, "nvlink")
            for name, key in ((WAITS, sick), (BESIDE, sound)):
                self.tour.apply("one-device", {"one-device": name, NO_UUID: str(known[key]["uuid"])})
            beside = seen["pods"].first(f"Pod {BESIDE} is Running", lambda c: c.name == BESIDE and runs(c.object))
            waits = seen["pods"].first(
                f"the scheduler leaves Pod {WAITS} alone", lambda c: c.name == WAITS and bool(unschedulable(c.object))
            )
            self.tour.say(f"{BESIDE} runs on {beside.object['spec']['nodeName']} with {sound[2]}")
            self.tour.say(f"{WAITS} wants {sick[2]} and waits: {unschedulable(waits.object)}")

    def evicted(self) -> None:
        """Let the GPU of a running Pod be lost."""
        before, key = self.pods[EVICTED]
        with self._watches() as seen:
            since = self._fail(seen, key, before["spec"]["nodeName"], "lost")
            self._tainted(seen["slices"], since, key, "lost")
            self._ruled(seen["rules"], since, key)
            self._gone(seen["pods"], since, before)
            self._replaced(seen["pods"], since, EVICTED)

    def tolerated(self) -> None:
        """Let the GPU of a Pod be lost whose request tolerates that for a while."""
        before, key = self.pods[TOLERANT]
        name = before["metadata"]["name"]
        with self._watches() as seen:
            since = self._fail(seen, key, before["spec"]["nodeName"], "lost")
            self._tainted(seen["slices"], since, key, "lost")
            ruled = self._ruled(seen["rules"], since, key)
            if told(before):
                self._told(seen["pods"], since, name)
            self._event(name)
            self._status()
            gone = self._gone(seen["pods"], since, before)
            # By the cluster's own times, which no client that looks late changes; its machines' clocks may differ.
            stayed = told_to_end(gone.object) - seconds(ruled.object["spec"]["taint"]["timeAdded"])
            expect(stayed >= TOLERATED - 2, f"{name} to stay for {TOLERATED:.0f} s", f"{stayed:.0f} s")
            self._replaced(seen["pods"], since, TOLERANT)

    def repaired(self) -> None:
        """Repair all GPUs by deleting the faults."""
        clients = self.tour.settings.clients
        with self._watches() as seen:
            rules = clients.items("devicetaintrules") if self._rules else []
            self._type("delete", FAULTS, "--selector", OURS)
            clients.run("delete", FAULTS, "--selector", OURS)
            since = seen["faults"].first("the faults are deleted", lambda c: c.what == "DELETED").at
            for key in self.sick:
                well = seen["slices"].first(f"{key[2]} is well", self._well(key), REPAIRED_WITHIN)
                self._at(since, well, f"slice: {key[2]} is Healthy and has no taint")
            again = seen["pods"].first(f"Pod {WAITS} is Running", lambda c: c.name == WAITS and runs(c.object))
            key = self.tour.devices_of(again.object)[0]
            self._at(since, again, f"{WAITS} runs with {key[2]}: the GPU is used again")
            expect(key in self.sick, "the GPU that was repaired", key[2])
            for rule in (rule for rule in rules if any(hits(rule, key) for key in self.sick)):
                name = rule["metadata"]["name"]
                lifted = seen["rules"].first(f"rule {name} is lifted", _deleted(name), within=REPAIRED_WITHIN)
                self._at(since, lifted, f"rule {name} is lifted")

    @cached_property
    def _rules(self) -> str | None:
        return chart.rules_path(self.tour.settings)

    @cached_property
    def _lacks(self) -> str | None:
        """What the server lacks for this part, as far as one can say beforehand."""
        if not chart.keeps_taints(self.tour.settings):
            return "the server drops taints of devices (Kubernetes 1.36, or the gate DRADeviceTaints)"
        if self._rules is None:
            return "the server has no DeviceTaintRules (Kubernetes 1.37, or the gate DRADeviceTaintRules)"
        return None

    def _where_possible(self, step: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if self._lacks:
                raise Skipped(self._lacks)
            step()

        return run

    def _watches(self) -> AbstractContextManager[Mapping[str, Watch]]:
        paths = {
            "slices": "/apis/resource.k8s.io/v1/resourceslices",
            "rules": str(self._rules),
            "pods": f"/api/v1/namespaces/{self.tour.settings.pods}/pods",
            "faults": "/apis/dra.example.com/v1alpha1/devicefaults",
        }
        return watching(self.tour.settings.clients, paths)

    def _learn(self, name: str) -> str:
        """Remember the Pod of a Deployment and its device, and say them."""
        settings = self.tour.settings
        pod = pods.of_deployment(settings.clients, name, settings.pods)
        key = self.tour.devices_of(pod)[0]
        self.pods[name] = (pod, key)
        self.tour.say(f"{pod['metadata']['name']} runs on {pod['spec']['nodeName']} with {key[2]}")
        return str(pod["metadata"]["name"])

    def _two_free(self) -> list[tuple[str, Key]]:
        """Return two sound GPUs of one node that nobody has; those of a tour that broke off may still be recovering."""
        settings = self.tour.settings
        driver = chart.drivers(settings)["gpu"]

        def enough() -> list[tuple[str, Key]]:
            claims = settings.clients.items("resourceclaims", "--all-namespaces")
            found = free(chart.slices(settings), claims, driver)
            same = [(node, key) for node, key in found if node == found[-1][0]]
            names = [key[2] for _, key in found]
            expect(len(found) >= FREE and len(same) > 1, "that many", ", ".join(names) or "none")
            return same[-2:]

        what = f"{FREE} free GPUs, two for this on one node, two for evicted Pods"
        return wait_for(what, enough, REPAIRED_WITHIN)

    def _fail(self, seen: Mapping[str, Watch], key: Key, node: str, kind: str) -> float:
        """Let a device fail and return when the fault was there."""
        name = f"tour-{node}-{key[2]}-{kind}"
        manifest = fault(name, node, key[2], kind)
        self.tour.say(f"{self._kubectl('apply', '--filename', '-')} <<< '{manifest}'")
        self.tour.settings.clients.run("apply", "--filename", "-", given=manifest)
        self.sick[key] = kind
        since = seen["faults"].first(f"DeviceFault {name}", lambda c: c.name == name).at
        active = seen["faults"].first(f"DeviceFault {name} is Active", lambda c: c.name == name and _active(c))
        self._at(since, active, f"DeviceFault {name} is Active")
        return since

    def _tainted(self, slices: Watch, since: float, key: Key, kind: str) -> None:
        taint = f"{key[0]}/{kind}"

        def shows(change: Change) -> bool:
            device = device_of(change.object, key)
            return device is not None and taint in taints(device)

        change = slices.first(f"{key[2]} has the taint {taint}", shows)
        device = device_of(change.object, key) or {}
        self._at(since, change, f"slice: {key[2]} is {health(device)}, taint {taint}:{taints(device)[taint]}")

    def _ruled(self, rules: Watch, since: float, key: Key) -> Change:
        def evicts(change: Change) -> bool:
            return hits(change.object, key) and change.object["spec"]["taint"]["effect"] == "NoExecute"

        change = rules.first(f"a DeviceTaintRule that evicts from {key[2]}", evicts)
        taint = change.object["spec"]["taint"]
        self._at(since, change, f"rule {change.name}: {taint['key']}:{taint['effect']}")
        return change

    def _told(self, watch: Watch, since: float, name: str) -> None:
        def unhealthy(change: Change) -> bool:
            return change.name == name and any(health == "Unhealthy" for health, _ in told(change.object))

        change = watch.first(f"the status of Pod {name} says Unhealthy", unhealthy)
        message = next(message for health, message in told(change.object) if health == "Unhealthy")
        self._at(since, change, f"the Pod's status: Unhealthy: {message}")

    def _event(self, name: str) -> None:
        """Show the Event on a Pod that says what is wrong with its device."""
        clients, namespace = self.tour.settings.clients, self.tour.settings.pods
        words = ["events", "--namespace", namespace, "--field-selector", f"involvedObject.name={name},reason={SAID}"]
        [event, *_] = wait_for(f"the Event {SAID} on Pod {name}", lambda: clients.items(*words))
        self.tour.say(f"the Pod's Event {SAID}: {event['message']}")

    def _gone(self, watch: Watch, since: float, pod: Object) -> Change:
        """Wait until a Pod is told to end; return how it is then."""
        name = pod["metadata"]["name"]
        change = watch.first(f"Pod {name} is evicted", lambda c: c.name == name and not c.there)
        self._at(since, change, f"{name} is evicted")
        return change

    def _replaced(self, watch: Watch, since: float, name: str) -> None:
        """Wait until the next Pod of a Deployment runs, which must have a sound device."""
        old = self.pods[name][0]["metadata"]["name"]

        def other(change: Change) -> bool:
            ours = change.object["metadata"].get("labels", {}).get("app") == name
            return ours and change.name != old and runs(change.object)

        change = watch.first(f"another Pod of Deployment {name} runs", other)
        self._at(since, change, f"{change.name} runs")
        self._learn(name)
        key = self.pods[name][1]
        expect(key not in self.sick, "a sound GPU for it", key[2])

    def _well(self, key: Key) -> Callable[[Change], bool]:
        def well(change: Change) -> bool:
            device = device_of(change.object, key)
            return device is not None and not taints(device) and health(device) == "Healthy"

        return well

    def _status(self) -> None:
        """Show what `drasim status` says now."""
        clients = self.tour.settings.clients
        self.tour.say(shlex.join([*clients.drasim, "status"]))
        self.tour.say("\n   ".join(clients.driver("status").splitlines()))

    def _at(self, since: float, change: Change, text: str) -> None:
        """Print what came how long after the fault; of two watches one may be a little behind."""
        self.tour.say(f"+{max(0.0, change.at - since):6.2f} s  {text}")

    def _type(self, *words: str) -> None:
        self.tour.say(self._kubectl(*words))

    def _kubectl(self, *words: str) -> str:
        return shlex.join([*self.tour.settings.clients.kubectl, *words])


def _active(change: Change) -> bool:
    status = change.object.get("status") or {}
    if status.get("phase") == "Refused":
        raise Failed(f"DeviceFault {change.name} was refused: {status.get('reason')}")
    return bool(status.get("phase") == "Active")


def _deleted(name: str) -> Callable[[Change], bool]:
    return lambda change: change.what == "DELETED" and change.name == name
