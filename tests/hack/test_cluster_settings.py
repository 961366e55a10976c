"""`--set COMPONENT.key=value`: flags and fields of configuration files."""

from pathlib import Path

import pytest

from hack.cluster import manifests
from hack.cluster.errors import UsageError
from hack.cluster.folders import State
from hack.cluster.settings import parse, with_fields
from hack.cluster.topology import Node

STATE = State("t", Path("/s/t"))


def test_keys_are_fields_or_flags() -> None:
    """A key is a field where the component reads a file, else a flag; two dashes always make a flag."""
    settings = parse(["kubelet.syncFrequency=5s", "kubelet.--v=4", "kube-apiserver.v=2", "etcd.--max-txn-ops=9"])
    assert (settings["kubelet"].fields, settings["kubelet"].flags) == ({"syncFrequency": "5s"}, {"v": "4"})
    assert settings["kube-apiserver"].flags == {"v": "2"}
    assert settings["etcd"].flags == {"max-txn-ops": "9"}


def test_values_are_json_where_possible() -> None:
    """Numbers, truth values and objects keep their type; durations and names are text."""
    settings = parse(["kubelet.maxPods=5", "kubelet.failSwapOn=true", 'kubelet.evictionHard={"a": "1Mi"}'])
    assert settings["kubelet"].fields == {"maxPods": 5, "failSwapOn": True, "evictionHard": {"a": "1Mi"}}


@pytest.mark.parametrize("word", ["kubelet", "kubelet.x", "kubelet=1", "kubelet.=1", "kubeletx.y=1"])
def test_malformed_settings_are_refused(word: str) -> None:
    """A setting that names no component, key or value is refused."""
    with pytest.raises(UsageError, match=word):
        parse([word])


def test_fields_are_set_by_path() -> None:
    """A dotted path sets one field and leaves its neighbours."""
    before = {"a": {"b": 1, "c": 2}}
    assert with_fields(before, {"a.b": 3, "d.e": 4}) == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}
    assert before == {"a": {"b": 1, "c": 2}}


def test_path_through_a_value_is_refused() -> None:
    """A path that goes through something that is no object is an error, not a silent overwrite."""
    with pytest.raises(UsageError, match="syncFrequency is no object"):
        with_fields({"syncFrequency": "10s"}, {"syncFrequency.x": 1})


def test_scheduler_plugins_get_arguments() -> None:
    """`plugin.NAME.FIELD` becomes an argument of that plugin; other fields stay fields."""
    config = manifests.scheduler(STATE, {"plugin.DynamicResources.filterTimeout": "3s", "parallelism": 4})
    plugin = {"name": "DynamicResources", "args": {"filterTimeout": "3s"}}
    assert config["profiles"][0]["pluginConfig"] == [plugin]
    assert config["parallelism"] == 4


def test_kubelet_keeps_to_its_own_groups() -> None:
    """The kubelet's groups lie below the cluster's, and nothing lets it move processes of the machine."""
    config = manifests.kubelet(STATE, Node(2), {"PodsAPI": True}, {"syncFrequency": "1s"})
    assert config["cgroupRoot"] == "/kcbox-t/n2"
    assert config["failCgroupV1"] is False
    assert not {"systemCgroups", "kubeletCgroups", "runtimeCgroups"} & set(config)
    assert (config["featureGates"], config["syncFrequency"]) == ({"PodsAPI": True}, "1s")
