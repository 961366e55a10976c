"""`drasim fault` on a file of manifests, and playing a scenario on a cluster in this process."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from dra_plugin.errors import ClusterError, SetupError
from dra_plugin.testing.cluster import FakeCluster
from drasim.cli.books import ClusterBook, FileBook, Put, recorded
from drasim.cli.fault import app
from drasim.cli.scenario import BrokenOff, Playing, play
from drasim.config import Config, ConfigError, load, load_yaml
from drasim.faults import DEVICE_FAULT, DeviceFaultStatus, apply_status
from drasim.faults.manifests import read_manifests
from drasim.faults.timeline import Event
from drasim.hardware.simulated.faults import FAULT_KINDS
from tests.driver.faulting import cluster, spec

RUN = CliRunner()
SMALL = ("--set", "simulation.profile=small")
NODE = ("--node", "node-a")


def asked(folder: Path, *words: str) -> Result:
    node = () if "--name" in words and words[0] == "clear" else NODE
    return RUN.invoke(app, [words[0], "--file", str(folder / "faults.yaml"), *SMALL, *node, *words[1:]])


def done(folder: Path, *words: str) -> str:
    result = asked(folder, *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(folder: Path, *words: str) -> str:
    """Return why the words are bad input; nothing was written then."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    error = asked(folder, *words).exception
    assert isinstance(error, ConfigError), error
    assert {path: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")} == before
    return str(error)


def names(folder: Path) -> list[str]:
    return [fault.metadata.name or "" for fault in read_manifests(folder / "faults.yaml")]


def test_a_fault_is_written_listed_and_cleared(tmp_path: Path) -> None:
    """The file has the manifests that kubectl would take; the list says what the configured machine makes of them."""
    assert (
        done(tmp_path, "inject", "gpu-3", "xid", "79") == "injected node-a-gpu-3-xid-79 (xid 79 on gpu-3 of node-a)\n"
    )
    manifest = load_yaml((tmp_path / "faults.yaml").read_text(), "faults.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == ("dra.example.com/v1alpha1", "DeviceFault")
    assert manifest["spec"] == {"node": "node-a", "device": "gpu-3", "kind": "xid", "code": "79"}
    titles, row = done(tmp_path, "list").splitlines()
    assert titles.split() == ["NAME", "NODE", "DEVICE", "KIND", "CODE", "PHASE", "AGE", "REASON"]
    assert row.split()[:6] == ["node-a-gpu-3-xid-79", "node-a", "gpu-3", "xid", "79", "Active"]
    assert done(tmp_path, "clear", "gpu-3") == "cleared node-a-gpu-3-xid-79\n"
    assert (names(tmp_path), done(tmp_path, "list")) == ([], "no faults\n")


def test_injecting_again_changes_nothing(tmp_path: Path) -> None:
    """The same words are the same fault; another code is another one."""
    done(tmp_path, "inject", "gpu-3", "xid", "79")
    before = (tmp_path / "faults.yaml").read_bytes()
    assert done(tmp_path, "inject", "gpu-3", "xid", "79").startswith("stands already: node-a-gpu-3-xid-79")
    assert (tmp_path / "faults.yaml").read_bytes() == before
    told = json.loads(done(tmp_path, "inject", "gpu-3", "xid", "48", "-o", "json"))
    assert (told["name"], told["new"], told["spec"]["code"]) == ("node-a-gpu-3-xid-48", True, "48")
    assert names(tmp_path) == ["node-a-gpu-3-xid-79", "node-a-gpu-3-xid-48"]


def test_what_is_over_is_injected_anew(tmp_path: Path) -> None:
    """A fault whose time is over does not stand in the way of itself."""
    done(tmp_path, "inject", "gpu-0", "lost", "--duration", "1s")
    text = (tmp_path / "faults.yaml").read_text()
    created = load_yaml(text, "")["metadata"]["creationTimestamp"]
    (tmp_path / "faults.yaml").write_text(text.replace(created, "2026-01-01T00:00:00Z"))
    assert "Cleared" in done(tmp_path, "list")
    assert done(tmp_path, "inject", "gpu-0", "lost", "--duration", "1s").startswith("injected")


def test_all_of_a_kind_with_times_and_a_name(tmp_path: Path) -> None:
    """`nic` means all NICs; the options become the fields of the object."""
    done(tmp_path, "inject", "nic", "link-flap", "500ms", "--after", "30s", "--duration", "1h", "--name", "storm")
    (fault,) = read_manifests(tmp_path / "faults.yaml")
    assert fault.metadata.name == "storm"
    assert fault.spec == spec(all="nic", kind="link-flap", code="500ms", after="30s", duration="1h")
    assert "Pending" in done(tmp_path, "list")
    assert done(tmp_path, "clear", "nic", "link-flap") == "cleared storm\n"


def test_the_list_for_programs(tmp_path: Path) -> None:
    """JSON is a List, YAML one document for each, both with the status; --node selects."""
    done(tmp_path, "inject", "gpu-0", "lost")
    (item,) = json.loads(done(tmp_path, "list", "-o", "json"))["items"]
    assert (item["metadata"]["name"], item["status"]["phase"]) == ("node-a-gpu-0-lost", "Active")
    assert item["status"]["devices"] == ["gpu-0"]
    assert load_yaml(done(tmp_path, "list", "-o", "yaml"), "") == item
    assert done(tmp_path, "list", "--node", "node-b") == "no faults\n"


def test_clear_finds_a_device_by_its_name(tmp_path: Path) -> None:
    """A fault that was given by UUID goes by the published name; one of all GPUs, or of another kind, stays."""
    uuid = json.loads(RUN.invoke(app, ["list", "-o", "json", *SMALL, "--file", "/none"]).stdout)["items"]
    assert uuid == []
    book = FileBook(tmp_path / "faults.yaml", load(None, {"simulation.profile": "small"}))
    gpu = asyncio.run(book.machine("node-a")).gpus[2]
    for words in (("inject", gpu.id, "lost"), ("inject", "gpu", "lost"), ("inject", "gpu-2", "thermal")):
        done(tmp_path, *words)
    assert done(tmp_path, "clear", "gpu-2", "lost").split()[1] == f"node-a-{gpu.id.lower()}-lost"
    assert names(tmp_path) == ["node-a-all-gpu-lost", "node-a-gpu-2-thermal"]
    left = "node-a-all-gpu-lost (lost on all gpu of node-a)"
    assert done(tmp_path, "clear", "gpu-2", "lost") == f"nothing to clear\nstill on gpu-2: {left}\n"
    told = json.loads(done(tmp_path, "clear", "gpu-3", "-o", "json"))
    assert told == {"cleared": [], "left": ["node-a-all-gpu-lost"]}
    assert json.loads(done(tmp_path, "clear", "--all", "-o", "json"))["cleared"] == [
        "node-a-all-gpu-lost",
        "node-a-gpu-2-thermal",
    ]


def test_clear_takes_the_name_of_a_fault(tmp_path: Path) -> None:
    """What inject printed, or was given as --name, is enough; twice is once."""
    done(tmp_path, "inject", "gpu", "lost", "--name", "storm")
    done(tmp_path, "inject", "gpu-0", "lost")
    assert done(tmp_path, "clear", "--name", "storm") == "cleared storm\n"
    assert done(tmp_path, "clear", "--name", "storm") == "nothing to clear\n"
    assert names(tmp_path) == ["node-a-gpu-0-lost"]


def test_a_taken_name_is_said(tmp_path: Path) -> None:
    """Another fault by that name ends the first, which nobody should find out later."""
    done(tmp_path, "inject", "gpu-0", "lost", "--name", "mine")
    assert done(tmp_path, "inject", "gpu-1", "lost", "--name", "mine") == "replaced mine (lost on gpu-1 of node-a)\n"
    told = json.loads(done(tmp_path, "inject", "gpu-1", "lost", "--name", "mine", "--duration", "9s", "-o", "json"))
    assert (told["new"], told["replaced"], told["spec"]["duration"]) == (False, True, "9s")


def test_a_file_knows_no_times_of_a_driver(tmp_path: Path) -> None:
    """Nobody has seen a fault that is only written down, and nobody has missed it either."""
    done(tmp_path, "inject", "gpu-0", "lost", "--duration", "1s")
    file = tmp_path / "faults.yaml"
    created = load_yaml(file.read_text(), "")["metadata"]["creationTimestamp"]
    file.write_text(file.read_text().replace(created, "2026-01-01T00:00:00Z"))
    (item,) = json.loads(done(tmp_path, "list", "-o", "json"))["items"]
    over = {"phase": "Cleared", "reason": "ended at 2026-01-01T00:00:02Z", "devices": ["gpu-0"]}
    assert item["status"] == over


def test_the_help_names_every_kind() -> None:
    """Nobody has to make a mistake to learn what there is."""
    text = RUN.invoke(app, ["inject", "--help"]).stdout
    assert [kind for kind in FAULT_KINDS if kind not in text.replace("-\n  ", "-")] == []


@pytest.mark.parametrize("file", [".", "", "/"])
def test_a_folder_is_no_file(file: str) -> None:
    """It is refused by name, whatever is done with it."""
    for words in (["list"], ["inject", "gpu-0", "lost", *NODE]):
        error = RUN.invoke(app, [*words, "--file", file, *SMALL]).exception
        assert isinstance(error, ConfigError), error
        assert f"--file: {file or '.'} is a folder; needed: the path of a file" in str(error)


async def test_a_node_that_is_none_is_named() -> None:
    """A Node without faults is asked for; a mistyped one is an error, and the Nodes with devices are listed."""
    book = ClusterBook(cluster(), Config())
    await book.check_node("")
    error = await expect(ConfigError, book.check_node("nod-a"))
    assert '--node: "nod-a" is no Node of this cluster' in str(error)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["inject", "", "lost"], ["arguments: DEVICE: empty"]),
        (["inject", "gpu-0", "lost", "--after", ""], ['arguments: --after: "" is not allowed; allowed: 0s to 24h']),
        (["clear", "--name", "a", "--node", "node-b"], ["arguments: --node: not allowed with --name"]),
        (["clear", "--name", "a", "--all"], ["arguments: DEVICE: exactly one of"]),
        (["inject", "gpu-0", "lots"], ['arguments: KIND: "lots" is no kind of fault (did you mean "lost"?)', "xid"]),
        (["inject", "gpu-9", "lost"], ['arguments: DEVICE: "gpu-9" is no device', "gpu-0, gpu-1, gpu-2, gpu-3"]),
        (["inject", "gpu-0", "xid"], ["arguments: CODE: missing; xid needs", "1 to 999"]),
        (["inject", "gpu-0", "xid", "7777"], ['arguments: CODE: "7777" is not allowed']),
        (["inject", "nic-0", "thermal"], ['arguments: KIND: "thermal" cannot befall nic-0', "link-down"]),
        (["inject", "gpu", "down"], ['arguments: DEVICE: "gpu" is not allowed', "PCIe root"]),
        (["inject", "gpu-0", "lost", "--after", "soon"], ['arguments: --after: "soon" is not allowed', "0s to 24h"]),
        (["inject", "gpu-0", "lost", "--duration", "0s"], ['arguments: --duration: "0s" is not allowed']),
        (["inject", "gpu-0", "lost", "--name", "A_b"], ['arguments: --name: "A_b" is not allowed', "lower-case"]),
        (["clear", "gpu-9"], ['arguments: DEVICE: "gpu-9" is no device']),
        (["clear", "gpu-0", "lots"], ['arguments: KIND: "lots"']),
        (["clear"], ["arguments: DEVICE: exactly one of DEVICE, --name and --all"]),
        (["clear", "gpu-0", "--all"], ["arguments: DEVICE: exactly one of DEVICE, --name and --all"]),
    ],
)
def test_bad_input_changes_nothing(tmp_path: Path, words: list[str], parts: list[str]) -> None:
    """It is named before anything is written, with what is allowed."""
    found = refused(tmp_path, *words)
    assert [part for part in parts if part not in found] == [], found


