"""The chart's admission policies and rights, on the real cluster."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from hack.tour import chart
from hack.tour.clients import Failed, Object
from tests.cluster.real import RealCluster

GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
API_VERSION = "dra.example.com/v1alpha1"


@pytest.fixture(scope="module")
def namespace(real_cluster: RealCluster) -> Iterator[str]:
    """A namespace for claims that nobody uses."""
    with real_cluster.namespace("chart") as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def in_force(real_cluster: RealCluster) -> None:
    """Wait for the admission policies: a server follows them a moment after they were stored."""
    fault = {"apiVersion": API_VERSION, "kind": "DeviceFault", "metadata": {"name": "in-force"}}
    spec = {"node": "node1", "device": "gpu-99", "kind": "lost", "after": "24h"}
    parameters = objects(config(GPU, powerLimit=300))["ResourceClaim"]
    account = f"system:serviceaccount:{real_cluster.settings.namespace}:drasim"
    real_cluster.clients.apply(json.dumps({**fault, "spec": spec}), "default")
    told = ["apply", "--server-side", "--force-conflicts", "--subresource=status"]
    tries = {
        "parameters": (["create", "--namespace", "default"], parameters),
        "slices": (["create", "--as", account], slice_of("node1", GPU, "in-force")),
        "faults": ([*told, "--as", account], {**fault, "status": {"reason": "said by the test"}}),
    }
    for name, (words, manifest) in tries.items():
        real_cluster.wait_for(f"the policy for {name} is in force", partial(refused, real_cluster, words, manifest))
    real_cluster.clients.run("delete", "devicefault", "in-force")


def refused(cluster: RealCluster, words: list[str], manifest: Object) -> bool:
    """Tell whether an admission policy is against an object, which is not kept."""
    try:
        cluster.clients.run(*words, "--dry-run=server", "--filename", "-", given=json.dumps(manifest))
    except Failed as failed:
        if "ValidatingAdmissionPolicy" not in str(failed):
            raise
        return True
    return False


def slice_of(node: str | None, driver: str, name: str) -> Object:
    """Return a ResourceSlice without devices."""
    where = {"nodeName": node} if node else {"allNodes": True}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": [], **where}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def create_as(cluster: RealCluster, token: str, manifest: Object) -> str:
    """Try to create an object with a token instead of the administrator's certificate; it is not kept."""
    return run_as(cluster, token, "create", "--dry-run=server", "--filename", "-", given=json.dumps(manifest))


def run_as(cluster: RealCluster, token: str, *words: str, given: str | None = None) -> str:
    """Run kubectl with a token instead of the administrator's certificate."""
    view = ["config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"]
    server = cluster.clients.run(*view)
    who = ["--server", server, "--insecure-skip-tls-verify", "--token", token, "--kubeconfig", "/dev/null"]
    return cluster.clients.run(*words, *who, given=given)


def token_of(cluster: RealCluster, pod: Object) -> str:
    """Return the token of a driver's Pod, bound to it and so to its node, as the kubelet would have it."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    bound = ["--bound-object-kind", "Pod", "--bound-object-name", name]
    account = pod["spec"]["serviceAccountName"]
    return cluster.clients.run("create", "token", account, "--namespace", namespace, *bound).strip()


def test_a_driver_writes_slices_of_its_own_node_only(real_cluster: RealCluster) -> None:
    """Node A's token is refused for a slice of node B, of all nodes, of another driver; its own passes."""
    mine, other = real_cluster.nodes
    token = token_of(real_cluster, real_cluster.driver_pod(mine))
    with pytest.raises(Failed, match=f'belongs to node "{other}", but the caller runs on node "{mine}"'):
        create_as(real_cluster, token, slice_of(other, GPU, "policy-other-node"))
    with pytest.raises(Failed, match="belongs to no node"):
        create_as(real_cluster, token, slice_of(None, GPU, "policy-all-nodes"))
    with pytest.raises(Failed, match='driver "foreign\\.example\\.com" is not one'):
        create_as(real_cluster, token, slice_of(mine, "foreign.example.com", "policy-foreign"))
    assert "created" in create_as(real_cluster, token, slice_of(mine, NIC, "policy-own"))


