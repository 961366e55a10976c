"""The Pods of the examples: started, looked at, ended."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from hack.tour.clients import CHECKOUT, Clients, Failed, Object, wait_for
from hack.tour.devices import Seen, seen
from hack.tour.settings import BUSYBOX

EXAMPLES = CHECKOUT / "examples"


AS_IT_IS: Mapping[str, str] = MappingProxyType({})


def manifest(example: str, image: str, other: Mapping[str, str] = AS_IT_IS) -> str:
    """Return an example with its Pods' image replaced, and other words too."""
    text = (EXAMPLES / f"{example}.yaml").read_text().replace(f"image: {BUSYBOX}", f"image: {image}")
    for old, new in other.items():
        text = text.replace(old, new)
    return text


def typed(clients: Clients, example: str, image: str, namespace: str, other: Mapping[str, str] = AS_IT_IS) -> str:
    """Return what to type for applying what ``manifest`` returns."""
    changes = {**({} if image == BUSYBOX else {BUSYBOX: image}), **other}
    apply = f"{shlex.join(clients.kubectl)} apply --namespace {namespace} --filename"
    if not changes:
        return f"{apply} examples/{example}.yaml"
    script = "; ".join(f"s#{old}#{new}#" for old, new in changes.items())
    return f"sed '{script}' examples/{example}.yaml | {apply} -"


def wait_account(clients: Clients, namespace: str) -> None:
    """Wait until Pods can be made in a new namespace: without the account that each is given, they are refused."""
    account = ["serviceaccount", "default", "--namespace", namespace]
    wait_for(f"the service account of namespace {namespace}", lambda: clients.find(*account))


def of_deployment(clients: Clients, name: str, namespace: str) -> Object:
    """Return the one Pod of a Deployment of the examples, running: whichever it is by then."""

    def ready() -> Object:
        found = clients.items("pods", "--namespace", namespace, "--selector", f"app={name}")
        there = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        if up := next((pod for pod in there if _runs(pod)), None):
            return up
        raise Failed("; ".join(_why(clients, pod, namespace) for pod in there) or "no Pod")

    return wait_for(f"a Pod of Deployment {name} is Running", ready, within=120)


def running(clients: Clients, name: str, namespace: str) -> Object:
    """Return the Pod once it runs. Raises Failed with what keeps it."""

    def ready() -> Object | None:
        pod = clients.get("pod", name, "--namespace", namespace)
        if _runs(pod):
            return pod
        raise Failed(_why(clients, pod, namespace))

    return wait_for(f"Pod {name} is Running", ready, within=120)


def printed(clients: Clients, name: str, namespace: str, container: str = "main") -> Seen:
    """Return what a container of an example printed, once it has printed its device nodes."""

    def complete() -> Seen | None:
        found = seen(clients.run("logs", name, "--namespace", namespace, "--container", container))
        return found if found.nodes and len(found.nodes) == len(found.devices) else None

    return wait_for(
        f"container {container} of Pod {name} prints a variable and a device node for each device", complete
    )


def claims(clients: Clients, pod: Object) -> list[Object]:
    """Return the claims that were made for a Pod, that of its extended resources included."""
    status, namespace = pod["status"], pod["metadata"]["namespace"]
    names = [entry["resourceClaimName"] for entry in status.get("resourceClaimStatuses", ())]
    if extended := status.get("extendedResourceClaimStatus"):
        names.append(extended["resourceClaimName"])
    return [clients.get("resourceclaim", name, "--namespace", namespace) for name in names]


def _runs(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    return pod["status"].get("phase") == "Running" and all("running" in status["state"] for status in statuses)


def _why(clients: Clients, pod: Object, namespace: str) -> str:
    """Return the Pod's phase and its newest event, which usually names the reason."""
    name, phase = pod["metadata"]["name"], pod["status"].get("phase")
    events = clients.items("events", "--namespace", namespace, "--field-selector", f"involvedObject.name={name}")
    newest = max(events, key=lambda event: event["metadata"]["resourceVersion"].zfill(20), default=None)
    return f"phase {phase}" + (f", {newest['reason']}: {newest['message']}" if newest else "")