def test_a_file_needs_a_node_and_a_folder(tmp_path: Path) -> None:
    """Without a cluster nobody else knows the node; a folder is not made."""
    file = str(tmp_path / "none" / "faults.yaml")
    bare = RUN.invoke(app, ["inject", "gpu-0", "lost", "--file", file], env={"NODE_NAME": None}).exception
    assert "--node: missing" in str(bare)
    folder = RUN.invoke(app, ["inject", "gpu-0", "lost", "--file", file, *SMALL, *NODE]).exception
    assert "is no folder" in str(folder)


def test_a_hand_written_mistake_is_kept(tmp_path: Path) -> None:
    """A file that cannot be read is not written over."""
    (tmp_path / "faults.yaml").write_text("kind: Nonsense\n")
    assert 'faults.yaml: kind: "Nonsense" is not allowed' in refused(tmp_path, "inject", "gpu-0", "lost")


STORY = """
steps:
  - {at: 0s, inject: {device: gpu-3, kind: xid, code: 79, duration: 60s}}
  - {at: 30s, inject: {all: nic, kind: link-down}}
"""


def test_a_scenario_on_a_file(tmp_path: Path) -> None:
    """Played at speed, each event is a line; what it does not clear stands in the end, and is named."""
    story = tmp_path / "My story.yaml"
    story.write_text(STORY)
    planned = done(tmp_path, "run", str(story), "--dry-run")
    assert (names(tmp_path), len(planned.splitlines())) == ([], 3)
    played = done(tmp_path, "run", str(story), "--speed", "1000")
    assert played == f"{planned}done; still standing: node-a-all-nic-link-down-my-story-2\n"
    assert names(tmp_path) == ["node-a-all-nic-link-down-my-story-2"]
    story.write_text("steps: [{at: 0s, inject: {all: gpu, kind: lost}}, {at: 1s, clear: {}}]")
    assert done(tmp_path, "run", str(story), "--speed", "1000").splitlines()[-1] == "done; still standing: nothing"


