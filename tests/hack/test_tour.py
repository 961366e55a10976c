"""The tour's own parts: what it reads, what it prints, how it ends; the whole of it is in tests/cluster."""

import io
import itertools
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from hack.tour import pods
from hack.tour.clients import CHECKOUT, Clients, Failed, Object, wait_for
from hack.tour.devices import allocated, attributes, rows, seen
from hack.tour.runner import Skipped, Step, run
from hack.tour.settings import BUSYBOX, VALUES, Settings, from_environment
from hack.tour.steps import expect

LOG = """DRASIM_GPU_0=GPU-1
DRASIM_GPU_0_NUMA_NODE=0
DRASIM_NIC_12=02:00:00:00:00:01
DRASIM_NIC_12_MODEL=some = model
gpu-0
nic-12
"""

SLICE: Object = {
    "spec": {
        "driver": "gpu.dra.example.com",
        "pool": {"name": "node1-gpu"},
        "devices": [
            {
                "name": "gpu-10",
                "attributes": {"model": {"string": "M"}, "resource.kubernetes.io/numaNode": {"int": 0}},
                "capacity": {"memory": {"value": "80Gi"}},
            },
            {"name": "gpu-2", "attributes": {"health": {"string": "Healthy"}}},
        ],
    }
}


def test_what_a_container_printed_is_read() -> None:
    """Devices are the variables that are named after one, settings and facts are not."""
    found = seen(LOG)
    assert found.devices == {"gpu-0": "GPU-1", "nic-12": "02:00:00:00:00:01"}
    assert found.nodes == ("gpu-0", "nic-12")
    assert found.variables["DRASIM_NIC_12_MODEL"] == "some = model"


def test_attributes_by_device() -> None:
    """An attribute is its value, and zero is one."""
    key = ("gpu.dra.example.com", "node1-gpu", "gpu-10")
    assert attributes([SLICE])[key]["resource.kubernetes.io/numaNode"] == 0


def test_rows_are_in_the_order_of_people() -> None:
    """Device 2 stands before device 10, and what a device lacks is empty."""
    table = rows([SLICE])
    assert [row[2] for row in table] == ["gpu-2", "gpu-10"]
    assert table[1][3:5] == ("80Gi", "0")
    assert table[0][3:5] == ("", "")


def test_allocated() -> None:
    """A claim's devices, none while it has no allocation."""
    result = {"driver": "d", "pool": "p", "device": "x", "request": "r"}
    assert allocated({"status": {"allocation": {"devices": {"results": [result]}}}}) == [("d", "p", "x")]
    assert allocated({"status": {}}) == []


def test_waiting_ends_with_the_condition() -> None:
    """The first true result counts, whatever came before."""
    counter = itertools.count()
    assert wait_for("a third look", lambda: next(counter) >= 2, within=5) is True


def test_waiting_in_vain_says_why() -> None:
    """The error has what was expected and what was missing last."""

    def never() -> bool:
        raise Failed("phase Pending")

    with pytest.raises(Failed, match=r"expected within 0 s: Pod x is Running; seen: phase Pending"):
        wait_for("Pod x is Running", never, within=0)


def test_a_manifest_with_other_words() -> None:
    """The tour can put another image and other words into an example, and says what to type for that."""
    other = {"one-device": "mine"}
    text = pods.manifest("one-device", "localhost/busybox:test", other)
    assert [document["metadata"]["name"] for document in yaml.safe_load_all(text)] == ["mine", "mine"]
    assert "image: localhost/busybox:test" in text
    clients = Clients(("hack/kubectl",), (), {})
    assert pods.typed(clients, "numa-pair", BUSYBOX, "n") == (
        "hack/kubectl apply --namespace n --filename examples/numa-pair.yaml"
    )
    line = pods.typed(clients, "one-device", "localhost/busybox:test", "n", other)
    script, piped = re.fullmatch(r"sed '(.+)' (examples/one-device\.yaml) \| hack/kubectl apply .+ -", line).groups()  # type: ignore[union-attr]  # or the test fails
    done = subprocess.run(["sed", script, CHECKOUT / piped], capture_output=True, text=True, check=True)
    assert done.stdout == text


