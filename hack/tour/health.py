"""What slices, rules and Pods say about sick devices; pure."""

from collections.abc import Iterable
from datetime import datetime

from hack.tour.clients import Object
from hack.tour.devices import Key

OURS = "app.kubernetes.io/part-of=drasim-tour"


def fault(name: str, node: str, device: str, kind: str) -> str:
    """Return the manifest of a DeviceFault, YAML on one line, with the label of the tour's own."""
    meta = f"{{name: {name}, labels: {{{OURS.replace('=', ': ')}}}}}"
    spec = f"{{node: {node}, device: {device}, kind: {kind}}}"
    return f"{{apiVersion: dra.example.com/v1alpha1, kind: DeviceFault, metadata: {meta}, spec: {spec}}}"


def device_of(entry: Object, key: Key) -> Object | None:
    """Return a device of a slice, None when the slice does not have it."""
    spec = entry["spec"]
    if (spec["driver"], spec["pool"]["name"]) != key[:2]:
        return None
    return next((device for device in spec.get("devices") or () if device["name"] == key[2]), None)


def taints(device: Object) -> dict[str, str]:
    """Return the effects of a device's taints, by key."""
    return {taint["key"]: taint["effect"] for taint in device.get("taints") or ()}


def health(device: Object) -> str:
    """Return what a device says of its health."""
    return str(device.get("attributes", {}).get("health", {}).get("string", ""))


def hits(rule: Object, key: Key) -> bool:
    """Tell whether a DeviceTaintRule is about one device and no other."""
    selector = rule["spec"].get("deviceSelector") or {}
    return (selector.get("driver"), selector.get("pool"), selector.get("device")) == key


def told(pod: Object) -> list[tuple[str, str]]:
    """Return what a Pod's status says of its devices: health and message of each."""
    statuses = pod["status"].get("containerStatuses") or ()
    entries = [entry for status in statuses for entry in status.get("allocatedResourcesStatus") or ()]
    return [
        (resource.get("health", ""), resource.get("message", ""))
        for entry in entries
        for resource in entry.get("resources") or ()
    ]


def free(slices: Iterable[Object], claims: Iterable[Object], driver: str) -> list[tuple[str, Key]]:
    """Return the sound devices of a driver that no claim has, each with its node."""
    taken = {
        (result["driver"], result["pool"], result["device"])
        for claim in claims
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or ()
    }
    return [
        (entry["spec"]["nodeName"], key)
        for entry in slices
        if entry["spec"]["driver"] == driver
        for device in entry["spec"].get("devices") or ()
        if (key := (driver, entry["spec"]["pool"]["name"], device["name"])) not in taken and not taints(device)
    ]


def unschedulable(pod: Object) -> str:
    """Return why the scheduler found no place for a Pod, empty when it did or has not looked yet."""
    conditions = pod["status"].get("conditions") or ()
    waits = (c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")
    return next((str(condition.get("message", "")) for condition in waits), "")


def seconds(stamp: str) -> float:
    """Return a time of the API, which has whole seconds."""
    return datetime.fromisoformat(stamp).timestamp()


def told_to_end(pod: Object) -> float:
    """Return when a Pod that is ending was told so: its deletion is dated to when that time is up."""
    meta = pod["metadata"]
    return seconds(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds", 0))


def runs(pod: Object) -> bool:
    """Tell whether all containers of a Pod run and it is not ending."""
    statuses = pod["status"].get("containerStatuses") or ()
    running = bool(statuses) and all("running" in status["state"] for status in statuses)
    return running and "deletionTimestamp" not in pod["metadata"]
