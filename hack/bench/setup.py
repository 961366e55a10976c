"""What has to be there before anything is measured: identity, classes and claims."""

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.bench import objects
from hack.bench.api import NOT_FOUND, Api, ApiError, Object
from hack.bench.contestants import Contestant
from hack.bench.instance import wait_for
from hack.bench.load import Ref

ACCOUNT = "drivers"
SECRETS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WRITERS = 8
CONFLICT = 409
NOT_YET = (NOT_FOUND, 429)
"""What the server says of a new kind of objects until it serves them."""


@dataclass(frozen=True)
class Claims:
    """The claims of one contestant: plain ones, each with a device of its own, and some with parameters."""

    plain: Sequence[Ref]
    parameters: Sequence[Ref]


@contextmanager
def identity(api: Api) -> Iterator[dict[str, str]]:
    """Give drivers what they find in a Pod: a token and the CA in files, the address in the environment it yields."""
    _ensure(api, "/api/v1/namespaces", {"metadata": {"name": objects.NAMESPACE}})
    accounts = f"/api/v1/namespaces/{objects.NAMESPACE}/serviceaccounts"
    _ensure(api, accounts, {"metadata": {"name": ACCOUNT}})
    _ensure(api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _binding())
    token = api.request("POST", f"{accounts}/{ACCOUNT}/token", {"spec": {"expirationSeconds": 86400}})
    SECRETS.mkdir(parents=True, exist_ok=True)
    try:
        (SECRETS / "token").write_text(token["status"]["token"])
        (SECRETS / "ca.crt").write_bytes(api.server.authority)
        (SECRETS / "namespace").write_text(objects.NAMESPACE)
        yield {"KUBERNETES_SERVICE_HOST": api.server.host, "KUBERNETES_SERVICE_PORT": str(api.server.port)}
    finally:
        shutil.rmtree(SECRETS, ignore_errors=True)


def _binding() -> Object:
    return {
        "metadata": {"name": "bench-drivers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": objects.NAMESPACE}],
    }


def _ensure(api: Api, path: str, body: Object) -> None:
    try:
        api.request("POST", path, body)
    except ApiError as error:
        if error.status != CONFLICT:
            raise


def device_classes(api: Api, contestants: Sequence[Contestant]) -> None:
    """Create a DeviceClass for each contestant, of its name."""
    for contestant in contestants:
        _ensure(api, objects.CLASSES, objects.device_class(contestant.name, contestant.driver))


def make_claims(api: Api, contestant: Contestant, plain: int, parameters: int) -> Claims:
    """Create a contestant's claims, allocated by hand: the first N devices are those of the N with parameters too."""

    def one(number: int) -> Ref:
        body = objects.claim(f"{contestant.name}-{number}", contestant.name)
        return objects.make_claim(api, body, contestant.driver, contestant.pool, f"gpu-{number}")

    def one_with(number: int) -> Ref:
        body = objects.claim(f"{contestant.name}-p{number}", contestant.name)
        body = objects.with_parameters(body, contestant.driver)
        return objects.make_claim(api, body, contestant.driver, contestant.pool, f"gpu-{number}")

    with ThreadPoolExecutor(WRITERS) as pool:
        return Claims(list(pool.map(one, range(plain))), list(pool.map(one_with, range(parameters))))


def define(api: Api, definition: Path) -> None:
    """Let the API server know a kind of objects, if its definition is there, and wait until it does."""
    if definition.exists():
        _ensure(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json.loads(definition.read_text()))
        wait_for(lambda: _served(api, objects.FAULTS), "DeviceFaults are served")
        api.delete(objects.FAULTS)


def _served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.status not in NOT_YET:
            raise
        return False
    return True


def clear(api: Api) -> None:
    """Remove Pods and claims that an interrupted run left behind."""
    api.delete(objects.DEPLOYMENTS)
    api.delete(objects.PODS, gracePeriodSeconds="0")
    api.delete(objects.CLAIMS)