def test_a_scenario_for_programs(tmp_path: Path) -> None:
    """One JSON object a line; another seed may be given."""
    story = tmp_path / "story.yaml"
    story.write_text("steps: [{at: 0s, inject: {any: gpu, kind: lost}}]")
    found = [
        json.loads(done(tmp_path, "run", str(story), "--dry-run", "-o", "json", "--seed", str(seed)))
        for seed in range(9)
    ]
    assert {(event["action"], event["at"], event["spec"]["kind"]) for event in found} == {("inject", 0.0, "lost")}
    assert len({event["spec"]["device"] for event in found}) > 1
    assert all(event["name"].endswith("-lost-story-1") and "done" not in event for event in found)
    played = json.loads(done(tmp_path, "run", str(story), "-o", "json"))
    assert (played["name"], played["done"] >= 0) == (found[0]["name"], True)


@pytest.mark.parametrize(
    ("text", "words", "parts"),
    [
        ("steps: []", [], ["steps: empty"]),
        (STORY.replace("gpu-3", "gpu-33"), [], ['steps[0].inject.device: on node-a: "gpu-33" is no device']),
        (STORY.replace("30s", "30d"), [], ["steps[1].at"]),
        (STORY, ["--speed", "0"], ['--speed: "0" is not allowed']),
        ("node: node-b\n" + STORY, [], ['arguments: --node: "node-a" is not in the scenario; allowed: node-b']),
    ],
)
def test_a_bad_scenario_changes_nothing(tmp_path: Path, text: str, words: list[str], parts: list[str]) -> None:
    """All of it is checked before its first event."""
    (tmp_path / "story.yaml").write_text(text)
    found = refused(tmp_path, "run", str(tmp_path / "story.yaml"), *words)
    assert [part for part in parts if part not in found] == [], found


