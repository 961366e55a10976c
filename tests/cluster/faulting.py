"""Faults of devices: as objects, as a file; and what is seen of them in slices, Pods and Events."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import yaml

from hack.tour.clients import Failed, Object
from tests.cluster.objects import API_VERSION, GPU, NIC, Space, claim
from tests.cluster.onnode import OnNode
from tests.cluster.real import RealCluster
from tests.cluster.watching import FAULTS as FAULTS_PATH
from tests.cluster.watching import Pool, Watching

TEST = "drasim.example.com/test"
FAULTS = "devicefaults.dra.example.com"
HASTY = {
    "problems.clearAfter": "1s",
    "problems.clearAfterMost": "1s",
    "problems.silentAfter": "1s",
    "periods.look": "1s",
}
"""Settings with which problems come and go fast."""


def fault(name: str, node: str, device: str, kind: str, code: str = "", **more: str) -> Object:
    """Return a DeviceFault; `device` may be `all gpu` or `all nic`; keyword arguments are `after` and `duration`."""
    which = {"all": device.removeprefix("all ")} if device.startswith("all ") else {"device": device}
    spec = {"node": node, **which, "kind": kind, **({"code": code} if code else {}), **more}
    return {"apiVersion": API_VERSION, "kind": "DeviceFault", "metadata": {"name": name}, "spec": spec}


class Faults:
    """DeviceFaults of one test; their names begin with its purpose."""

    def __init__(self, cluster: RealCluster, purpose: str) -> None:
        self.cluster, self.purpose = cluster, purpose

    def named(self, name: str) -> str:
        """Return the whole name of one of them."""
        return f"{self.purpose}-{name}"

    def create(self, *faults: Object) -> None:
        """Create them."""
        meta = {"labels": {TEST: self.purpose}}
        items = [{**f, "metadata": {**meta, "name": self.named(f["metadata"]["name"])}} for f in faults]
        self.cluster.clients.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "default")

    def repair(self, *names: str) -> None:
        """Delete some, all if none is named: all in one request."""
        if names:
            self.cluster.clients.run("delete", FAULTS, *[self.named(name) for name in names], "--ignore-not-found")
        else:
            selector = quote(f"{TEST}={self.purpose}")
            self.cluster.clients.run("delete", "--raw", f"{FAULTS_PATH}?labelSelector={selector}")

    def status(self, name: str) -> Object:
        """Return what is said of one; empty as long as nothing is."""
        found: Object = self.cluster.clients.get(FAULTS, self.named(name)).get("status", {})
        return found

    def wait(self, name: str, phase: str) -> Object:
        """Return the status of one once it has that phase."""

        def there() -> Object:
            status = self.status(name)
            if status.get("phase") != phase:
                raise Failed(f"status {status}")
            return status

        return self.cluster.wait_for(f"DeviceFault {self.named(name)} is {phase}", there)


@contextmanager
def faults(cluster: RealCluster, purpose: str) -> Iterator[Faults]:
    """DeviceFaults of a test; none of them is left, nor what followed from them for the slices."""
    given = Faults(cluster, purpose)
    try:
        yield given
    finally:
        given.repair()
        wait_untainted(cluster)


class FaultFile:
    """The file of faults of a process: what `simulation.faults` names. Replaced as a whole at each change."""

    def __init__(self, path: Path, node: str) -> None:
        self.path, self.node = path, node
        self._faults: dict[str, Object] = {}
        self._write()

    def put(self, name: str, device: str, kind: str, code: str = "") -> None:
        """Put one fault into the file."""
        self.put_all({name: (device, kind, code)})

    def put_all(self, given: Mapping[str, tuple[str, str, str]]) -> None:
        """Put several into it at once: device, kind and code by name."""
        self._faults |= {name: fault(name, self.node, *parts) for name, parts in given.items()}
        self._write()

    def repair(self, *names: str) -> None:
        """Take some out, all if none is named."""
        gone = names or tuple(self._faults)
        self._faults = {name: entry for name, entry in self._faults.items() if name not in gone}
        self._write()

    def spoil(self) -> None:
        """Put something else into it, until the next change."""
        self._replace("kind: [")

    def _write(self) -> None:
        self._replace(yaml.safe_dump_all(self._faults.values()))

    def _replace(self, text: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)  # noqa: PTH105 - one step, as its reader expects


# --------------------------------------------------------------------------------------------------- what slices say


@dataclass(frozen=True)
class Published:
    """A device as its slice shows it."""

    device: Object

    @property
    def taints(self) -> dict[str, Object]:
        """Its taints by what is wrong: the last part of the key."""
        return {taint["key"].rpartition("/")[2]: taint for taint in self.device.get("taints") or ()}

    @property
    def brief(self) -> dict[str, tuple[str, str]]:
        """Value and effect of its taints, by what is wrong."""
        return {kind: (taint.get("value", ""), taint["effect"]) for kind, taint in self.taints.items()}

    @property
    def since(self) -> dict[str, str]:
        """The time of its taints, by what is wrong."""
        return {kind: taint["timeAdded"] for kind, taint in self.taints.items()}

    def attribute(self, name: str) -> object:
        """Return an attribute without its type."""
        typed: Mapping[str, object] = self.device["attributes"][name]
        return next(iter(typed.values()))

    @property
    def health(self) -> object:
        """Its health in one word."""
        return self.attribute("health")


def published(slices: list[Object]) -> dict[str, Published]:
    """Return the devices of some slices by name."""
    return {device["name"]: Published(device) for entry in slices for device in entry["spec"].get("devices") or ()}


def device(cluster: RealCluster, driver: str, node: str, name: str) -> Published:
    """Return a device as it is published now. Raises Failed when it is not."""
    found = published(cluster.slices(driver, node))
    if name not in found:
        raise Failed(f"{driver} publishes on {node}: {', '.join(found) or 'nothing'}")
    return found[name]


def wait_taints(cluster: RealCluster, place: tuple[str, str, str], wanted: Mapping[str, tuple[str, str]]) -> Published:
    """Return a device (driver, node, name) once its taints are these: value and effect by what is wrong."""

    def there() -> Published:
        found = device(cluster, *place)
        if found.brief != wanted:
            raise Failed(f"taints {found.brief}")
        return found

    return cluster.wait_for(f"the taints of {place[2]} are {wanted}", there)


def wait_untainted(cluster: RealCluster) -> None:
    """Wait until the chart's drivers publish no taint, so that no slice will change by itself."""

    def there() -> bool:
        found = [published([entry]) for driver in (GPU, NIC) for entry in cluster.slices(driver)]
        if tainted := [name for devices in found for name, each in devices.items() if each.brief]:
            raise Failed(f"tainted: {tainted}")
        return bool(found)

    cluster.wait_for("no device has a taint", there)