def test_a_token_without_a_node_writes_no_slice(real_cluster: RealCluster) -> None:
    """A token of the service account that was made by hand names no node."""
    account = real_cluster.driver_pod("node1")["spec"]["serviceAccountName"]
    token = real_cluster.clients.run("create", "token", account, "--namespace", real_cluster.settings.namespace).strip()
    with pytest.raises(Failed, match="only with the token of a Pod"):
        create_as(real_cluster, token, slice_of("node1", GPU, "policy-no-node"))


def test_a_driver_tells_of_faults_of_its_own_node_only(real_cluster: RealCluster) -> None:
    """Node A's token is refused for the status of a fault of node B; the fault's own node may write it."""
    mine, other = real_cluster.nodes
    fault = {"apiVersion": API_VERSION, "kind": "DeviceFault", "metadata": {"name": "policy"}}
    spec = {"node": other, "device": "gpu-99", "kind": "lost", "after": "24h"}
    real_cluster.clients.apply(json.dumps({**fault, "spec": spec}), "default")
    status = json.dumps({**fault, "status": {"reason": "said by the test"}})
    words = ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--filename", "-"]
    try:
        with pytest.raises(Failed, match=f'is for node "{other}", but the caller runs on node "{mine}"'):
            run_as(real_cluster, token_of(real_cluster, real_cluster.driver_pod(mine)), *words, given=status)
        own = token_of(real_cluster, real_cluster.driver_pod(other))
        assert "serverside-applied" in run_as(real_cluster, own, *words, given=status)
    finally:
        real_cluster.clients.run("delete", "devicefault", "policy")


def config(driver: str, **parameters: object) -> Object:
    """Return a configuration for one driver."""
    kind = "GpuConfig" if driver == GPU else "NicConfig"
    return {"opaque": {"driver": driver, "parameters": {"apiVersion": API_VERSION, "kind": kind, **parameters}}}


def objects(entry: Object) -> dict[str, Object]:
    """Return a claim, a template and a class with one configuration, without names."""
    request = {"name": "one", "exactly": {"deviceClassName": entry["opaque"]["driver"]}}
    claim = {"devices": {"requests": [request], "config": [entry]}}
    specs = {"ResourceClaim": claim, "ResourceClaimTemplate": {"spec": claim}, "DeviceClass": {"config": [entry]}}
    meta = {"generateName": "policy-"}
    return {
        kind: {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}
        for kind, spec in specs.items()
    }


def create(cluster: RealCluster, namespace: str, *manifests: Object) -> str:
    """Ask the server to create objects, without keeping them."""
    words = ["create", "--namespace", namespace, "--dry-run=server", "--filename", "-"]
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    return cluster.clients.run(*words, given=json.dumps(listed))


BAD = [
    (config(GPU, powerLimit=300), "powerLimit: unknown key; allowed: apiVersion, kind, computeMode, powerLimitWatts"),
    (config(GPU, powerLimitWatts=99), "powerLimitWatts: must be a whole number from 100 to 700"),
    (config(GPU, powerLimitWatts="300"), "powerLimitWatts: must be a whole number"),
    (config(GPU, computeMode="Shared"), "computeMode: must be Default or ExclusiveProcess"),
    (config(NIC, mtu=1500.5), "mtu: must be a whole number from 1280 to 9216"),
    (config(NIC, interfaceName="Eth0"), "interfaceName: must be 1 to 15 characters"),
    (config(NIC, kind="GpuConfig"), "kind: must be NicConfig"),
    (config(GPU, apiVersion="dra.example.com/v9"), "apiVersion: must be dra.example.com/v1alpha1"),
]


@pytest.mark.parametrize(
    ("entry", "message"), BAD, ids=lambda value: value.split(":")[0] if isinstance(value, str) else ""
)
def test_bad_parameters_are_refused_at_admission(
    real_cluster: RealCluster, namespace: str, entry: Object, message: str
) -> None:
    """An unknown key, a wrong type or an impossible value is refused in claims, templates and classes, by name."""
    with pytest.raises(Failed) as refused:
        create(real_cluster, namespace, *objects(entry).values())
    said = str(refused.value).split("Error from server")[1:]
    assert len(said) == len(objects(entry))
    for words, plural in zip(said, ("resourceclaims", "resourceclaimtemplates", "deviceclasses"), strict=True):
        assert f"parameters for {entry['opaque']['driver']}: {message}" in words
        assert f"{plural}.resource.k8s.io" in words