def event(at: float, action: Any, name: str) -> Event:  # noqa: ANN401 - one of two words
    return Event(at=at, action=action, name=name, spec=spec())


async def standing(api: FakeCluster) -> list[str]:
    return [fault.metadata.name or "" for fault in (await api.list(DEVICE_FAULT)).items]


@pytest.mark.parametrize(("keep", "left"), [(False, []), (True, ["a", "b"])])
async def test_what_is_broken_off_is_repaired(keep: bool, left: list[str]) -> None:
    """A scenario that is stopped takes back what it injected, and says so; --keep leaves it."""
    api, stop = cluster(), asyncio.Event()
    events = (event(0, "inject", "a"), event(0, "inject", "b"), event(600, "clear", "a"))
    playing = Playing(speed=1.0, keep=keep, tell=lambda told, _: stop.set() if told.name == "b" else None)
    error = await expect(BrokenOff, play(events, ClusterBook(api, Config()), playing, stop))
    assert ("repaired: a, b" in str(error), await standing(api)) == (not keep, left)


async def expect(kind: type[Exception], work: Any) -> Exception:  # noqa: ANN401 - any coroutine
    with pytest.raises(kind) as caught:
        await work
    return caught.value


async def test_an_error_is_a_break() -> None:
    """What the server refuses ends the scenario, and what it injected before is repaired."""
    api = cluster()
    events = (event(0, "inject", "a"), event(0.05, "inject", "Not_a_name"))
    playing = Playing(speed=1.0, keep=False, tell=lambda _event, _at: None)
    error = await expect(BrokenOff, play(events, ClusterBook(api, Config()), playing, asyncio.Event()))
    assert isinstance(error.__cause__, ClusterError)
    assert await standing(api) == []


async def test_a_server_that_is_away_for_a_moment() -> None:
    """Requests are repeated for a while; an answer that was lost is no second fault."""
    api = cluster()
    api.faults.fail("create", code=503, times=1)
    assert await ClusterBook(api, Config()).put(recorded("a", spec())) is Put.NEW
    assert await standing(api) == ["a"]


async def test_a_book_puts_again_what_is_over() -> None:
    """The object of a fault that is over, refused, or another one is replaced; one that stands is left alone."""
    api = cluster()
    book = ClusterBook(api, Config())
    assert await book.put(recorded("a", spec())) is Put.NEW
    first = await api.get(DEVICE_FAULT, "a")
    assert first is not None
    assert await book.put(recorded("a", spec())) is Put.STANDS
    await apply_status(api, first, DeviceFaultStatus(phase="Cleared"))
    assert await book.put(recorded("a", spec())) is Put.NEW
    second = await api.get(DEVICE_FAULT, "a")
    assert second is not None
    assert second.metadata.uid != first.metadata.uid
    assert await book.put(recorded("a", msgspec.structs.replace(spec(), kind="thermal"))) is Put.REPLACED


async def test_a_cluster_without_the_crd_is_named() -> None:
    """The error says what has to be installed."""
    api = cluster()
    api.catalog.withdraw("devicefaults")
    error = await expect(SetupError, ClusterBook(api, Config()).faults())
    assert "is the CRD devicefaults.dra.example.com installed?" in str(error)
