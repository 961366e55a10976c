"""`drasim status`: what is read of the API, once and whenever it changes, and how it is printed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest
import typer

from dra_plugin.errors import Retryable
from dra_plugin.latest import follow
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.cluster import Catalog, Resource
from drasim.cli.status.command import Asked, Form, Frame, Printer, fitted, frame_of, show_on, show_once
from drasim.cli.status.reading import Wanted, current, read
from drasim.cli.status.view import DeviceRow, Scope
from drasim.controller.status import STATUS_KEY, ControllerStatus, encode_status, status_name
from drasim.faults import DEVICE_FAULT

GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
AT = "2026-01-01T00:00:00Z"
WANTED = Wanted(drivers=(GPU, NIC), controller="drasim-controller")
SCOPE = Scope(drivers=(GPU, NIC))
TABLE = Asked(wanted=WANTED, scope=SCOPE)
JSON = Asked(wanted=WANTED, scope=SCOPE, form=Form.JSON)


def xid(code: str = "79") -> dict[str, str]:
    return {"key": f"{GPU}/xid", "value": code, "effect": "NoSchedule", "timeAdded": AT}


def a_slice(*taints: dict[str, str], node: str = "node-a", health: str = "Unhealthy") -> dict[str, Any]:
    """Return a slice with one device in use and one that is well."""
    sick = {"name": "gpu-3", "attributes": {"health": {"string": health}}, "taints": list(taints)}
    pool = {"name": f"{node}-gpu", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU, "nodeName": node, "pool": pool, "devices": [sick, {"name": "gpu-0"}]}
    metadata = {"name": f"{node}-slice"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def a_claim(*consumers: dict[str, str]) -> dict[str, Any]:
    """Return a claim that holds gpu-3."""
    result = {"request": "r", "driver": GPU, "pool": "node-a-gpu", "device": "gpu-3"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": list(consumers)}
    metadata = {"name": "train", "namespace": "ns"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {},
        "status": status,
    }


def a_rule(version: str = "v1") -> dict[str, Any]:
    taint = {"key": "example.com/drain", "effect": "NoExecute", "timeAdded": AT}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "drain-3"},
        "spec": {"deviceSelector": {"device": "gpu-3"}, "taint": taint},
    }


def a_config_map(text: str, namespace: str = "drasim") -> dict[str, Any]:
    metadata = {"name": status_name("drasim-controller"), "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {STATUS_KEY: text}}


def a_fault(node: str, device: str) -> dict[str, Any]:
    return {
        "apiVersion": "dra.example.com/v1alpha1",
        "kind": "DeviceFault",
        "metadata": {"name": f"{node}-{device}"},
        "spec": {"node": node, "device": device, "kind": "lost"},
        "status": {"phase": "Active", "devices": [device]},
    }


def a_pod(name: str, group: str) -> dict[str, Any]:
    spec = {"nodeName": "node-a", "schedulingGroup": {"podGroupName": group}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}


POD = {"resource": "pods", "name": "train-0", "uid": "p"}
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}


async def holding(*objects: dict[str, Any], catalog: Catalog | None = None) -> FakeCluster:
    """Return a cluster that holds these; without a ``catalog`` it has what the chart brings."""
    cluster = FakeCluster(catalog=catalog or Catalog(extra=(Resource.custom(DEVICE_FAULT, "spec.node"),)))
    for each in objects:
        await cluster.put_json(each)
    return cluster


async def row_of(cluster: FakeCluster) -> tuple[DeviceRow, Frame]:
    """Return the one device that is shown, and all else."""
    frame = frame_of(await read(cluster, WANTED), TABLE)
    (row,) = frame.devices
    return row, frame


# ---------------------------------------------------------------------------------------------------------------- once


async def test_everything_about_a_device_is_read() -> None:
    """Problem, rule, what the controller says, claim and Pod come from five kinds of objects."""
    status = ControllerStatus(rules_api="resource.k8s.io/v1", problems=("a b",))
    cluster = await holding(a_slice(xid()), a_claim(POD), a_rule(), a_config_map(encode_status(status)))
    row, frame = await row_of(cluster)
    assert (row.problems[0].code, row.rules[0].name, row.used_by[0].pods) == ("79", "drain-3", ("train-0",))
    assert (frame.others, frame.notes) == (1, ("controller: a b",))


async def test_the_pods_of_a_pod_group() -> None:
    """A claim may be reserved for a PodGroup; its Pods are those that name it."""
    pods = (a_pod("train-0", "gang"), a_pod("train-1", "gang"), a_pod("other", "band"))
    row, _ = await row_of(await holding(a_slice(xid()), a_claim(GROUP), *pods))
    assert row.used_by[0].pods == ("train-0", "train-1")


async def test_pods_are_read_for_pod_groups_only() -> None:
    """Nobody needs the right to list Pods, or pays for that, where claims name them."""
    cluster = await holding(a_slice(xid()), a_claim(POD))
    await read(cluster, WANTED)
    assert "pods" not in {each.plural for each in cluster.faults.requests}


async def test_the_status_that_was_written_last_counts() -> None:
    """A controller that moved to another namespace left its old words behind; unreadable ones are said."""
    texts = {
        "a": ControllerStatus(written="2026-01-01T00:00:00Z"),
        "b": ControllerStatus(written=AT[:3] + "7" + AT[4:]),
    }
    maps = [a_config_map(encode_status(status), namespace) for namespace, status in texts.items()]
    snapshot = await read(await holding(*maps, a_config_map("{", "c")), WANTED)
    assert snapshot.controller == texts["b"]
    assert "ConfigMap c/drasim-controller-status, status.json" in snapshot.unread[0]


async def test_the_lease_that_was_renewed_last_counts() -> None:
    """It tells whether a controller is there at all; only that of the controller's name is looked at."""
    leases = [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"renewTime": f"{year}-01-01T00:00:00.000000Z"},
        }
        for namespace, name, year in (
            ("a", "drasim-controller", 2026),
            ("b", "drasim-controller", 2027),
            ("b", "other", 2028),
        )
    ]
    lease = (await read(await holding(*leases), WANTED)).lease
    assert lease is not None
    assert (lease.metadata.namespace, lease.metadata.name) == ("b", "drasim-controller")


