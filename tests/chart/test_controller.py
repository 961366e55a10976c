"""What the chart makes of the controller, and of faults."""

import json
from pathlib import Path

import pytest
import yaml

from drasim.config import Config, decode_file, for_controller
from tests.chart.conftest import Object, Render, of, rights

NAME = "drasim-controller"


def deployment(objects: list[Object]) -> Object:
    """Return the controller's Deployment."""
    found: Object = of(objects, "Deployment")[0]
    return found


def pod(objects: list[Object]) -> Object:
    """Return the spec of its Pods."""
    found: Object = deployment(objects)["spec"]["template"]["spec"]
    return found


def file_of(objects: list[Object]) -> Object:
    """Return the configuration that the processes read."""
    [text] = [found["data"]["config.yaml"] for found in of(objects, "ConfigMap") if "data" in found]
    read: Object = yaml.safe_load(text)
    return read


def test_what_it_writes_into_goes_with_the_chart(render: Render) -> None:
    """Lease and status belong to the release, empty, under the names that the controller's role allows."""
    objects = render()
    [status], [lease] = of(objects, "ConfigMap", f"{NAME}-status"), of(objects, "Lease", NAME)
    assert not {"data", "spec"} & (status.keys() | lease.keys())
    assert {found["metadata"]["namespace"] for found in (status, lease)} == {"drasim-system"}
    assert not of(render("controller.enabled=false"), "Lease")


