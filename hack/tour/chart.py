"""Installing the chart, and what one wants to know of an installed driver."""

import json
from functools import partial

from hack.tour.clients import CHECKOUT, Failed, Object, wait_for
from hack.tour.settings import Settings

CHART = CHECKOUT / "charts" / "drasim"
DRIVER, CONTROLLER = "drasim", "drasim-controller"
BUILD = "example.com/image-build"
POD_SECURITY = "pod-security.kubernetes.io/enforce"


def install(settings: Settings, values: Object | None = None) -> str:
    """Install or upgrade the release and wait until its Pods are ready; return what was said."""
    namespace(settings)
    repository, _, tag = settings.image.rpartition(":")
    given = {
        "image": {"repository": repository or tag, "tag": tag if repository else ""},
        "podAnnotations": {BUILD: settings.build},
        **(values or {}),
    }
    files = [word for file in settings.values for word in ("--values", file)]
    options = ["--install", "--wait", "--timeout", "150s", "--namespace", settings.namespace]
    sets = [word for key, value in given.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
    return settings.clients.chart("upgrade", settings.release, str(CHART), *options, *files, *sets)


def namespace(settings: Settings) -> None:
    """Make the driver's namespace, which has to allow hostPath volumes."""
    meta = {"name": settings.namespace, "labels": {POD_SECURITY: "privileged"}}
    settings.clients.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}), settings.namespace)


def daemonset(settings: Settings) -> Object:
    """Return the driver's DaemonSet."""
    found = settings.clients.items("daemonsets", "--namespace", settings.namespace, "--selector", _selector(settings))
    if not found:
        raise Failed(
            f"expected a DaemonSet of release {settings.release} in namespace {settings.namespace}; there is none"
        )
    return found[0]


def pods(settings: Settings, name: str = DRIVER) -> list[Object]:
    """Return the driver's Pods (or the controller's) that are not ending."""
    found = settings.clients.items("pods", "--namespace", settings.namespace, "--selector", _selector(settings, name))
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def config(settings: Settings) -> Object:
    """Return the driver's configuration as the release has it."""
    text = settings.clients.chart(
        "get", "values", settings.release, "--all", "--output", "json", "--namespace", settings.namespace
    )
    found: Object = json.loads(text)["config"]
    return found


def drivers(settings: Settings) -> dict[str, str]:
    """Return the names of the drivers that run, by kind."""
    found = config(settings)
    return {kind: found[kind]["driver"] for kind in ("gpu", "nic") if found[kind]["hardware"] != "off"}


def files(settings: Settings) -> list[str]:
    """Return the JSON files of the drivers on all nodes (CDI specs, records), as seen in their Pods: `node:path`."""
    volumes = {volume["name"]: volume for volume in daemonset(settings)["spec"]["template"]["spec"]["volumes"]}
    folders = [volumes[name]["hostPath"]["path"] for name in ("cdi", "plugins")]
    found = []
    for pod in pods(settings):
        where = ["--namespace", settings.namespace, pod["metadata"]["name"], "--container", "drasim"]
        find = ["exec", *where, "--", "find", *folders, "-name", "*.json"]
        # find ends with an error when something goes while it looks, as claims of Pods that are ending do.
        (listing,) = wait_for(f"a list of the files in {pod['metadata']['name']}", partial(_one, settings, find))
        found += [f"{pod['spec']['nodeName']}:{line}" for line in listing.splitlines()]
    return found


def _one(settings: Settings, words: list[str]) -> tuple[str]:
    return (settings.clients.run(*words),)  # true, also when nothing was printed


def slices(settings: Settings) -> list[Object]:
    """Return the drivers' slices, once every node that runs the driver has some of each."""

    def complete() -> list[Object] | None:
        nodes = {pod["spec"].get("nodeName") for pod in pods(settings)}
        names = set(drivers(settings).values())
        found = [entry for entry in settings.clients.items("resourceslices") if entry["spec"]["driver"] in names]
        there = {(entry["spec"]["driver"], entry["spec"].get("nodeName")) for entry in found}
        missing = {(name, node) for name in names for node in nodes} - there
        if missing or not nodes:
            raise Failed("no slices of " + ", ".join(f"{name} on {node}" for name, node in sorted(missing)))
        return found

    return wait_for("ResourceSlices of every driver on every node", complete)


def keeps_taints(settings: Settings) -> bool:
    """Tell whether the server stores taints of devices, by a creation that it only tries."""
    device = {"name": "one", "taints": [{"key": "example.com/probe", "effect": "NoSchedule"}]}
    pool = {"name": "probe", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "probe.example.com", "nodeName": "probe", "pool": pool, "devices": [device]}
    meta = {"generateName": "probe-"}
    probe = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}
    words = ["create", "--dry-run=server", "--output", "json", "--filename", "-"]
    kept = json.loads(settings.clients.run(*words, given=json.dumps(probe)))
    return "taints" in kept["spec"]["devices"][0]


def rules_path(settings: Settings) -> str | None:
    """Return the API's path of DeviceTaintRules in the newest version that is served, None when none is."""
    group = json.loads(settings.clients.run("get", "--raw", "/apis/resource.k8s.io"))
    for version in group["versions"]:
        path = f"/apis/{version['groupVersion']}"
        listed = json.loads(settings.clients.run("get", "--raw", path))["resources"]
        if any(resource["name"] == "devicetaintrules" for resource in listed):
            return f"{path}/devicetaintrules"
    return None


def _selector(settings: Settings, name: str = DRIVER) -> str:
    return f"app.kubernetes.io/name={name},app.kubernetes.io/instance={settings.release}"
