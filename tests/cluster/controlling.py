"""`drasim controller` as a process on this machine, with a name, a policy and drivers of its own; and what it keeps."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.tour.clients import Failed, Object
from hack.tour.devices import allocated
from tests.cluster.objects import Space
from tests.cluster.outside import GRACE, Outside, show, spawn
from tests.cluster.real import BUSYBOX, RealCluster

RULES = "devicetaintrules.resource.k8s.io"
MANAGED = "app.kubernetes.io/managed-by"
LOST_AT_ONCE = {"problem": "lost", "after": 0, "recoverAfter": 1}


def rules(cluster: RealCluster, driver: str) -> list[Object]:
    """Return the rules that speak of a driver's devices."""
    found = cluster.clients.items(RULES)
    return [rule for rule in found if (rule["spec"].get("deviceSelector") or {}).get("driver") == driver]


def devices_of(found: list[Object]) -> list[str]:
    """Return which devices rules speak of, sorted."""
    return sorted(rule["spec"]["deviceSelector"]["device"] for rule in found)


def wait_rules(cluster: RealCluster, driver: str, *wanted: str) -> list[Object]:
    """Return the rules of a driver once they are of these devices and no others."""

    def there() -> tuple[list[Object]]:
        found = rules(cluster, driver)
        if devices_of(found) != sorted(wanted):
            raise Failed(f"rules of {devices_of(found)}")
        return (found,)

    return cluster.wait_for(f"rules of {driver} for {sorted(wanted)}", there)[0]


@dataclass
class Controller:
    """A controller of the drivers of one `Outside`."""

    driver: Outside
    name: str
    policy: Mapping[str, Any]
    folder: Path
    _process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / f"{self.name}.log"

    def config(self) -> Object:
        """Return its whole configuration."""
        own = {"name": self.name, "namespace": self.driver.cluster.settings.namespace, **self.policy}
        drivers = {"gpu": {"driver": self.driver.gpu.driver}, "nic": {"driver": self.driver.nic.driver}}
        return {**drivers, "controller": own, "probes": {"address": ""}, "log": {"format": "json"}}

    def start(self) -> None:
        """Start the process, in the cluster's network."""
        path = self.folder / f"{self.name}.yaml"
        path.write_text(json.dumps(self.config()))
        command = [sys.executable, "-m", "drasim", "controller", "--config", str(path)]
        with self.log.open("a") as log:
            self._process = spawn(["run", "--name", self.driver.cluster.name, "--", *command], log)

    def end(self) -> None:
        """End the process and wait for that."""
        if self._process is None:
            return
        try:
            self._process.terminate()
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GRACE)
            raise
        finally:
            self._process = None

    def status(self) -> Object:
        """Return what it says of itself. Raises Failed when the process has ended."""
        if self._process is None or self._process.poll() is not None:
            raise Failed(f"the controller has ended:\n{self.log.read_text()}")
        return status(self.driver.cluster, self.name)

    def clear(self) -> None:
        """Remove what it keeps in the API."""
        cluster = self.driver.cluster
        names = [rule["metadata"]["name"] for rule in rules(cluster, self.driver.gpu.driver)]
        where = ["--namespace", cluster.settings.namespace, "--ignore-not-found"]
        if names:
            cluster.clients.run("delete", RULES, *names, "--ignore-not-found")
        cluster.clients.run("delete", "configmap", f"{self.name}-status", *where)
        cluster.clients.run("delete", "lease", self.name, *where)


def status(cluster: RealCluster, name: str) -> Object:
    """Return what a controller says of itself in its ConfigMap; what is empty is not in it, but for `devices`.

    Raises Failed as long as it says nothing.
    """
    found = cluster.clients.find("configmap", f"{name}-status", "--namespace", cluster.settings.namespace)
    if found is None:
        raise Failed(f"no ConfigMap {name}-status")
    read: Object = json.loads(found["data"]["status.json"])
    return {"devices": [], **read}


@contextmanager
def controller(driver: Outside, name: str, policy: Mapping[str, Any], folder: Path) -> Iterator[Controller]:
    """Run a controller that leads; everything is taken back in the end."""
    running = Controller(driver, name, policy, folder)
    with ExitStack() as ending:
        ending.callback(running.clear)
        ending.callback(running.end)
        ending.callback(show, running.log)
        running.start()
        driver.cluster.wait_for(f"the status of {name}", running.status)
        yield running


