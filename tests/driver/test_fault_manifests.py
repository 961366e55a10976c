"""DeviceFaults in a YAML file."""

from pathlib import Path

import pytest

from dra_plugin.resources import ObjectMeta
from drasim.config import ConfigError
from drasim.faults.manifests import parse_manifests, read_manifests, write_manifests
from drasim.faults.wanted import moment
from tests.driver.faulting import CREATED, fault, spec

HEAD = "apiVersion: dra.example.com/v1alpha1\nkind: DeviceFault\n"
ONE = HEAD + "metadata: {name: a}\nspec: {node: node-a, device: gpu-1, kind: xid, code: '79'}\n"


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_manifests(text, "faults.yaml", CREATED)
    return str(caught.value)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Several faults, with what they say and when they were made; a status is not kept in files."""
    path = tmp_path / "faults.yaml"
    faults = (fault("a", kind="xid", code="79"), fault("b", all="nic", after="5s", duration="1m"))
    write_manifests(path, faults)
    found = read_manifests(path)
    assert [(each.metadata.name, each.metadata.creation_timestamp, each.spec) for each in found] == [
        ("a", CREATED, spec(kind="xid", code="79")),
        ("b", CREATED, spec(all="nic", after="5s", duration="1m")),
    ]


def test_a_file_that_is_missing_has_no_faults(tmp_path: Path) -> None:
    """Removing the file is the repair; an empty one says the same."""
    assert read_manifests(tmp_path / "none.yaml") == ()
    (tmp_path / "empty.yaml").write_text("# nothing\n---\n")
    assert read_manifests(tmp_path / "empty.yaml") == ()


def test_the_files_time_is_the_creation(tmp_path: Path) -> None:
    """A manifest that does not say when it was made counts from the last change of the file."""
    path = tmp_path / "faults.yaml"
    path.write_text(ONE)
    (found,) = read_manifests(path)
    assert moment(found.metadata.creation_timestamp) == int(path.stat().st_mtime)


def test_several_documents_and_lists() -> None:
    """Documents one after the other, and the List that kubectl prints, status included."""
    listed = """
apiVersion: v1
kind: List
items:
- apiVersion: dra.example.com/v1alpha1
  kind: DeviceFault
  metadata: {name: b, uid: u, resourceVersion: '7', managedFields: [{manager: kubectl}]}
  spec: {node: node-a, all: gpu, kind: lost}
  status: {phase: Active, devices: [gpu-0]}
"""
    found = parse_manifests(ONE + "---" + listed, "faults.yaml", CREATED)
    assert [(each.metadata, each.status) for each in found] == [
        (ObjectMeta(name=name, creation_timestamp=CREATED), None) for name in ("a", "b")
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ONE.replace("kind: xid", "kind: xdi"), ["faults.yaml: spec.kind:", 'did you mean "xid"', "unprepare-slow"]),
        (ONE.replace("'79'", "79"), ["spec.code: 79 is not allowed", "in quotes"]),
        (ONE.replace("'79'", "'0'"), ['spec.code: "0" is not allowed', "1 to 999"]),
        (ONE.replace("code:", "cod:"), ['spec.cod: unknown key (did you mean "code"?)', "duration"]),
        (ONE.replace("DeviceFault", "Fault"), ['kind: "Fault" is not allowed', "DeviceFault"]),
        (ONE.replace("v1alpha1", "v1"), ["apiVersion:", "dra.example.com/v1alpha1"]),
        (ONE.replace("name: a", "labels: {}"), ["metadata.name: missing"]),
        (ONE.replace("device: gpu-1", "device: gpu-1, all: gpu"), ["spec.device: exactly one of device and all"]),
        (ONE.replace("kind: xid", "kind: xid, after: soon"), ['spec.after: "soon" is not allowed', "0s to 24h"]),
        (ONE.replace("kind: xid", "kind: xid, duration: ''"), ['spec.duration: "" is not allowed', "1ms to 24h"]),
        (ONE.replace("node: node-a", "node: ''"), ["spec.node: missing"]),
        (f"{ONE}---\n{ONE}", ['[1].metadata.name: "a" is given twice']),
        (ONE + "  }", ["line 5"]),
        ("- a\n", ["not a mapping"]),
        ("apiVersion: v1\nkind: List\nitem: []\n", ["faults.yaml: items: missing; needed: a list"]),
        ("apiVersion: v1\nkind: List\nitems: [{kind: DeviceFault}]\n", ["items[0].apiVersion: missing"]),
    ],
)
def test_a_mistake_is_named(text: str, words: list[str]) -> None:
    """File, place, key and what is allowed."""
    found = problem(text)
    assert [word for word in words if word not in found] == [], found


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder in its place is no file without faults."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_manifests(tmp_path)
