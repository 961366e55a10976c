"""What the chart makes of its values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_plugin.errors import ClaimError
from drasim import opaque
from drasim.config import ConfigError, ProblemsConfig, for_controller, load, schema
from drasim.config.problems import PROBLEM_KINDS
from drasim.hardware import Kind
from drasim.profiles import shipped
from tests.chart.conftest import CHART, Helm, Object, Render, of, rights


def pod(objects: list[Object]) -> Object:
    found: Object = of(objects, "DaemonSet")[0]["spec"]["template"]["spec"]
    return found


def host_paths(objects: list[Object]) -> dict[str, str]:
    return {v["name"]: v["hostPath"]["path"] for v in pod(objects)["volumes"] if "hostPath" in v}


def test_lint(helm: Helm) -> None:
    """Helm finds nothing to complain about, warnings included."""
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pod_can_do_next_to_nothing(render: Render) -> None:
    """Root without capabilities, not privileged, read-only root, seccomp; no host namespace."""
    found = pod(render())
    security = found["containers"][0]["securityContext"]
    assert security == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert found["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(found)


def test_host_paths_follow_the_kubelet_root(render: Render) -> None:
    """The Pod sees the host's folders at their own places, wherever the kubelet has them."""
    objects = render('config.paths.kubelet="/data/kubelet"', 'config.paths.cdi="/etc/cdi"')
    expected = {"registry": "/data/kubelet/plugins_registry", "plugins": "/data/kubelet/plugins", "cdi": "/etc/cdi"}
    assert host_paths(objects) == expected
    mounts = {m["name"]: m["mountPath"] for m in pod(objects)["containers"][0]["volumeMounts"]}
    assert {name: mounts[name] for name in expected} == expected


def test_a_state_folder_of_its_own_is_mounted(render: Render) -> None:
    """A state folder outside the plugins becomes a mount of its own."""
    assert host_paths(render('config.paths.state="/var/lib/machine"'))["state"] == "/var/lib/machine"


def test_the_configuration_reaches_the_driver(render: Render) -> None:
    """The value `config` is the file, and another one gives other Pods."""
    before, after = render(), render('config.log.level="debug"')
    maps = [of(objects, "ConfigMap", "drasim")[0] for objects in (before, after)]
    files = [yaml.safe_load(found["data"]["config.yaml"]) for found in maps]
    assert [file["log"]["level"] for file in files] == ["info", "debug"]
    checksums = [of(o, "DaemonSet")[0]["spec"]["template"]["metadata"]["annotations"] for o in (before, after)]
    assert checksums[0]["checksum/config"] != checksums[1]["checksum/config"]
    assert pod(before)["containers"][0]["args"] == ["node", "--config", "/etc/drasim/config.yaml"]


def test_own_profiles_are_files(render: Render) -> None:
    """A profile in the values is mounted where the configuration can name it."""
    objects = render('profiles={"big": {"gpus": 300}}', 'config.simulation.profile="/etc/drasim/profiles/big.yaml"')
    volume = next(v for v in pod(objects)["volumes"] if v["name"] == "config")
    assert {"key": "profile-big.yaml", "path": "profiles/big.yaml"} in volume["configMap"]["items"]
    assert yaml.safe_load(of(objects, "ConfigMap", "drasim")[0]["data"]["profile-big.yaml"]) == {"gpus": 300}


def test_probes_follow_the_address(render: Render) -> None:
    """The probes' port is the configured one; without an address there are none."""
    with_port = pod(render('config.probes.address="[::]:9090"'))["containers"][0]
    assert [port["containerPort"] for port in with_port["ports"]] == [9090]
    assert not {"ports", "readinessProbe", "livenessProbe"} & set(
        pod(render('config.probes.address=""'))["containers"][0]
    )


@pytest.mark.parametrize(
    ("drain", "grace"), [("20", 30), ('"20s"', 30), ('"2m"', 130), ('"1.5s"', 12), ('"500ms"', 11)]
)
def test_the_grace_period_is_longer_than_the_drain(render: Render, drain: str, grace: int) -> None:
    """The kubelet waits ten seconds longer than the driver does for its calls."""
    assert pod(render(f"config.drain={drain}"))["terminationGracePeriodSeconds"] == grace


