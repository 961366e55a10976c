"""The API objects that measuring needs: claims allocated by hand, and Pods."""

from collections.abc import Mapping
from typing import Any

from hack.bench.api import Api, Object
from hack.bench.load import Ref

RESOURCE = "/apis/resource.k8s.io/v1"
NAMESPACE = "bench"
CLAIMS = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SLICES = f"{RESOURCE}/resourceslices"
CLASSES = f"{RESOURCE}/deviceclasses"
TEMPLATES = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaimtemplates"
RULES = f"{RESOURCE}/devicetaintrules"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
FAULTS = "/apis/dra.example.com/v1alpha1/devicefaults"
NODES = "/api/v1/nodes"
MANY = "bench.example.com/many=yes"
"""Label of the nodes, and their slices, that are only there to be many."""
NODE = "node1"
REQUEST = "device"
PAUSE = "localhost/pause:test"
PARAMETERS: Object = {"apiVersion": "dra.example.com/v1alpha1", "kind": "GpuConfig", "powerLimitWatts": 350}


def claim(name: str, device_class: str) -> Object:
    """Return a claim for one device."""
    request = {"name": REQUEST, "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }


def with_parameters(body: Object, driver: str) -> Object:
    """Return the claim with parameters for a driver."""
    config = [{"requests": [REQUEST], "opaque": {"driver": driver, "parameters": PARAMETERS}}]
    return {**body, "spec": {"devices": {**body["spec"]["devices"], "config": config}}}


def allocated(body: Object, driver: str, pool: str, device: str) -> Object:
    """Return the claim as the scheduler would leave it, without a consumer."""
    result = {"request": REQUEST, "driver": driver, "pool": pool, "device": device}
    devices: dict[str, Any] = {"results": [result]}
    if config := body["spec"]["devices"].get("config"):
        devices["config"] = [{"source": "FromClaim", **entry} for entry in config]
    return {**body, "status": {"allocation": {"devices": devices}}}


def make_claim(api: Api, body: Object, driver: str, pool: str, device: str) -> Ref:
    """Create a claim and allocate it by hand; return what the kubelet would name it by."""
    stored = api.create(CLAIMS, body)
    name = stored["metadata"]["name"]
    api.replace(f"{CLAIMS}/{name}/status", allocated(stored, driver, pool, device))
    return NAMESPACE, stored["metadata"]["uid"], name


def device_class(name: str, driver: str) -> Object:
    """Return a class of all devices of a driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def pod(name: str, claim_name: str | None = None) -> Object:
    """Return a Pod that does nothing, with the claim or without one."""
    container: Object = {"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"}
    spec: Object = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    if claim_name:
        container["resources"] = {"claims": [{"name": "it"}]}
        spec["resourceClaims"] = [{"name": "it", "resourceClaimName": claim_name}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def template(name: str, device_class: str) -> Object:
    """Return a template of claims for one device."""
    spec = {"spec": claim(name, device_class)["spec"]}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}


def deployment(name: str, template_name: str) -> Object:
    """Return a Deployment of one Pod that does nothing, with a claim made for it."""
    spec = pod(name)["spec"]
    spec["containers"][0]["resources"] = {"claims": [{"name": "it"}]}
    spec["resourceClaims"] = [{"name": "it", "resourceClaimTemplateName": template_name}]
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def fault(name: str, device: str, kind: str) -> Object:
    """Return a DeviceFault of a device on the node that is measured."""
    spec = {"node": NODE, "device": device, "kind": kind}
    return {"apiVersion": "dra.example.com/v1alpha1", "kind": "DeviceFault", "metadata": {"name": name}, "spec": spec}


def many_labels() -> dict[str, str]:
    """Return the label of what is only there to be many."""
    key, _, value = MANY.partition("=")
    return {key: value}


def slice_of(model: Object, node: str) -> Object:
    """Return a slice like another one, for another node."""
    spec = model["spec"]
    pool = {**spec["pool"], "name": f"{node}-{spec['driver'][:3]}"}
    meta = {"generateName": f"{node}-", "labels": many_labels()}
    return {**model, "metadata": meta, "spec": {**spec, "nodeName": node, "pool": pool}}


def leaves(item: Object | None) -> bool:
    """Tell whether a Pod is gone or about to be."""
    return item is None or "deletionTimestamp" in item["metadata"]


def tainted(items: Mapping[str, Object], driver: str) -> set[str]:
    """Return the names of a driver's devices that have a taint."""
    specs = [item["spec"] for item in items.values() if item["spec"]["driver"] == driver]
    return {device["name"] for spec in specs for device in spec.get("devices") or () if device.get("taints")}


def has_taint(driver: str, device: str, items: Mapping[str, Object]) -> bool:
    """Tell whether a device has a taint."""
    return device in tainted(items, driver)


def running(item: Object | None) -> bool:
    """Tell whether a Pod is Running, its container included."""
    status = (item or {}).get("status", {})
    return status.get("phase") == "Running" and all(entry["ready"] for entry in status["containerStatuses"])


def unschedulable(item: Object | None) -> bool:
    """Tell whether the scheduler has looked at a Pod and found no place for it."""
    conditions = (item or {}).get("status", {}).get("conditions") or ()
    return any(entry["type"] == "PodScheduled" and entry["status"] == "False" for entry in conditions)


def published(items: dict[str, Object], driver: str) -> int | None:
    """Return the number of devices that a driver's slices show; None while a pool is incomplete or none is there."""
    specs = [item["spec"] for item in items.values() if item["spec"]["driver"] == driver]
    if not specs or any(spec["pool"]["resourceSliceCount"] != len(specs) for spec in specs):
        return None
    return sum(len(spec.get("devices") or ()) for spec in specs)