def settings(folder: Path, script: str = "echo '{\"items\": []}'") -> Settings:
    """Return settings whose kubectl is a script."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{script}\n")
    kubectl.chmod(0o755)
    return Settings(Clients((str(kubectl),), ("false",), os.environ), "image:1", "build", look="look", stop="stop it")


def toured(given: Settings, *steps: Step) -> tuple[int, list[str]]:
    """Run some steps and return the exit code and the lines that were printed."""
    out = io.StringIO()
    code = run(steps, given, Console(file=out, width=100))
    return code, out.getvalue().splitlines()


def skip() -> None:
    raise Skipped("the server lacks it")


def fail() -> None:
    raise Failed("expected 1; seen: 2")


def test_a_tour_that_passes(tmp_path: Path) -> None:
    """Skipped steps say why and are not counted; the last line has the figures, before it how to go on."""
    code, lines = toured(settings(tmp_path), Step("one", lambda: None), Step("two", skip))
    assert code == 0
    assert lines[-1].startswith("demo: 1 steps passed in ")
    assert "   skipped: the server lacks it" in lines
    assert {"  look around:  look", "  stop it:      stop it"} <= set(lines)


def test_a_tour_that_fails(tmp_path: Path) -> None:
    """The step, what was expected, the events and the logs are shown; the steps after it are not run."""
    script = 'case "$*" in "get events"*) echo FailedMount ;; *) echo \'{"items": []}\' ;; esac'
    code, lines = toured(settings(tmp_path, script), Step("one", fail), Step("two", skip))
    assert code == 1
    assert lines[-1] == "demo: step 1 failed: one"
    assert "   failed: expected 1; seen: 2" in lines
    assert "     FailedMount" in lines
    assert not any("lacks it" in line for line in lines)


def test_a_failure_is_shown_as_it_is(tmp_path: Path) -> None:
    """What kubectl says may have brackets, which mean nothing to whoever prints it."""

    def refused() -> None:
        raise Failed("no [red] in [/apis/x]")

    _, lines = toured(settings(tmp_path), Step("one", refused))
    assert "   failed: no [red] in [/apis/x]" in lines


def test_a_tour_that_fails_without_an_api_server(tmp_path: Path) -> None:
    """When there are no events to be had, the report says that instead."""
    code, lines = toured(settings(tmp_path, "echo refused >&2; exit 1"), Step("one", fail))
    assert code == 1
    assert any("refused" in line for line in lines)


def test_kubectl_speaks_json_and_errors(tmp_path: Path) -> None:
    """Answers are read as JSON, nothing is None, and a failure has what kubectl said."""
    clients = settings(tmp_path).clients
    assert clients.items("pods") == []
    assert settings(tmp_path, "true").clients.find("pod", "x") is None
    with pytest.raises(Failed, match="no such thing"):
        settings(tmp_path, "echo no such thing >&2; exit 1").clients.run("get", "x")


def test_settings_come_from_the_environment() -> None:
    """What hack/provider writes is what the tour reads."""
    given = {"KUBECTL": "kubectl --context kind-x", "IMAGE": "r/drasim:1", "STOP": "s", "VALUES": "a.yaml b.yaml"}
    found = from_environment(given)
    assert found.clients.kubectl == ("kubectl", "--context", "kind-x")
    assert (found.image, found.build, found.stop, found.values) == (
        "r/drasim:1",
        "r/drasim:1",
        "s",
        (VALUES, "a.yaml", "b.yaml"),
    )


def test_expect() -> None:
    """What was seen stands in the message."""
    expect(True, "anything", "anything")
    with pytest.raises(Failed, match="expected two GPUs; seen: gpu-0"):
        expect(False, "two GPUs", ["gpu-0"])
