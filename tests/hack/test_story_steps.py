"""The steps of the tour's second part, each against a kubectl that answers as a cluster does in which all goes well."""

import io
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from hack.tour.clients import Clients, Failed, Object, wait_for
from hack.tour.devices import Key
from hack.tour.settings import Settings
from hack.tour.steps import Tour
from hack.tour.story import EVICTED, TOLERANT, Story
from hack.tour.watching import READ

GPU = "gpu.dra.example.com"
POOL = "node1-gpu"
PODS = "/api/v1/namespaces/drasim-tour/pods"
FAULTS = "/apis/dra.example.com/v1alpha1/devicefaults"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
BEGUN = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"annotations": {READ: "true"}}}})
SCRIPT = """#!{python} -IS
import json, pathlib, sys
words = " ".join(sys.argv[1:])
answers = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
with pathlib.Path(__file__).with_name("asked").open("a") as log:
    print(words, file=log)
found = [answer for start, answer in answers.items() if words.startswith(start)]
print(found[0] if found else sys.exit("no answer for " + words))
"""
RUNNING = {"name": "main", "state": {"running": {}}}
LOST = {"name": "claim:gpu", "resources": [{"resourceID": "x", "health": "Unhealthy", "message": "lost: it is gone"}]}


def pod(name: str, **more: object) -> Object:
    """Return a Pod of a Deployment, or of its own, that runs with the claim of its name."""
    status = {"phase": "Running", "containerStatuses": [RUNNING]}
    claim = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}
    labels = {"app": name.rpartition("-")[0]}
    meta = {"name": name, "namespace": "drasim-tour", "labels": labels, **more.pop("metadata", {})}  # type: ignore[dict-item]  # a mapping
    return {"metadata": meta, "spec": {"nodeName": "node1"}, "status": {**status, **claim, **more}}


