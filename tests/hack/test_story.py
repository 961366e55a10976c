"""The second part of the tour: what it reads, how it watches, when it is skipped; all of it is in tests/cluster."""

import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from drasim.faults.manifests import parse_manifests
from hack.tour import chart
from hack.tour.clients import Clients, Failed, Object
from hack.tour.devices import Key
from hack.tour.health import (
    device_of,
    fault,
    free,
    health,
    hits,
    runs,
    seconds,
    taints,
    told,
    told_to_end,
    unschedulable,
)
from hack.tour.runner import run
from hack.tour.settings import Settings
from hack.tour.steps import Tour
from hack.tour.story import Story
from hack.tour.watching import READ, Change, Watch, watching

GPU = "gpu.dra.example.com"
SICK: Key = (GPU, "node1-gpu", "gpu-0")
TAINT = {"key": f"{GPU}/lost", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
SLICE: Object = {
    "spec": {
        "driver": GPU,
        "nodeName": "node1",
        "pool": {"name": "node1-gpu"},
        "devices": [
            {"name": "gpu-0", "attributes": {"health": {"string": "Unhealthy"}}, "taints": [TAINT]},
            {"name": "gpu-1", "attributes": {"health": {"string": "Healthy"}}},
            {"name": "gpu-2", "attributes": {"health": {"string": "Healthy"}}},
        ],
    }
}


def pod(name: str, **status: object) -> Object:
    return {"metadata": {"name": name}, "status": status}


def test_a_device_in_a_slice() -> None:
    """Taints and health are read of the device meant, and of no other pool's."""
    device = device_of(SLICE, SICK)
    assert device is not None
    assert (health(device), taints(device)) == ("Unhealthy", {f"{GPU}/lost": "NoSchedule"})
    assert device_of(SLICE, (GPU, "node2-gpu", "gpu-0")) is None


def test_free_devices_are_sound_and_unclaimed() -> None:
    """A device that is tainted or allocated is not free."""
    result = {"driver": GPU, "pool": "node1-gpu", "device": "gpu-1"}
    claims: list[Object] = [{"status": {"allocation": {"devices": {"results": [result]}}}}, {"metadata": {}}]
    assert free([SLICE], claims, GPU) == [("node1", (GPU, "node1-gpu", "gpu-2"))]


def test_a_rule_for_one_device() -> None:
    """A rule for a pool or for everything is not about one device."""
    selectors = [dict(zip(("driver", "pool", "device"), SICK[:count], strict=False)) for count in (3, 2, 0)]
    assert [hits({"spec": {"deviceSelector": selector}}, SICK) for selector in selectors] == [True, False, False]


def test_what_a_pod_says() -> None:
    """Its devices' health, why it is not scheduled, and whether it runs."""
    entries = [{"name": "claim:gpu", "resources": [{"resourceID": "x", "health": "Unhealthy", "message": "lost"}]}]
    running = {"state": {"running": {}}, "allocatedResourcesStatus": entries}
    assert told(pod("p", containerStatuses=[running])) == [("Unhealthy", "lost")]
    assert (runs(pod("p", containerStatuses=[running])), runs(pod("p"))) == (True, False)
    condition = {"type": "PodScheduled", "status": "False", "message": "cannot allocate all claims"}
    assert unschedulable(pod("p", conditions=[condition])) == "cannot allocate all claims"
    assert unschedulable(pod("p", conditions=[{**condition, "status": "True"}])) == ""


def test_the_faults_of_the_tour_are_faults() -> None:
    """What the tour applies is a DeviceFault as the driver reads it, with the label that finds it again."""
    [read] = parse_manifests(fault("tour-x", "node1", "gpu-0", "nvlink"), "tour", "2026-01-01T00:00:00Z")
    assert (read.metadata.name, read.spec.node, read.spec.device, read.spec.kind) == (
        "tour-x",
        "node1",
        "gpu-0",
        "nvlink",
    )
    assert read.metadata.labels == {"app.kubernetes.io/part-of": "drasim-tour"}


def event(what: str, name: str, **status: object) -> str:
    return json.dumps({"type": what, "object": pod(name, **status)})


BEGUN = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"annotations": {READ: "true"}}}})


def test_a_watch_finds_the_first_change() -> None:
    """The first wanted change counts, also when it came before anybody asked."""
    watch = Watch("pods")
    watch.read([event("ADDED", "a"), BEGUN, event("MODIFIED", "a", phase="Running"), event("DELETED", "a")])
    first = watch.first("a", lambda change: change.name == "a")
    assert (first.what, first.there) == ("ADDED", True)
    running = watch.first("a runs", lambda change: change.object["status"].get("phase") == "Running")
    assert running.what == "MODIFIED"
    assert running.at >= first.at


def test_a_watch_waits() -> None:
    """A change that comes while somebody waits for it ends the waiting."""
    watch, asked = Watch("pods"), threading.Event()

    def lines() -> Iterator[str]:
        yield BEGUN
        asked.wait(10)
        yield event("DELETED", "a")

    reader = threading.Thread(target=watch.read, args=[lines()])
    reader.start()
    watch.begun()

    def gone(change: Change) -> bool:
        return not change.there

    asked.set()
    assert watch.first("a to go", gone, within=10).what == "DELETED"
    reader.join()


def test_a_watch_that_ends_says_so() -> None:
    """Whoever waits for something is told what was expected, and that nothing more will come."""
    watch = Watch("pods")
    watch.read([event("ADDED", "a")])
    with pytest.raises(Failed, match="it did not begin"):
        watch.begun()
    with pytest.raises(Failed, match=r"expected within 60 s: b; the watch ended before that \(pods\)"):
        watch.first("b", lambda change: change.name == "b")