def test_it_runs_as_nobody(render: Render) -> None:
    """Not root, without capabilities, on a read-only root, with nothing of the host."""
    found = pod(render())
    assert found["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert found["containers"][0]["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [list(volume) for volume in found["volumes"]] == [["name", "configMap"]]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(found)


def test_two_of_them_on_different_nodes(render: Render) -> None:
    """Two replicas that avoid each other, where there are nodes enough; a drain takes one at a time."""
    objects = render()
    assert deployment(objects)["spec"]["replicas"] == 2
    [term] = pod(objects)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    selector = deployment(objects)["spec"]["selector"]
    assert term["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    [budget] = of(objects, "PodDisruptionBudget")
    assert (budget["spec"]["selector"], budget["spec"]["maxUnavailable"]) == (selector, 1)


def test_neither_selects_the_others_pods(render: Render) -> None:
    """The DaemonSet's selector does not match the controller's Pods, nor the other way round."""
    objects = render()
    both = [of(objects, "DaemonSet")[0], deployment(objects)]
    matches = [
        chosen["spec"]["selector"]["matchLabels"].items() <= made["spec"]["template"]["metadata"]["labels"].items()
        for chosen in both
        for made in both
    ]
    assert matches == [True, False, False, True]


def test_the_controllers_rights(render: Render) -> None:
    """All of them: in the cluster, and in its own namespace for the Lease and its status."""
    assert rights(render(), "ClusterRole", NAME) == {
        ("resource.k8s.io", "resourceslices", "resourceclaims"): ["get", "list", "watch"],
        ("", "nodes"): ["get", "list", "watch"],
        ("resource.k8s.io", "devicetaintrules"): ["get", "list", "watch", "create", "update", "delete"],
        ("", "pods"): ["list"],
        ("dra.example.com", "devicefaults"): ["get", "list", "watch"],
        ("dra.example.com", "devicefaults/status"): ["patch"],
        ("events.k8s.io", "events"): ["create", "patch"],
        ("rbac.authorization.k8s.io", "clusterroles", NAME): ["get"],
    }
    assert rights(render(), "Role", NAME) == {
        ("coordination.k8s.io", "leases"): ["create"],
        ("coordination.k8s.io", "leases", NAME): ["get", "update"],
        ("", "configmaps"): ["create"],
        ("", "configmaps", f"{NAME}-status"): ["patch"],
    }


def test_rights_are_bound_to_the_account_of_its_pods(render: Render) -> None:
    """Both bindings are for the service account that the Pods run as, and that the chart makes."""
    objects = render('controller.serviceAccount.name="keeper"')
    subject = {"kind": "ServiceAccount", "name": "keeper", "namespace": "drasim-system"}
    bindings = [*of(objects, "ClusterRoleBinding", NAME), *of(objects, "RoleBinding", NAME)]
    assert [binding["subjects"] for binding in bindings] == [[subject], [subject]]
    assert pod(objects)["serviceAccountName"] == "keeper"
    assert of(objects, "ServiceAccount", "keeper") != []


def test_names_follow_the_release(render: Render) -> None:
    """The configuration has the names of the release: of Lease and namespace, and of the ClusterRole owning rules."""
    objects = render('fullnameOverride="acme"', "config.controller.dryRun=true")
    assert file_of(objects)["controller"] == {
        "name": "acme-controller",
        "namespace": "drasim-system",
        "owner": "acme-controller",
        "dryRun": True,
        "onNamedClaim": "hold",
    }
    assert of(objects, "ClusterRole", "acme-controller") != []


def test_a_long_name_is_cut_short(render: Render) -> None:
    """The longest name of a release leaves one that the controller's configuration takes."""
    objects = render(f'fullnameOverride="{"a" * 52}"')
    assert file_of(objects)["controller"]["name"] == f"{'a' * 44}-controller"


def test_without_rights_of_the_chart_nothing_owns_the_rules(render: Render) -> None:
    """Where somebody else makes the roles there is no ClusterRole whose name the chart knows."""
    objects = render("rbac.create=false")
    assert file_of(objects)["controller"]["owner"] == ""
    assert not {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"} & {found["kind"] for found in objects}


def test_the_controller_takes_the_configuration(render: Render, tmp_path: Path) -> None:
    """The rendered file is one that `drasim controller` accepts, policy included."""
    policy = [{"problem": "lost", "after": "5s"}, {"problem": "xid", "codes": ["79"], "driver": "gpu.dra.example.com"}]
    file = tmp_path / "config.yaml"
    values = [f"config.controller.evict={json.dumps(policy)}", 'config.controller.budget={"perNode": 1}']
    file.write_text(yaml.safe_dump(file_of(render(*values))))
    config = for_controller(decode_file(file, Config))
    assert [(entry.problem, float(entry.after)) for entry in config.controller.evict] == [("lost", 5.0), ("xid", 0.0)]
    assert (config.controller.budget.per_node, config.controller.namespace) == (1, "drasim-system")


def test_its_policy_renews_only_its_own_pods(render: Render) -> None:
    """Another policy is another Pod of the controller; the drivers on the nodes go on."""
    before, after = render(), render("config.controller.dryRun=true")
    changed = [
        a["spec"]["template"] != b["spec"]["template"]
        for kind in ("DaemonSet", "Deployment")
        for a, b in zip(of(before, kind), of(after, kind), strict=True)
    ]
    assert changed == [False, True]


def test_probes_follow_the_address(render: Render) -> None:
    """Readiness and liveness go to the configured port; without an address there are none."""
    with_port = pod(render('config.probes.address=":9090"'))["containers"][0]
    assert [port["containerPort"] for port in with_port["ports"]] == [9090]
    assert with_port["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert not {"ports", "readinessProbe", "livenessProbe"} & set(
        pod(render('config.probes.address=""'))["containers"][0]
    )


def test_without_the_controller_nothing_of_it_is_left(render: Render) -> None:
    """`controller.enabled: false` leaves no Deployment, account, right or budget, and the drivers as they are."""
    objects = render("controller.enabled=false")
    assert [found["kind"] for found in objects if NAME in found["metadata"]["name"]] == []
    assert of(objects, "DaemonSet") == of(render(), "DaemonSet")


def test_a_node_speaks_for_its_own_faults(render: Render) -> None:
    """The status of a DeviceFault is for its node's driver: the policy compares the node with the caller's token."""
    [policy] = of(render(), "ValidatingAdmissionPolicy", "drasim-faults")
    assert policy["spec"]["matchConstraints"]["resourceRules"] == [
        {
            "apiGroups": ["dra.example.com"],
            "apiVersions": ["v1alpha1"],
            "operations": ["UPDATE"],
            "resources": ["devicefaults/status"],
        }
    ]
    account = "system:serviceaccount:drasim-system:drasim"
    [condition] = policy["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    assert [rule["expression"] for rule in policy["spec"]["validations"]] == [
        "variables.caller != ''",
        "object.spec.node == variables.caller",
    ]
    assert of(render("admissionPolicies.faults=false"), "ValidatingAdmissionPolicy", "drasim-faults") == []


def test_the_accounts_name_is_needed(render: Render) -> None:
    """An account that somebody else makes has to be named."""
    assert pod(render('controller.serviceAccount={"create": false, "name": "mine"}'))["serviceAccountName"] == "mine"
    with pytest.raises(AssertionError, match=r"controller\.serviceAccount\.name is needed"):
        render("controller.serviceAccount.create=false")