@pytest.mark.parametrize(
    ("plural", "said"),
    [
        ("resourceslices", f"ResourceSlices of {GPU}"),
        ("resourceclaims", "ResourceClaims"),
        ("devicetaintrules", "DeviceTaintRules"),
        ("devicefaults", "DeviceFaults"),
        ("configmaps", "ConfigMap of the controller"),
        ("leases", "Lease of the controller"),
    ],
)
async def test_what_may_not_be_read_is_said(plural: str, said: str) -> None:
    """A missing right leaves its column empty and is named; the rest is shown."""
    cluster = await holding(a_slice(xid()), a_claim(POD), a_rule())
    cluster.faults.fail("list", code=403, times=9, plural=plural)
    snapshot = await read(cluster, WANTED)
    assert snapshot.unread[0].startswith(said)
    assert "403" in snapshot.unread[0] or "forbidden" in snapshot.unread[0].lower()
    assert [bool(snapshot.slices), bool(snapshot.claims), bool(snapshot.rules)].count(True) >= 2


async def test_pods_that_may_not_be_read_are_said() -> None:
    """The group stands in for its Pods then."""
    cluster = await holding(a_slice(xid()), a_claim(GROUP))
    cluster.faults.fail("list", code=403, times=9, plural="pods")
    row, frame = await row_of(cluster)
    assert row.used_by[0].pods == ("podgroup/gang",)
    assert frame.notes[0].startswith("not read: Pods of ns")


async def test_a_server_without_rules_is_said() -> None:
    """Up to 1.36 rules are an API of their own that is off."""
    snapshot = await read(await holding(a_slice(xid()), catalog=Catalog(unserved=("devicetaintrules",))), WANTED)
    assert snapshot.unread == ("DeviceTaintRules: the server serves none (feature gate DRADeviceTaintRules)",)


async def test_an_older_version_of_rules_is_read() -> None:
    """Rules of a server that has them in a beta version only are shown as well."""
    catalog = Catalog(apis=("resource.k8s.io/v1beta2",))
    catalog.withdraw("devicetaintrules", "resource.k8s.io/v1")
    row, _ = await row_of(await holding(a_slice(xid()), a_rule("v1beta2"), catalog=catalog))
    assert row.rules[0].name == "drain-3"


async def test_one_node_is_read_alone() -> None:
    """The server sends the slices of that Node only."""
    faults = (a_fault(node, "gpu-1") for node in ("node-a", "node-b"))
    cluster = await holding(a_slice(xid()), a_slice(xid(), node="node-b"), *faults)
    snapshot = await read(cluster, Wanted(drivers=(GPU,), node="node-b", controller="c"))
    assert [each.spec.node_name for each in snapshot.slices] == ["node-b"]
    assert [each.spec.node for each in snapshot.faults] == ["node-b"]