def test_a_watch_whose_client_is_ended_has_ended() -> None:
    """The last line may be half of one."""
    watch = Watch("pods")
    watch.read([BEGUN, event("ADDED", "a"), event("ADDED", "b")[:20]])
    assert watch.first("a", lambda change: change.there).name == "a"
    with pytest.raises(Failed, match="the watch ended before that"):
        watch.first("b", lambda change: change.name == "b")


def test_a_watch_in_vain_says_what_came_last() -> None:
    """The error has the last change that was seen."""
    watch = Watch("pods")
    reading, done = threading.Event(), threading.Event()

    def lines() -> Iterator[str]:
        yield event("ADDED", "a")
        reading.set()
        done.wait(10)

    reader = threading.Thread(target=watch.read, args=[lines()])
    reader.start()
    reading.wait(10)
    with pytest.raises(Failed, match=r"expected within 0 s: b; seen last: ADDED a"):
        watch.first("b", lambda change: change.name == "b", within=0)
    done.set()
    reader.join()


def kubectl(folder: Path, script: str) -> Settings:
    """Return settings whose kubectl is a script."""
    path = folder / "kubectl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Settings(Clients((str(path),), ("false",), os.environ), "image:1", "build")


def test_watches_are_kubectl_and_end_with_the_context(tmp_path: Path) -> None:
    """Each resource is watched by a kubectl of its own, which is gone afterwards."""
    script = f"""echo $$ >>{tmp_path}/pids
cat <<'END'
{event("ADDED", "a")}
{BEGUN}
END
exec sleep 60"""
    paths = {"pods": "/api/v1/pods", "rules": "/apis/resource.k8s.io/v1/devicetaintrules"}
    with watching(kubectl(tmp_path, script).clients, paths) as seen:
        assert [watch.first("a", lambda change: change.there).name for watch in seen.values()] == ["a", "a"]
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_watch_that_is_refused_says_why(tmp_path: Path) -> None:
    """What kubectl complains about is in the error."""
    clients = kubectl(tmp_path, "echo no such path >&2; exit 1").clients
    with (
        pytest.raises(Failed, match="expected a watch of /x; it did not begin; kubectl says: no such path"),
        watching(clients, {"x": "/x"}),
    ):
        pass


def test_when_a_pod_was_told_to_end() -> None:
    """Its deletion is dated to the end of the time that it has left."""
    meta = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:31Z", "deletionGracePeriodSeconds": 30}
    assert told_to_end({"metadata": meta}) == seconds("2026-01-01T00:00:01Z")


def test_files_that_go_while_they_are_listed(tmp_path: Path) -> None:
    """A listing that breaks off, since a claim's file has just gone, is made again; one may be empty."""
    volumes = [{"name": name, "hostPath": {"path": f"/{name}"}} for name in ("cdi", "plugins")]
    sets = {"items": [{"spec": {"template": {"spec": {"volumes": volumes}}}}]}
    made = {"items": [{"metadata": {"name": "d-1"}, "spec": {"nodeName": "node1"}}]}
    script = f"""case "$*" in
"get daemonsets"*) echo '{json.dumps(sets)}' ;;
"get pods"*) echo '{json.dumps(made)}' ;;
*"find /cdi /plugins"*) cat {tmp_path}/files || {{ echo /cdi/a.json >{tmp_path}/files; exit 1; }} ;;
esac"""
    settings = kubectl(tmp_path, script)
    assert chart.files(settings) == ["node1:/cdi/a.json"]
    (tmp_path / "files").write_text("")
    assert chart.files(settings) == []


def answers(taints: str, resources: str) -> str:
    """Return a kubectl that has one version of the API, tries a slice, and lists nothing."""
    created = {"spec": {"devices": [{"name": "one", **json.loads(taints)}]}}
    return f"""case "$*" in
create*) cat >/dev/null; echo '{json.dumps(created)}' ;;
"get --raw /apis/resource.k8s.io") echo '{{"versions": [{{"groupVersion": "resource.k8s.io/v1"}}]}}' ;;
"get --raw"*) echo '{{"resources": [{resources}]}}' ;;
*) echo '{{"items": []}}' ;;
esac"""


def test_what_the_server_can(tmp_path: Path) -> None:
    """Whether it stores taints is tried, and where rules are served is asked."""
    able = kubectl(tmp_path, answers('{"taints": [{}]}', '{"name": "devicetaintrules"}'))
    assert chart.keeps_taints(able)
    assert chart.rules_path(able) == "/apis/resource.k8s.io/v1/devicetaintrules"


@pytest.mark.parametrize(
    ("taints", "reason"), [("{}", "drops taints of devices"), ('{"taints": [{}]}', "has no DeviceTaintRules")]
)
def test_a_server_that_cannot_is_not_asked_to(tmp_path: Path, taints: str, reason: str) -> None:
    """Without taints or rules all steps of the second part are skipped, and the reason is named."""
    settings = kubectl(tmp_path, answers(taints, '{"name": "resourceclaims"}'))
    out = io.StringIO()
    console = Console(file=out, width=200)
    steps = Story(Tour(settings, console)).steps()
    assert run(steps, settings, console) == 0
    assert len([line for line in out.getvalue().splitlines() if f"skipped: the server {reason}" in line]) == len(steps)


def test_one_line_is_yaml() -> None:
    """The manifest can be typed behind <<<: it is one line without a quote."""
    line = fault("tour-x", "node1", "gpu-0", "lost")
    assert "\n" not in line
    assert "'" not in line
    assert yaml.safe_load(line)["spec"] == {"node": "node1", "device": "gpu-0", "kind": "lost"}