# ------------------------------------------------------------------------------------------------------ what is evicted


def template(name: str, driver: str, *tolerations: Object, index: int | None = None) -> Object:
    """Return a template for claims of one device of a class that is named like its driver, of that index if given."""
    wanted = [] if index is None else [{"cel": {"expression": f"device.attributes['{driver}'].index == {index}"}}]
    exactly = {"deviceClassName": driver, "tolerations": list(tolerations), "selectors": wanted}
    spec = {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def pod_spec(template_name: str, node: str) -> Object:
    """Return what a Pod does: sleep, with a claim that is made for it."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "exec sleep 1000000"],
        "resources": {"claims": [{"name": "devices"}]},
    }
    return {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": template_name}],
        "containers": [container],
    }


def template_pod(name: str, template_name: str, node: str) -> Object:
    """Return a Pod that nobody replaces, with a claim that is made for it."""
    spec = {**pod_spec(template_name, node), "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, template_name: str, node: str) -> Object:
    """Return a Deployment of one Pod with a claim that is made for it."""
    labels = {"app": name}
    made = {"metadata": {"labels": labels}, "spec": pod_spec(template_name, node)}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": made}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Using:
    """A Pod, its claim, and the device that this was given."""

    pod: Object
    device: str
    claim: str

    @property
    def uid(self) -> str:
        """The Pod's UID."""
        return str(self.pod["metadata"]["uid"])


def using(space: Space, pod: Object) -> Using:
    """Return a Pod with the device of its only claim. Raises Failed while it does not run, or has none (any more)."""
    running = pod["status"].get("phase") == "Running" and all(
        entry["ready"] for entry in pod["status"]["containerStatuses"]
    )
    claims = [entry.get("resourceClaimName") for entry in pod["status"].get("resourceClaimStatuses") or ()]
    named = [entry["resourceClaimName"] for entry in pod["spec"]["resourceClaims"] if "resourceClaimName" in entry]
    (name, *_) = [*named, *filter(None, claims), ""]
    if not running or not name:
        raise Failed(f"Pod {pod['metadata']['name']}: {pod['status'].get('phase')}, {pod['status'].get('conditions')}")
    devices = [device for _, _, device in allocated(space.claim(name))]
    if not devices:
        raise Failed(f"claim {name} of Pod {pod['metadata']['name']} has no device")
    return Using(pod, devices[0], str(name))


def of_deployment(space: Space, name: str, besides: str = "") -> Using:
    """Return a Deployment's Pod, running; another one than that of the UID `besides`."""

    def there() -> Using:
        found = space.cluster.clients.items("pods", "--namespace", space.name, "--selector", f"app={name}")
        fresh = [pod for pod in found if pod["metadata"]["uid"] != besides]
        alive = [pod for pod in fresh if "deletionTimestamp" not in pod["metadata"]]
        if not alive:
            raise Failed(f"no other Pod of {name}")
        return using(space, alive[0])

    return space.cluster.wait_for(f"a Pod of Deployment {name} runs", there)


def of_pod(space: Space, name: str) -> Using:
    """Return a Pod, running."""
    return space.cluster.wait_for(f"Pod {name} runs", lambda: using(space, space.pod(name)))


def is_evicted(space: Space, used: Using) -> bool:
    """Tell whether a Pod is told to end, or gone already. Raises Failed with what is left otherwise."""
    meta = used.pod["metadata"]
    found = space.cluster.clients.find("pod", meta["name"], "--namespace", space.name)
    if found is None or found["metadata"]["uid"] != used.uid or "deletionTimestamp" in found["metadata"]:
        return True
    raise Failed(f"Pod {meta['name']} is there: {found['status'].get('conditions')}")


def wait_evicted(space: Space, used: Using) -> None:
    """Wait until a Pod is told to end. It ends later, and holds its device until then: see `Space.wait_free`."""
    space.cluster.wait_for(f"Pod {used.pod['metadata']['name']} is evicted", lambda: is_evicted(space, used))


def stays(space: Space, used: Using) -> bool:
    """Tell whether a Pod is what it was: the same, running, not about to be deleted."""
    found = space.cluster.clients.find("pod", used.pod["metadata"]["name"], "--namespace", space.name)
    meta = found["metadata"] if found else {}
    return bool(found) and meta.get("uid") == used.uid and "deletionTimestamp" not in meta