async def test_a_cluster_without_the_crd_has_no_faults() -> None:
    """That is no gap in what is shown."""
    snapshot = await read(await holding(a_slice(xid()), catalog=Catalog()), WANTED)
    assert (snapshot.faults, snapshot.unread) == ((), ())


async def test_a_chart_whose_controller_never_started() -> None:
    """The ConfigMap and the Lease are there, with nothing in them: nothing is unread, and nobody leads."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
    named = {"metadata": {"name": "drasim-controller", "namespace": "drasim"}}
    status = {name: value for name, value in a_config_map("").items() if name != "data"}
    _, frame = await row_of(await holding(a_slice(xid()), status, lease | named))
    assert frame.notes == ("controller: none has led yet; no rule is made or lifted",)


async def test_a_server_that_does_not_answer_is_an_error() -> None:
    """One error, which the command turns into its exit code; an empty table would be a lie."""
    cluster = await holding(a_slice(xid()))
    cluster.faults.fail("list", code=500, times=99)
    with pytest.raises(Retryable):
        await read(cluster, WANTED)


# ------------------------------------------------------------------------------------------------------------- printed


async def test_the_table_is_printed_with_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    """Heading, device, what else is to be said, and how many devices are not shown."""
    cluster = await holding(a_slice(xid()), catalog=Catalog(unserved=("devicetaintrules",)))
    await show_once(cluster, TABLE, Printer(Form.TABLE))
    heading, device, note, last = capsys.readouterr().out.splitlines()
    assert heading.startswith("NODE")
    assert device.startswith("node-a  gpu-3   Unhealthy  xid 79")
    assert note.startswith("not read: DeviceTaintRules")
    assert last == "1 of 2 devices shown: those with problems or in use (all of them: --all)."


async def test_a_server_that_does_not_answer_is_asked_once() -> None:
    """Who shows it once does not go on to the next question, to wait as long again."""
    cluster = FakeCluster()
    cluster.faults.fail("discover", code=0, times=9)
    with pytest.raises(Retryable):
        await read(cluster, WANTED)
    assert {each.verb for each in cluster.faults.requests} == {"discover"}


async def test_devices_that_may_not_be_read_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What can be said is said, and the exit code is not that of "no device has a problem"."""
    cluster = FakeCluster()
    cluster.faults.fail("list", code=403, times=9, plural="resourceslices")
    with pytest.raises(typer.Exit) as caught:
        await show_once(cluster, TABLE, Printer(Form.TABLE))
    assert caught.value.exit_code == 1
    assert "not read: ResourceSlices of gpu.dra.example.com" in capsys.readouterr().out


async def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts for programs, with times instead of ages."""
    await show_once(await holding(a_slice(xid()), a_claim(POD)), JSON, Printer(Form.JSON))
    document = json.loads(capsys.readouterr().out)
    assert document["devices"] == [
        {
            "node": "node-a",
            "driver": GPU,
            "pool": "node-a-gpu",
            "device": "gpu-3",
            "health": "Unhealthy",
            "problems": [{"kind": "xid", "code": "79", "since": AT, "effect": "NoSchedule"}],
            "usedBy": [{"namespace": "ns", "claim": "train", "pods": ["train-0"]}],
        }
    ]
    assert set(document) == {"at", "devices", "others", "notes"}


def test_a_frame_that_says_the_same_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever follows a pipe reads changes, not repetitions; on a terminal each frame takes the place of the last."""
    frame = Frame(devices=(), others=0, notes=())
    for redraws in (False, True):
        printer = Printer(Form.TABLE, redraws=redraws, following=True)
        printer.show(frame)
        printer.show(frame)
    once, *twice = capsys.readouterr().out.split("No device is published, and no claim holds one.\n")[:-1]
    assert (once, twice) == ("", ["\x1b[H\x1b[2J"] * 2)


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (9, ["a", "b", "c", "d", "note", "sum"]),
        (6, ["a", "b", "c", "d", "note", "sum"]),
        (5, ["a", "b", "... 2 more lines", "note", "sum"]),
        (3, ["... 4 more lines", "note", "sum"]),
        (2, ["... 4 more lines", "note"]),
        (0, ["a", "b", "c", "d", "note", "sum"]),
    ],
)
def test_a_small_terminal_keeps_the_notes(room: int, shown: list[str]) -> None:
    """Devices make room for what is said below them: that the controller is away is not lost under a long table."""
    assert fitted(["a", "b", "c", "d"], ["note", "sum"], room, 80) == shown