def test_good_and_foreign_parameters_pass(real_cluster: RealCluster, namespace: str) -> None:
    """What the drivers understand passes, and so does what is meant for somebody else's driver."""
    foreign: Object = {"opaque": {"driver": "else.example.com", "parameters": {"whatever": True}}}
    good = [
        config(GPU, powerLimitWatts=100, computeMode="Default"),
        config(NIC, mtu=9216, interfaceName="a-0"),
        config(GPU),
    ]
    manifests = [manifest for entry in [*good, foreign] for manifest in objects(entry).values()]
    assert create(real_cluster, namespace, *manifests).count("created") == len(manifests)


def test_the_driver_has_no_more_rights_than_it_needs(real_cluster: RealCluster) -> None:
    """The service account may do what the driver does, and none of what would be comfortable."""
    may = [
        "create resourceslices.resource.k8s.io",
        "watch resourceslices.resource.k8s.io",
        "get resourceclaims.resource.k8s.io",
        "get nodes",
        "create events.events.k8s.io",
        "watch devicefaults.dra.example.com",
        "list pods",
    ]
    may_not = [
        "list resourceclaims.resource.k8s.io",
        "update resourceclaims.resource.k8s.io",
        "list nodes",
        "get secrets",
        "get pods",
        "delete pods",
        "create devicefaults.dra.example.com",
        "create devicetaintrules.resource.k8s.io",
    ]
    check_rights(real_cluster, "drasim", may, may_not)


def check_rights(cluster: RealCluster, account: str, may: list[str], may_not: list[str]) -> None:
    """A service account may do the former in all namespaces, such as `get nodes`, and none of the latter."""
    namespace = cluster.settings.namespace
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    who = {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}
    meta = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    reviews = []
    for what in may + may_not:
        verb, _, resource = what.partition(" ")
        plural, _, group = resource.partition(".")
        asked = {"verb": verb, "resource": plural, "group": group}
        reviews.append({**meta, "spec": {**who, "resourceAttributes": asked}})
    listed = {"apiVersion": "v1", "kind": "List", "items": reviews}
    words = ["create", "--filename", "-", "--output", "jsonpath={.status.allowed} "]
    answers = cluster.clients.run(*words, given=json.dumps(listed)).split()
    given = dict(zip(may + may_not, answers, strict=True))
    assert given == dict.fromkeys(may, "true") | dict.fromkeys(may_not, "false")


def test_the_controller_has_no_more_rights_than_it_needs(real_cluster: RealCluster) -> None:
    """It may keep rules and read what they follow from; it may not touch Pods, claims, slices or anything secret."""
    may = [
        "create devicetaintrules.resource.k8s.io",
        "watch resourceslices.resource.k8s.io",
        "watch resourceclaims.resource.k8s.io",
        "watch nodes",
        "list pods",
    ]
    may_not = [
        "delete pods",
        "update resourceclaims.resource.k8s.io",
        "update resourceslices.resource.k8s.io",
        "get secrets",
        "create devicefaults.dra.example.com",
    ]
    check_rights(real_cluster, "drasim-controller", may, may_not)


def test_the_pod_is_as_harmless_as_the_chart_says(real_cluster: RealCluster) -> None:
    """Root without a single capability, seccomp on, nothing to write but the host's folders."""
    pod = real_cluster.driver_pod("node1")["metadata"]["name"]
    where = ["--namespace", real_cluster.settings.namespace, pod]
    lines = real_cluster.clients.run("exec", *where, "--", "cat", "/proc/1/status").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    shown = {key: int(status[key], 16) for key in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")}
    assert shown == {"CapEff": 0, "CapPrm": 0, "CapBnd": 0, "NoNewPrivs": 1, "Seccomp": 2}
    with pytest.raises(Failed, match="Read-only file system"):
        real_cluster.clients.run("exec", *where, "--", "touch", "/opt/x")
    count = len(real_cluster.nodes)
    daemonset = chart.daemonset
    real_cluster.wait_for("ready", lambda: daemonset(real_cluster.settings)["status"]["numberReady"] == count)
