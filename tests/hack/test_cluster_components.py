"""Command lines of the components and the order in which they start."""

import dataclasses
from pathlib import Path

from hack.cluster.components import Layout, plan
from hack.cluster.folders import State
from hack.cluster.gates import Choice
from hack.cluster.plan import Plan
from hack.cluster.settings import parse

BINARIES = {name: Path("/c") / name for name in ("kube", "etcd", "containerd", "runc", "cni", "helm", "images")}
LAYOUT = Layout(State("t", Path("/s/t")), BINARIES, Choice({"GenericWorkload": True}, ("x/v1",)), parse([]), 2)


def lines(layout: Layout) -> dict[str, tuple[str, ...]]:
    return {part.identity: part.argv for part in plan(layout).components}


def test_every_node_has_its_own_components() -> None:
    """A cluster of two nodes has one control plane and two of what runs on nodes."""
    control = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    assert list(lines(LAYOUT)) == [*control, "containerd-1", "kubelet-1", "containerd-2", "kubelet-2"]


def test_components_wait_for_components_that_exist() -> None:
    """Nothing waits for something that is never started."""
    parts = plan(LAYOUT).components
    assert {name for part in parts for name in part.after} <= {part.identity for part in parts}


def test_gates_reach_the_control_plane() -> None:
    """API server, controllers and scheduler get the gates as a flag; the API server serves the chosen versions."""
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert "--feature-gates=GenericWorkload=true" in lines(LAYOUT)[name]
    assert "--runtime-config=x/v1=true" in lines(LAYOUT)["kube-apiserver"]


def test_stock_passes_no_gate() -> None:
    """Without a choice no component gets a gate, so that the defaults of the release hold."""
    stock = dataclasses.replace(LAYOUT, gates=Choice({}, ()))
    assert not [
        word for argv in lines(stock).values() for word in argv if "feature-gates" in word or "runtime-c" in word
    ]


def test_flags_of_the_user_win() -> None:
    """A flag that is set by the user replaces ours and reaches every node."""
    layout = dataclasses.replace(LAYOUT, settings=parse(["kube-apiserver.authorization-mode=RBAC", "kubelet.--v=5"]))
    assert [word for word in lines(layout)["kube-apiserver"] if "authorization-mode" in word] == [
        "--authorization-mode=RBAC"
    ]
    assert all("--v=5" in lines(layout)[name] for name in ("kubelet-1", "kubelet-2"))


def test_plan_survives_its_file() -> None:
    """What the launcher writes is what the first process of the box reads."""
    made = plan(LAYOUT)
    assert Plan.load(made.dump()) == made