def test_rolling_updates_surge(render: Render) -> None:
    """The new Pod comes before the old one goes."""
    strategy = of(render(), "DaemonSet")[0]["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_rights(render: Render) -> None:
    """The driver's rights, all of them."""
    assert rights(render(), "ClusterRole", "drasim") == {
        ("resource.k8s.io", "resourceslices"): ["get", "list", "watch", "create", "update", "delete"],
        ("resource.k8s.io", "resourceclaims"): ["get"],
        ("", "nodes"): ["get"],
        ("dra.example.com", "devicefaults"): ["get", "list", "watch"],
        ("dra.example.com", "devicefaults/status"): ["patch"],
        ("", "pods"): ["list"],
        ("events.k8s.io", "events"): ["create", "patch"],
    }


def test_names_are_configurable(render: Render) -> None:
    """Drivers, classes, resource and objects can have other names, and everything agrees on them."""
    objects = render('config.gpu.driver="gpu.acme.io"', 'deviceClasses.gpu.name="acme-gpu"', 'fullnameOverride="acme"')
    classes = {c["metadata"]["name"]: c["spec"] for c in of(objects, "DeviceClass")}
    assert classes["acme-gpu"]["selectors"][0]["cel"]["expression"] == "device.driver == 'gpu.acme.io'"
    assert classes["acme-gpu"]["extendedResourceName"] == "dra.example.com/gpu"
    policies = {p["metadata"]["name"]: json.dumps(p) for p in of(objects, "ValidatingAdmissionPolicy")}
    assert set(policies) == {"acme-slices", "acme-faults", "acme-parameters-gpu", "acme-parameters-nic"}
    assert "gpu.acme.io" in policies["acme-slices"]
    assert "gpu.dra.example.com" not in json.dumps(objects)


def test_a_driver_that_is_off_leaves_nothing(render: Render) -> None:
    """Without the NIC driver there is no class and no policy for it."""
    objects = render('config.nic.hardware="off"')
    assert [c["metadata"]["name"] for c in of(objects, "DeviceClass")] == ["gpu.dra.example.com"]
    assert "nic.dra.example.com" not in json.dumps([o for o in objects if o["kind"] != "ConfigMap"])


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("images=1", "images"),
        ("config.gpu.drver=1", "drver"),
        ('config.gpu.hardware="nvml"', "hardware"),
        ('config.gpu.driver="UPPER"', "driver"),
        ('config.drain="soon"', "drain"),
        ('config.simulation.profile="smal"', "does not match pattern '^(small|dgx|/.+)$'"),
        ('config.paths.kubelet="relative"', "kubelet"),
        ('image.pullPolicy="Sometimes"', "pullPolicy"),
        ('config.nic.driver="gpu.dra.example.com"', "must differ"),
        ('config.problems.effects={"lost": "NoExecute"}', "effects"),
        ('config.problems.effects={"lost 1": "None"}', "effects"),
        ('config.controller.evict=[{"problem": "losst"}]', "problem"),
        ('config.controller.evict=[{"problem": "lost", "afer": 1}]', "afer"),
        ("config.controller.evict=[]", "evict"),
        ('config.controller.budget.perNode="0%"', "perNode"),
        ("config.controller.budget.perCluster=-1", "perCluster"),
        ('config.controller.onNamedClaim="never"', "onNamedClaim"),
        ('config.controller.owner="mine"', "owner"),
        ("controller.replicas=0", "replicas"),
    ],
)
def test_bad_values_are_refused(helm: Helm, value: str, complaint: str) -> None:
    """A key that does not exist, a wrong type or an impossible value stops the installation and is named."""
    done = helm("template", "drasim", str(CHART), "--set-json", value)
    assert done.returncode != 0
    assert complaint in done.stderr


POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"controller": {"evict": [{"problem": "lost", "driver": "gpu.example.com"}]}}, "controller.evict[0].driver"),
    ({"controller": {"evict": [{"problem": "xid", "driver": "nic.dra.example.com"}]}}, "controller.evict[0].driver"),
    ({"controller": {"evict": [{"problem": "lost", "codes": ["79"]}]}}, "controller.evict[0].codes[0]"),
    ({"controller": {"evict": [{"problem": "xid", "codes": ["79", "1000"]}]}}, "controller.evict[0].codes[1]"),
    ({"controller": {"evict": [{"problem": "xid", "codes": ["x79"]}]}}, "controller.evict[0].codes[0]"),
    ({"controller": {"evict": [{"problem": "xid", "codes": ["13"]}]}}, "controller.evict[0].codes[0]"),
    ({"controller": {"evict": [{"problem": "lost"}, {"problem": "thermal"}]}}, "controller.evict[1].problem"),
    ({"controller": {"evict": [{"problem": "lost"}, {"problem": "lost"}]}}, "controller.evict[1].problem"),
    (
        {"controller": {"evict": [{"problem": "lost"}, {"problem": "lost", "driver": "gpu.dra.example.com"}]}},
        "controller.evict[1].problem",
    ),
    (
        {"controller": {"evict": [{"problem": "xid", "codes": ["79", "48"]}, {"problem": "xid", "codes": ["48"]}]}},
        "controller.evict[1].problem",
    ),
    (
        {"gpu": {"hardware": "off"}, "controller": {"evict": [{"problem": "xid"}]}},
        "controller.evict[0].driver",
    ),
    (
        {"problems": {"effects": {"lost": "None"}}, "controller": {"evict": [{"problem": "lost"}]}},
        "controller.evict[0].problem",
    ),
    ({"controller": {"evict": [{"problem": "lost", "after": "25h"}]}}, "controller.evict[0].after"),
    ({"controller": {"goneAfter": "0s"}}, "controller.goneAfter"),
    ({"problems": {"clearAfter": 86401}}, "problems.clearAfter"),
    ({"drain": 100000000}, "drain"),
    ({"periods": {"look": "0s"}}, "periods.look"),
    ({"periods": {"look": "25h"}}, "periods.look"),
    # These are fine: nothing of them is in vain.
    ({"controller": {"evict": [{"problem": "lost", "after": 0, "recoverAfter": "0s"}]}}, ""),
    ({"controller": {"evict": [{"problem": "xid", "codes": ["79"]}, {"problem": "xid"}]}}, ""),
    ({"controller": {"evict": [{"problem": "lost", "driver": "gpu.dra.example.com"}, {"problem": "lost"}]}}, ""),
    ({"controller": {"evict": [{"problem": "down", "codes": ["pci0000-15"]}]}}, ""),
    (
        {
            "problems": {"effects": {"thermal": "NoSchedule", "xid/13": "NoSchedule"}},
            "controller": {"evict": [{"problem": "thermal"}, {"problem": "xid", "codes": ["13"]}]},
        },
        "",
    ),
    (
        {
            "problems": {"effects": {"crc-errors": "None", "xid": "None", "xid/79": "NoSchedule"}},
            "controller": {"evict": [{"problem": "xid"}]},
        },
        "",
    ),
    ({"nic": {"hardware": "off"}}, ""),
    ({"drain": "1440m", "controller": {"goneAfter": "24h"}, "problems": {"silentAfter": "1ms"}}, ""),
]


