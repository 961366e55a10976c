"""Choosing feature gates from what the binary says it has."""

import json

import pytest

from hack.cluster.errors import UsageError
from hack.cluster.gates import Catalog, choose


def row(name: str, stage: str = "ALPHA", *needs: str, on: bool = False, locked: bool = False) -> dict[str, object]:
    return {"name": name, "stage": stage, "default": on, "locked": locked, "needs": list(needs)}


CATALOG = Catalog.parse(
    json.dumps(
        {
            "gates": [
                row("AllAlpha"),
                row("DynamicResourceAllocation", "GA", on=True, locked=True),
                row("DRADeviceTaints", "GA", on=True),
                row("DRADeviceTaintRules", "GA", "DRADeviceTaints", on=True),
                row("DRAPoolStatus"),
                row("DRAPartitionTypes", "ALPHA", "DRAPartitions", "DRAPoolStatus"),
                row("DRAPartitions", "BETA", on=True),
                row("DRAOldThing", "DEPRECATED"),
                row("HPAScaleToZero", "BETA", on=True),
                row("TopologyAwareWorkloadScheduling", "ALPHA", "GenericWorkload"),
                row("GenericWorkload", "BETA"),
                row("MemoryQoS"),
            ],
            "apis": [
                {"version": "resource.k8s.io/v1", "default": True},
                {"version": "resource.k8s.io/v1alpha3", "default": False},
                {"version": "scheduling.k8s.io/v1beta1", "default": False},
                {"version": "storage.k8s.io/v1beta1", "default": False},
            ],
        }
    )
)


def test_stock_changes_nothing() -> None:
    """`stock` without wishes passes no gate and no API to the components."""
    choice = choose(CATALOG, "stock", [])
    assert (choice.flag, choice.runtime_config) == ("", "")


def test_all_takes_open_gates_of_our_subjects() -> None:
    """`all` switches on alpha and beta gates about devices, workloads and autoscaling, and no other."""
    assert set(choose(CATALOG, "all", []).gates) == {
        "DRAPoolStatus",
        "DRAPartitionTypes",
        "DRAPartitions",
        "HPAScaleToZero",
        "TopologyAwareWorkloadScheduling",
        "GenericWorkload",
    }


def test_all_serves_hidden_versions_of_our_groups() -> None:
    """`all` serves the API versions that are off by default, of our groups only."""
    choice = choose(CATALOG, "all", [])
    assert choice.runtime_config == "resource.k8s.io/v1alpha3=true,scheduling.k8s.io/v1beta1=true"


def test_unknown_gate_names_close_ones() -> None:
    """A misspelt gate is refused with the names it may have meant."""
    with pytest.raises(UsageError, match=r"no feature gate DRAPolStatus .*close: DRAPoolStatus"):
        choose(CATALOG, "stock", ["DRAPolStatus=true"])


def test_locked_gate_is_refused() -> None:
    """A gate that the components would refuse to change is refused before they start."""
    with pytest.raises(UsageError, match="locked to true"):
        choose(CATALOG, "stock", ["DynamicResourceAllocation=false"])


@pytest.mark.parametrize("word", ["DRAPartitions", "DRAPartitions=yes", "DRAPartitions="])
def test_gate_needs_a_value(word: str) -> None:
    """A gate without true or false is refused, as its sense would be a guess."""
    with pytest.raises(UsageError, match="NAME=true"):
        choose(CATALOG, "stock", [word])


def test_needed_gates_come_too() -> None:
    """Switching a gate on switches on what it needs, and says so."""
    choice = choose(CATALOG, "stock", ["DRAPartitionTypes=true"])
    assert choice.flag == "DRAPartitionTypes=true,DRAPoolStatus=true"
    assert choice.notes == ("DRAPoolStatus switched on too: DRAPartitionTypes needs it",)


def test_dependents_go_too() -> None:
    """Switching a gate off switches off what needs it, default or chosen."""
    choice = choose(CATALOG, "all", ["GenericWorkload=false,DRADeviceTaints=false"])
    off = {name for name, on in choice.gates.items() if not on}
    assert off == {"GenericWorkload", "TopologyAwareWorkloadScheduling", "DRADeviceTaints", "DRADeviceTaintRules"}


def test_contradicting_wishes_are_refused() -> None:
    """Two wishes of which one needs the opposite of the other are refused by name."""
    with pytest.raises(UsageError, match="TopologyAwareWorkloadScheduling needs GenericWorkload"):
        choose(CATALOG, "stock", ["TopologyAwareWorkloadScheduling=true", "GenericWorkload=false"])