def test_a_long_note_counts_as_the_lines_that_it_needs() -> None:
    """Else the terminal would scroll, and the next frame leave a part of this one above it."""
    below = ["not read: a", "two of them"]
    assert fitted(["a", "b", "c"], below, 6, 9) == ["a", "... 2 more lines", "not read:", "a", "two of", "them"]


async def test_all_devices_are_shown_on_demand() -> None:
    """--all shows what is well and unused, too."""
    snapshot = await read(await holding(a_slice(health="Healthy")), WANTED)
    usual, everything = (frame_of(snapshot, msgspec.structs.replace(TABLE, everything=each)) for each in (False, True))
    assert (len(usual.devices), usual.others) == (0, 2)
    assert (len(everything.devices), everything.others) == (2, 0)


# ------------------------------------------------------------------------------------------------------------ followed


@asynccontextmanager
async def following(cluster: FakeCluster, asked: Asked) -> AsyncIterator[None]:
    """Follow the cluster as `--watch` does."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(show_on(cluster, asked, Printer(asked.form, following=True)))
        yield
        task.cancel()


async def printed(capsys: pytest.CaptureFixture[str], what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first document that is like that."""
    text = ""
    while True:
        text += capsys.readouterr().out
        for line in text.splitlines():
            if what(document := json.loads(line)):
                found: dict[str, Any] = document
                return found
        await asyncio.sleep(0.01)


def unread(document: dict[str, Any]) -> list[str]:
    """Return what a document says that could not be read."""
    return [note for note in document["notes"] if note.startswith("not read")]


async def test_changes_are_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each change is a line of JSON: a problem comes, a claim comes, the problem goes."""
    cluster = await holding(a_slice(health="Healthy"))
    async with following(cluster, JSON):
        await printed(capsys, lambda document: document["devices"] == [] and document["others"] == 2)
        await cluster.put_json(a_slice(xid()))
        await printed(capsys, lambda document: [row["device"] for row in document["devices"]] == ["gpu-3"])
        await cluster.put_json(a_claim(POD))
        await printed(capsys, lambda document: "usedBy" in document["devices"][0])
        await cluster.put_json(a_slice(health="Healthy"))
        await printed(capsys, lambda document: "problems" not in document["devices"][0])


async def test_a_server_that_is_away_is_one_line() -> None:
    """It is one cause, whatever is not read because of it; a small terminal has room for the devices."""
    cluster = await holding(a_slice(xid()))
    async with current(cluster, WANTED) as now:
        async with aclosing(follow(*now.changes)) as changes:
            with cluster.away():
                async for _ in changes:
                    if all(mirror.error.value for mirror in now.mirrors.values()):
                        break
        (line,) = (await now.snapshot()).unread
    assert line.startswith(f"ResourceSlices of {GPU}, ResourceSlices of {NIC}, ResourceClaims, ConfigMap of the")


async def test_pod_groups_are_asked_for_when_claims_change() -> None:
    """Changes of slices, which are many when devices flap, do not list Pods again."""
    cluster = await holding(a_slice(), a_claim(GROUP), a_pod("train-0", "gang"))
    async with current(cluster, WANTED) as now:
        async with aclosing(follow(*now.changes)) as changes:
            async for _ in changes:
                if now.known:
                    break
        for _ in range(3):
            snapshot = await now.snapshot()
            assert snapshot.members == {("ns", "gang"): ("train-0",)}
    assert [each.plural for each in cluster.faults.requests].count("pods") == 1


async def test_rules_are_found_once_the_server_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that cannot say what it serves when the command starts has rules all the same, later."""
    cluster = await holding(a_slice(xid()), a_rule())
    cluster.faults.fail("discover", code=503, times=2)
    cluster.faults.fail("list", code=503, plural="devicetaintrules")
    async with following(cluster, JSON):
        await printed(capsys, lambda document: document["notes"] != [])
        await printed(capsys, lambda document: "rules" in document["devices"][0] and not unread(document))


async def test_a_server_that_goes_away_is_said_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """What was known stays on the screen; it says that it may be old."""
    cluster = await holding(a_slice(xid()))
    cluster.faults.fail("list", code=500, times=1, plural="resourceclaims")
    async with following(cluster, JSON):
        first = await printed(capsys, lambda document: bool(document["notes"]))
        assert first["notes"][0].startswith("not read: ResourceClaims")
        await printed(capsys, lambda document: not unread(document))