@pytest.mark.parametrize(("config", "field"), POLICIES, ids=str)
def test_a_policy_in_vain_is_refused(helm: Helm, tmp_path: Path, config: dict[str, Any], field: str) -> None:
    """The chart refuses what the controller would refuse, names the same field, and takes everything else."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"config": config}))
    done = helm("template", "drasim", str(CHART), "--kube-version", "1.37.2", "--values", str(file))
    named = re.search(r"config[.]([\w.\[\]]+): ", done.stderr)
    assert (done.returncode != 0, named[1] if named else "") == (bool(field), field), done.stderr
    file.write_text(yaml.safe_dump(config))
    assert refused_field(file) == field


def refused_field(file: Path) -> str:
    """Return the field for which the controller refuses the configuration; empty when it takes it."""
    try:
        for_controller(load(file, {"controller.namespace": "n"}))
    except ConfigError as error:
        return error.key
    return ""


def test_the_tables_of_the_policy_are_the_codes(helm: Helm) -> None:
    """Each problem alone is taken or refused as its effect says: the chart knows the same kinds and effects."""
    for problem in PROBLEM_KINDS:
        evict = json.dumps([{"problem": problem}])
        done = helm("template", "drasim", str(CHART), "--set-json", f"config.controller.evict={evict}")
        some = problem == "xid" or ProblemsConfig().effect(problem, "") == "NoSchedule"
        assert (done.returncode == 0) == some, (problem, done.stderr)
    for key, effect in ProblemsConfig().effects.items():
        problem, _, code = key.partition("/")
        evict = json.dumps([{"problem": problem, "codes": [code]}])
        if code:
            done = helm("template", "drasim", str(CHART), "--set-json", f"config.controller.evict={evict}")
            assert ("only informs" in done.stderr) == (effect == "None"), key


def test_an_old_server_is_refused(helm: Helm) -> None:
    """Kubernetes 1.33 has no resource.k8s.io/v1; 1.34 does."""
    answers = [helm("template", "drasim", str(CHART), "--kube-version", v).returncode for v in ("1.33.9", "1.34.0")]
    assert answers == [1, 0]


def closed(node: object, place: str = "") -> list[str]:
    """Return the places of a JSON schema where an object with known keys allows others."""
    found: list[str] = []
    if isinstance(node, dict):
        if "properties" in node and node.get("additionalProperties") is not False:
            found.append(place)
        for key, value in node.items():
            found += closed(value, f"{place}/{key}")
    return found


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    """No object of known keys in the values takes others."""
    assert closed(json.loads((CHART / "values.schema.json").read_text())) == []


def keys(node: Object, definitions: Object) -> Object:
    """Return the nested keys of a JSON schema; those of a list are its entries' keys."""
    if "$ref" in node:
        return keys(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "items" in node:
        return keys(node["items"], definitions)
    members = node.get("properties", {})
    return {name: keys(member, definitions) for name, member in members.items()}


def test_the_schema_knows_the_drivers_configuration() -> None:
    """`config` has the driver's own keys, but for those that the chart gives."""
    ours = json.loads((CHART / "values.schema.json").read_text())
    theirs = schema()
    wanted = keys(theirs, theirs["$defs"])
    for given in ("nodeName", "podUID", "kubeconfig"):
        del wanted[given]
    for given in ("name", "namespace", "owner"):
        del wanted["controller"][given]
    assert keys(ours["properties"]["config"], ours["$defs"]) == wanted


def test_the_schema_knows_the_profiles() -> None:
    """A machine that is not shipped needs a path, else no node would start."""
    ours = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]["simulation"]
    pattern = re.compile(ours["properties"]["profile"]["pattern"])
    taken = [name for name in (*shipped(), "/etc/drasim/profiles/big.yaml", "huge", "") if pattern.search(name)]
    assert taken == [*shipped(), "/etc/drasim/profiles/big.yaml"]


def test_a_section_without_keys_is_the_default(render: Render) -> None:
    """Values in which only the heading of a section is left: Helm takes that for no section at all."""
    assert of(render("config.controller=null", "config.problems=null"), "Deployment")


def test_the_schema_knows_the_problems() -> None:
    """The values can name each problem of devices, and no other."""
    ours = json.loads((CHART / "values.schema.json").read_text())
    assert ours["$defs"]["problem"]["enum"] == list(PROBLEM_KINDS)
    effects = ours["properties"]["config"]["properties"]["problems"]["properties"]["effects"]
    theirs = schema()["$defs"]["ProblemsConfig"]["properties"]["effects"]
    assert effects["patternProperties"] == {theirs["propertyNames"]["pattern"]: theirs["additionalProperties"]}


GOOD: dict[str, dict[str, list[object]]] = {
    "gpu": {"powerLimitWatts": [100, 700], "computeMode": ["Default", "ExclusiveProcess"]},
    "nic": {"mtu": [1280, 9216], "interfaceName": ["a", "rdma-0", "a" * 15]},
}
BAD: dict[str, dict[str, list[object]]] = {
    "gpu": {"powerLimitWatts": [99, 701, "300", 1.5, True], "computeMode": ["Shared", 1]},
    "nic": {"mtu": [1279, 9217, "1500"], "interfaceName": ["", "A", "a" * 16, "a_b", 3]},
}


@pytest.mark.parametrize("kind", ["gpu", "nic"])
def test_the_policy_and_the_driver_have_the_same_rules(render: Render, kind: Kind) -> None:
    """The keys in the policy are those the driver decodes, and the limits in its message are the driver's."""
    policies = {p["metadata"]["name"]: p for p in of(render(), "ValidatingAdmissionPolicy")}
    text = json.dumps(policies[f"drasim-parameters-{kind}"])
    named = re.search(r"allowed: apiVersion, kind, ([\w, ]+)", text)
    assert named is not None
    assert sorted(named[1].split(", ")) == sorted(GOOD[kind])
    meta = {"apiVersion": opaque.API_VERSION, "kind": f"{kind.title()}Config"}
    for key, values in GOOD[kind].items():
        for value in values:
            opaque.settings_for(kind, [{**meta, key: value}])
            assert str(value) in text or isinstance(value, str)
    for key, values in BAD[kind].items():
        for value in values:
            with pytest.raises(ClaimError, match=key):
                opaque.settings_for(kind, [{**meta, key: value}])