def claim(name: str, device: str) -> Object:
    """Return a claim that has a device."""
    results = [{"driver": GPU, "pool": POOL, "device": device}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def gpus(**problems: str) -> Object:
    """Return the slice of eight GPUs, of which some have a problem: `gpu_0="lost"`."""
    devices = []
    for number in range(8):
        problem = problems.get(f"gpu_{number}")
        attributes = {"uuid": {"string": f"GPU-{number}"}, "health": {"string": "Unhealthy" if problem else "Healthy"}}
        taints = [{"key": f"{GPU}/{problem}", "effect": "NoSchedule"}] if problem else []
        devices.append({"name": f"gpu-{number}", "attributes": attributes, "taints": taints})
    spec = {"driver": GPU, "nodeName": "node1", "pool": {"name": POOL}, "devices": devices}
    return {"metadata": {"name": "slice"}, "spec": spec}


def fault(name: str, phase: str, reason: str = "") -> Object:
    return {"metadata": {"name": name}, "status": {"phase": phase, "reason": reason}}


def rule(device: str) -> Object:
    selector = {"driver": GPU, "pool": POOL, "device": device}
    taint = {"key": f"{GPU}/lost", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    spec = {"deviceSelector": selector, "taint": taint}
    return {"metadata": {"name": f"rule-{device}"}, "spec": spec}


def stream(*events: tuple[str, Object]) -> str:
    return "\n".join([BEGUN, *(json.dumps({"type": what, "object": entry}) for what, entry in events)])


def listed(*items: Object) -> str:
    return json.dumps({"items": list(items)})


class Stage:
    """A folder with that kubectl in it, and the story that is told with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, io.StringIO()
        for name in ("kubectl", "drasim"):
            (folder / name).write_text(SCRIPT.format(python=sys.executable))
            (folder / name).chmod(0o755)
        drasim = (str(folder / "drasim"),)
        clients = Clients((str(folder / "kubectl"),), (str(folder / "kubectl"),), os.environ, drasim)
        self.story = Story(Tour(Settings(clients, "image:1", "build"), Console(file=self.out, width=200)))

    def answer(self, answers: Mapping[str, str]) -> None:
        """Say what comes of commands, by how they begin; what always comes goes last."""
        group = json.dumps({"versions": [{"groupVersion": "resource.k8s.io/v1"}]})
        drivers = json.dumps({"config": {"gpu": {"driver": GPU, "hardware": "simulated"}, "nic": {"hardware": "off"}}})
        always = {
            f"get --raw {SLICES}": stream(),
            f"get --raw {RULES}": stream(),
            f"get --raw {PODS}": stream(),
            f"get --raw {FAULTS}": stream(),
            "get --raw /apis/resource.k8s.io/v1": json.dumps({"resources": [{"name": "devicetaintrules"}]}),
            "get --raw /apis/resource.k8s.io": group,
            "get pods --namespace drasim-system": listed(pod("driver-1")),
            "get values": drivers,
            "get resourceslices": listed(gpus()),
            "apply": "applied",
            "status": "NODE  DEVICE\nnode1 gpu-0",
        }
        given = {**answers, **{start: text for start, text in always.items() if start not in answers}}
        (self.folder / "answers.new").write_text(json.dumps(given))
        (self.folder / "answers.new").rename(self.folder / "answers.json")  # somebody may be reading the old ones

    @property
    def printed(self) -> str:
        return self.out.getvalue()

    @property
    def asked(self) -> str:
        return (self.folder / "asked").read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def key(device: str) -> Key:
    return (GPU, POOL, device)


def answers_of(name: str, after: str, device: str = "gpu-2") -> dict[str, str]:
    """Return what is asked about the newest Pod of a Deployment."""
    return {
        f"get pods --namespace drasim-tour --selector app={name}": listed(pod(after)),
        f"get pod {after}": json.dumps(pod(after)),
        f"get resourceclaim {after}": json.dumps(claim(after, device)),
    }


def test_the_deployments_are_learned(stage: Stage) -> None:
    """Each Deployment's Pod and device are remembered and said."""
    stage.answer({**answers_of(EVICTED, f"{EVICTED}-1", "gpu-0"), **answers_of(TOLERANT, f"{TOLERANT}-1", "gpu-1")})
    stage.story.started()
    assert {name: found[1] for name, found in stage.story.pods.items()} == {
        EVICTED: key("gpu-0"),
        TOLERANT: key("gpu-1"),
    }
    assert f"{TOLERANT}-1 runs on node1 with gpu-1" in stage.printed


def test_a_free_gpu_is_isolated(stage: Stage) -> None:
    """The last free GPU but one fails; the Pod that wants it waits, that with its neighbour runs."""
    unscheduled = [{"type": "PodScheduled", "status": "False", "message": "cannot allocate all claims"}]
    name = "tour-node1-gpu-6-nvlink"
    stage.answer(
        {
            "get resourceclaims --all-namespaces": listed(claim("a", "gpu-0")),
            f"get --raw {FAULTS}": stream(("ADDED", {"metadata": {"name": name}}), ("MODIFIED", fault(name, "Active"))),
            f"get --raw {SLICES}": stream(("ADDED", gpus()), ("MODIFIED", gpus(gpu_6="nvlink"))),
            f"get --raw {PODS}": stream(
                ("ADDED", pod("waits", containerStatuses=[], conditions=unscheduled)), ("ADDED", pod("beside"))
            ),
        }
    )
    stage.story.isolated()
    assert "slice: gpu-6 is Unhealthy, taint gpu.dra.example.com/nvlink:NoSchedule" in stage.printed
    assert "beside runs on node1 with gpu-7" in stage.printed
    assert "waits wants gpu-6 and waits: cannot allocate all claims" in stage.printed
    assert "s#one-device#waits#; s#GPU-00000000-0000-0000-0000-000000000000#GPU-6#" in stage.printed


def test_devices_that_recover_are_waited_for(stage: Stage) -> None:
    """GPUs that an earlier tour made fail may still be sick when this one wants them."""
    refused = stream(("ADDED", fault("tour-node1-gpu-6-nvlink", "Refused", "so far, so good")))
    well = {"get resourceclaims --all-namespaces": listed(), f"get --raw {FAULTS}": refused}
    sick = {f"gpu_{number}": "lost" for number in range(5)}
    stage.answer({**well, "get resourceslices": listed(gpus(**sick))})

    def recover() -> None:
        wait_for("three looks", lambda: (stage.folder / "asked").exists() and stage.asked.count("resourceslices") > 2)
        stage.answer(well)

    recovery = threading.Thread(target=recover)
    recovery.start()
    try:
        with pytest.raises(Failed, match="so far, so good"):
            stage.story.isolated()
    finally:
        recovery.join()


def test_the_pod_that_runs_is_learned(stage: Stage) -> None:
    """A Pod that its node refused stays, and is not the one."""
    rejected = pod(f"{EVICTED}-0", phase="Failed", containerStatuses=[])
    answers = answers_of(EVICTED, f"{EVICTED}-1", "gpu-0")
    which = f"get pods --namespace drasim-tour --selector app={EVICTED}"
    stage.answer({**answers, which: listed(rejected, pod(f"{EVICTED}-1")), **answers_of(TOLERANT, f"{TOLERANT}-1")})
    stage.story.started()
    assert f"{EVICTED}-1 runs on node1 with gpu-0" in stage.printed


def test_a_refused_fault_ends_the_story(stage: Stage) -> None:
    """What the driver says of it is the reason."""
    name = "tour-node1-gpu-6-nvlink"
    refused = stream(("ADDED", fault(name, "Refused", "hardware is off")))
    stage.answer({"get resourceclaims --all-namespaces": listed(), f"get --raw {FAULTS}": refused})
    with pytest.raises(Failed, match=f"{name} was refused: hardware is off"):
        stage.story.isolated()


def evicting(name: str, device: str) -> dict[str, str]:
    """Return what comes when the GPU of a Deployment's first Pod is lost."""
    wanted = f"tour-node1-{device}-lost"
    sick = pod(f"{name}-1", containerStatuses=[{**RUNNING, "allocatedResourcesStatus": [LOST]}])
    ending = pod(f"{name}-1", metadata={"deletionTimestamp": "2026-01-01T00:00:18Z", "deletionGracePeriodSeconds": 1})
    return {
        **answers_of(name, f"{name}-2"),
        f"get --raw {FAULTS}": stream(("ADDED", fault(wanted, "Active"))),
        f"get --raw {SLICES}": stream(("MODIFIED", gpus(**{device.replace("-", "_"): "lost"}))),
        f"get --raw {RULES}": stream(("ADDED", rule("gpu-5")), ("ADDED", rule(device))),
        f"get --raw {PODS}": stream(
            ("ADDED", pod(f"{name}-1")), ("MODIFIED", sick), ("MODIFIED", ending), ("ADDED", pod(f"{name}-2"))
        ),
        "get events": listed({"message": "gpu-1: lost: it is gone", "metadata": {"name": "e"}}),
    }


def test_a_pod_is_evicted(stage: Stage) -> None:
    """Taint, rule, eviction and the next Pod are said in this order, and the next Pod's GPU is another one."""
    stage.story.pods[EVICTED] = (pod(f"{EVICTED}-1"), key("gpu-0"))
    stage.answer(evicting(EVICTED, "gpu-0"))
    stage.story.evicted()
    said = [
        "DeviceFault tour-node1-gpu-0-lost is Active",
        "slice: gpu-0 is Unhealthy, taint gpu.dra.example.com/lost:NoSchedule",
        "rule rule-gpu-0: gpu.dra.example.com/lost:NoExecute",
        f"{EVICTED}-1 is evicted",
        f"{EVICTED}-2 runs",
        f"{EVICTED}-2 runs on node1 with gpu-2",
    ]
    places = [stage.printed.index(text) for text in said]
    assert places == sorted(places)
    assert "{node: node1, device: gpu-0, kind: lost}" in stage.printed


def test_a_replacement_on_a_sick_gpu_is_a_failure(stage: Stage) -> None:
    """The next Pod must not have got a GPU that was made to fail."""
    stage.story.pods[EVICTED] = (pod(f"{EVICTED}-1"), key("gpu-0"))
    stage.answer({**evicting(EVICTED, "gpu-0"), **answers_of(EVICTED, f"{EVICTED}-2", "gpu-0")})
    with pytest.raises(Failed, match="expected a sound GPU for it; seen: gpu-0"):
        stage.story.evicted()


def test_a_tolerating_pod_must_stay(stage: Stage) -> None:
    """What its status, its Event and `drasim status` say is shown; going at once is a failure."""
    watched = pod(f"{TOLERANT}-1", containerStatuses=[{**RUNNING, "allocatedResourcesStatus": [LOST]}])
    stage.story.pods[TOLERANT] = (watched, key("gpu-1"))
    stage.answer(evicting(TOLERANT, "gpu-1"))
    with pytest.raises(Failed, match="expected toleration-seconds-1 to stay for 20 s; seen: 17 s"):
        stage.story.tolerated()
    assert "the Pod's status: Unhealthy: lost: it is gone" in stage.printed
    assert "the Pod's Event DeviceUnhealthy: gpu-1: lost: it is gone" in stage.printed
    assert "   node1 gpu-0" in stage.printed


def test_all_is_lifted(stage: Stage) -> None:
    """Each GPU that failed gets well, the rules about them go, and the Pod that waited has one of them."""
    stage.story.sick.update({key("gpu-6"): "nvlink", key("gpu-0"): "lost"})
    stage.answer(
        {
            "get devicetaintrules": listed(rule("gpu-0"), rule("gpu-5")),
            "delete devicefaults.dra.example.com --selector app.kubernetes.io/part-of=drasim-tour": "deleted",
            f"get --raw {FAULTS}": stream(("ADDED", fault("tour", "Active")), ("DELETED", fault("tour", "Active"))),
            f"get --raw {SLICES}": stream(("ADDED", gpus(gpu_6="nvlink", gpu_0="lost")), ("MODIFIED", gpus())),
            f"get --raw {RULES}": stream(("ADDED", rule("gpu-0")), ("DELETED", rule("gpu-0"))),
            f"get --raw {PODS}": stream(("MODIFIED", pod("waits"))),
            "get resourceclaim waits": json.dumps(claim("waits", "gpu-6")),
        }
    )
    stage.story.repaired()
    assert "waits runs with gpu-6: the GPU is used again" in stage.printed
    assert "rule rule-gpu-0 is lifted" in stage.printed
    assert "rule-gpu-5" not in stage.printed
    assert "delete devicefaults.dra.example.com" in stage.asked