def writes(seen: Watching, pool: Pool) -> list[str]:
    """Return what happened to the slices of a pool, and check that nothing but a slice's content changed."""
    generations = {entry["spec"]["pool"]["generation"] for _, slices in seen.states(pool) for entry in slices}
    assert len(generations) == 1, f"{pool}: generations {generations}"
    return [change.what for change in seen.of(pool)]


# -------------------------------------------------------------------------------------------- what Pods and Events say


def pod_health(pod: Object) -> list[tuple[str, str]]:
    """Return health and message of the devices of a Pod's first container, as the kubelet tells them."""
    (status, *_) = pod["status"]["containerStatuses"]
    entries = [entry for claimed in status.get("allocatedResourcesStatus") or () for entry in claimed["resources"]]
    return [(entry["health"], entry.get("message", "")) for entry in entries]


def wait_pod_health(space: Space, name: str, health: str, message: str = "") -> str:
    """Wait until the kubelet says this of the Pod's only device; return its message."""

    def there() -> str:
        found = pod_health(space.pod(name))
        if [entry[0] for entry in found] != [health] or message not in found[0][1]:
            raise Failed(f"allocatedResourcesStatus {found}")
        return found[0][1] or "no message"

    return space.cluster.wait_for(f"the Pod's device is {health} ({message})", there)


def now() -> str:
    """Return the time as our Events have it: those of earlier tests are about the same Nodes and devices."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def node_events(cluster: RealCluster, node: str, since: str, reason: str) -> list[str]:
    """Return what events of that reason say of a Node since then, as `kubectl describe node` finds them."""
    fields = f"involvedObject.kind=Node,involvedObject.uid={node},reason={reason}"
    found = cluster.clients.items("events", "--all-namespaces", "--field-selector", fields)
    return [event["message"] for event in found if (event["eventTime"] or "") >= since]


def wait_node_event(cluster: RealCluster, node: str, since: str, reason: str, *words: str) -> str:
    """Return an event of that reason on a Node, not older than `since`, that has all these words."""

    def there() -> str | None:
        found = node_events(cluster, node, since, reason)
        match = next((message for message in found if all(word in message for word in words)), None)
        if match is None:
            raise Failed(f"events {found}")
        return match

    return cluster.wait_for(f"an event {reason} on {node} with {words}", there)


def wait_event(space: Space, name: str, reason: str, *words: str) -> str:
    """Return an event of that reason on an object of the space that has all these words."""

    def there() -> str | None:
        found = space.events(name, reason)
        match = next((message for message in found if all(word in message for word in words)), None)
        if match is None:
            raise Failed(f"events {reason} {found}, all {space.events(name)}")
        return match

    return space.cluster.wait_for(f"an event {reason} on {name} with {words}", there)


def allocated_by_hand(space: Space, name: str, place: OnNode, device_name: str) -> Object:
    """Create a claim, allocate a device of a driver to it as the scheduler would, and return it."""
    space.create(claim(name, {place.driver: 1}))
    kind = place.driver.partition(".")[0]
    result = {"request": "r0", "driver": place.driver, "pool": f"node{place.node}-{kind}", "device": device_name}
    patch = json.dumps({"status": {"allocation": {"devices": {"results": [result]}}}})
    words = ["patch", "resourceclaim", name, "--namespace", space.name, "--subresource=status", "--type=merge"]
    space.cluster.clients.run(*words, "--patch", patch)
    return space.claim(name)
