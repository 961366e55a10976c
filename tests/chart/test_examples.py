"""The examples: complete, accepted by an API server, and true to what their comments say."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_plugin.resources import DEVICE_TAINT_RULE, DeviceTaintRule, decode
from dra_plugin.testing import FakeCluster
from drasim.config.problems import PROBLEM_KINDS
from drasim.faults.manifests import read_manifests
from drasim.faults.scenario import load_scenario
from drasim.faults.timeline import Event, events_of
from drasim.hardware.simulated import Machine, load_profile, machine_of
from hack.tour import pods
from hack.tour.story import NO_UUID, TOLERATED
from tests.chart.conftest import Object

EXAMPLES = pods.EXAMPLES
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
RULES = [name for name in NAMES if name.startswith("taint-rule-")]


def documents(example: str) -> list[Object]:
    """Return the manifests of an example."""
    return list(yaml.safe_load_all((EXAMPLES / f"{example}.yaml").read_text()))


def workloads() -> list[tuple[str, Object]]:
    """Return the examples with Pods: the name, and the Pod's spec."""
    found = []
    for name in NAMES:
        for document in documents(name):
            if document.get("kind") in ("Pod", "Deployment"):
                spec = document["spec"]
                found.append((name, spec["template"]["spec"] if document["kind"] == "Deployment" else spec))
    return found


def machine() -> Machine:
    return machine_of(load_profile("dgx"), "node1")


def test_each_is_described() -> None:
    """The table of the examples has a row for each file, and no other."""
    rows = [line.split("`")[1] for line in (EXAMPLES / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert sorted(rows) == [f"{name}.yaml" for name in NAMES]


@pytest.mark.parametrize(("name", "spec"), workloads(), ids=lambda value: value if isinstance(value, str) else "")
def test_workloads_are_complete(name: str, spec: Object) -> None:
    """What runs is named after its file, every claim has its template there, and the tour can put another image in."""
    by_kind = {document["kind"]: document for document in documents(name)}
    assert {document["metadata"]["name"] for document in by_kind.values()} == {name}
    templates = [claim["resourceClaimTemplateName"] for claim in spec.get("resourceClaims", ())]
    assert templates == ([name] if "ResourceClaimTemplate" in by_kind else [])
    text = pods.manifest(name, "localhost/busybox:test")
    assert text.count("image: localhost/busybox:test") == len(spec["containers"])
    assert "busybox:1.37" not in text


def test_the_fault_is_one() -> None:
    """It is a DeviceFault as the driver reads it, for a device of the demo's machine."""
    [fault] = read_manifests(EXAMPLES / "device-fault.yaml")
    assert fault.spec.kind in PROBLEM_KINDS
    assert fault.spec.device in [f"gpu-{gpu.index}" for gpu in machine().gpus]


@pytest.mark.parametrize("name", RULES)
async def test_rules_are_taken_by_an_api_server(name: str) -> None:
    """Each effect has its rule, in the user's own domain, for devices of one pool."""
    [document] = documents(name)
    rule = await FakeCluster().create(DEVICE_TAINT_RULE, decode(json.dumps(document).encode(), DeviceTaintRule))
    assert rule.spec.taint.effect.lower() == name.removeprefix("taint-rule-")
    assert (rule.spec.taint.key, rule.metadata.name) == (
        "example.com/maintenance",
        name.replace("taint-rule", "maintenance"),
    )
    assert rule.spec.device_selector is not None
    assert rule.spec.device_selector.pool == "node1-gpu"


def test_there_is_a_rule_for_each_effect() -> None:
    """None, NoSchedule and NoExecute."""
    assert {documents(name)[0]["spec"]["taint"]["effect"] for name in RULES} == {"None", "NoSchedule", "NoExecute"}


def test_the_toleration_is_for_eviction_alone() -> None:
    """With an effect of its own: without one the scheduler would hand out the lost device again."""
    template = next(d for d in documents("toleration-seconds") if d["kind"] == "ResourceClaimTemplate")
    [request] = template["spec"]["spec"]["devices"]["requests"]
    [toleration] = request["exactly"]["tolerations"]
    domain, _, problem = toleration["key"].partition("/")
    assert (domain, toleration["effect"], toleration["operator"]) == ("gpu.dra.example.com", "NoExecute", "Exists")
    assert problem in PROBLEM_KINDS
    assert toleration["tolerationSeconds"] == TOLERATED


def test_the_uuid_can_be_replaced() -> None:
    """The example for one GPU has the UUID that the tour puts another one in for."""
    assert (EXAMPLES / "one-device.yaml").read_text().count(NO_UUID) == 1


def events() -> tuple[Event, ...]:
    """Return the time line of the scenario on the demo's machine."""
    file = EXAMPLES / "fault-scenario.yaml"
    return events_of(load_scenario(file), {"node1": machine()}, "node1", str(file), "fault-scenario")


def test_the_scenario_is_the_same_each_time() -> None:
    """All of it can be done on the demo's machine, it goes forward, repairs all that it breaks, and is repeatable."""
    first: tuple[Any, ...] = events()
    assert [event.at for event in first] == sorted(event.at for event in first)
    left = {event.name for event in first if event.action == "inject"}
    assert left == {event.name for event in first if event.action == "clear"}
    assert first == events()
    assert "seed" in Path(EXAMPLES / "fault-scenario.yaml").read_text()
