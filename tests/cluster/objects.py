"""Manifests for the tests, and what is read from the Pods and claims that came of them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hack.tour import pods
from hack.tour.clients import Failed, Object
from hack.tour.devices import Seen, allocated
from tests.cluster.real import BUSYBOX, RealCluster

GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
API_VERSION = "dra.example.com/v1alpha1"
FAILED_PREPARE = "FailedPrepareDynamicResources"
SHOW = "env | grep ^DRASIM_ | sort; ls /dev/drasim; exec sleep 1000000"
LIMITED = {"kind": "GpuConfig", "powerLimitWatts": 300}
TUNED = {"kind": "NicConfig", "mtu": 9000}


def claim(name: str, requests: Mapping[str, int], parameters: Mapping[str, Object] | None = None) -> Object:
    """Return a claim for so many devices of each class; parameters by the driver's (and class's) name."""
    config = [
        {"opaque": {"driver": driver, "parameters": {"apiVersion": API_VERSION, **given}}}
        for driver, given in (parameters or {}).items()
    ]
    asked = [
        {"name": f"r{index}", "exactly": {"deviceClassName": name_of_class, "count": count}}
        for index, (name_of_class, count) in enumerate(requests.items())
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": asked, "config": config}},
    }


def pod(name: str, claim_name: str, node: int) -> Object:
    """Return a Pod that uses a claim on that node, prints what it got, and sleeps."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SHOW],
        "resources": {"claims": [{"name": "devices"}]},
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": f"node{node}"},
        "resourceClaims": [{"name": "devices", "resourceClaimName": claim_name}],
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def device_class(name: str) -> Object:
    """Return the class of a driver's devices, named like the driver."""
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    meta = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": meta,
        "spec": {"selectors": [selector]},
    }


class Space:
    """A namespace of a test: makes claims and Pods in it, and looks at them."""

    def __init__(self, cluster: RealCluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def create(self, *manifests: Object) -> None:
        """Create the objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.cluster.clients.apply(json.dumps(listed), self.name)

    def claim(self, name: str) -> Object:
        """Return a claim as it is now."""
        return self.cluster.clients.get("resourceclaim", name, "--namespace", self.name)

    def pod(self, name: str) -> Object:
        """Return a Pod as it is now."""
        return self.cluster.clients.get("pod", name, "--namespace", self.name)

    def running(self, name: str) -> Object:
        """Return a Pod once it runs."""
        return pods.running(self.cluster.clients, name, self.name)

    def started(self, name: str, claim_name: str, node: int) -> Object:
        """Create a Pod that uses a claim on a node, and return it running."""
        self.create(pod(name, claim_name, node))
        return self.running(name)

    def printed(self, name: str) -> Seen:
        """Return what a Pod got to see of its devices."""
        return pods.printed(self.cluster.clients, name, self.name)

    def failures(self) -> list[str]:
        """Return what events say of claims that could not be prepared."""
        where = ["--namespace", self.name, "--field-selector", f"reason={FAILED_PREPARE}"]
        return [event["message"] for event in self.cluster.clients.items("events", *where)]

    def delete_pods(self, *names: str) -> None:
        """Delete Pods, all if none is named; wait until they are gone, which is after Unprepare, and hold nothing."""
        which = names or ("--all",)
        where = ["--namespace", self.name, "--ignore-not-found", "--wait", "--timeout", "120s"]
        self.cluster.clients.run("delete", "pod", *which, *where)
        self.wait_free()

    def wait_free(self) -> None:
        """Wait until Pods that end, or are gone, hold no claim: Kubernetes takes its devices back a moment later."""
        self.cluster.wait_for("the devices of Pods that are gone are free", self._is_free)

    def _is_free(self) -> bool:
        found = self.cluster.clients.items("pods,resourceclaims", "--namespace", self.name)
        stay = {entry["metadata"]["uid"] for entry in found if "deletionTimestamp" not in entry["metadata"]}
        held = {entry["metadata"]["name"]: {user["uid"] for user in _users(entry)} - stay for entry in found}
        if left := [name for name, users in held.items() if users]:
            raise Failed(f"held: {sorted(left)}")
        return True

    def events(self, name: str, reason: str | None = None) -> list[str]:
        """Return the messages of all events about an object of that name, of one reason if named."""
        where = ["--namespace", self.name, "--field-selector", f"involvedObject.name={name}"]
        found = self.cluster.clients.items("events", *where)
        return [event["message"] for event in found if reason in {None, event["reason"]}]


def _users(claim: Object) -> list[Object]:
    users: list[Object] = claim.get("status", {}).get("reservedFor") or []
    return users


def identity(running: Object) -> tuple[str, int]:
    """Return what changes when a Pod's container is started again: its id, and how often it was."""
    status = running["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"]


def devices(claim: Object) -> list[str]:
    """Return the names of the devices that a claim was given, driver by driver."""
    return sorted(f"{driver}/{name}" for driver, _, name in allocated(claim))


def reference(claim: Object) -> tuple[str, str, str]:
    """Return namespace, UID and name of a claim, as the kubelet passes them to a driver."""
    meta = claim["metadata"]
    return meta["namespace"], meta["uid"], meta["name"]


def device_names(slices: Iterable[Object]) -> list[str]:
    """Return the names of all devices in some slices."""
    return [device["name"] for entry in slices for device in entry["spec"].get("devices") or ()]


def plain(answer: str) -> dict[str, Any]:
    """Return JSON text as values."""
    read: dict[str, Any] = json.loads(answer)
    return read
