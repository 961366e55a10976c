"""cdi: spec files as the runtime reads them, and no needless writes."""

import json
import os
from pathlib import Path

import pytest

from dra_plugin.cdi import CdiDevice, CdiFolder, DeviceNode, Edits, Mount, NetDevice, qualified
from dra_plugin.errors import ClaimError, SetupError

KIND = "k8s.gpu.dra.example.com/device"
CLAIM = "k8s.gpu.dra.example.com/claim"
UID = "0b1c2d3e-0000-4000-8000-123456789abc"
STATIC = "k8s.gpu.dra.example.com-device.json"


def device(name: str, *env: str) -> CdiDevice:
    return CdiDevice(name=name, edits=Edits(env=env))


def test_static_spec_is_what_the_runtime_expects(tmp_path: Path) -> None:
    """Camel-case members, absent ones left out, the lowest version that covers them."""
    mount = Mount(host_path="/dev/null", container_path="/dev/drasim/gpu-0", options=("bind", "rw"))
    edits = Edits(env=("A=1",), mounts=(mount,), device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),))
    assert CdiFolder(tmp_path / "cdi").write_static(KIND, (CdiDevice(name="gpu-0", edits=edits),))
    assert json.loads((tmp_path / "cdi" / STATIC).read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {
                "name": "gpu-0",
                "containerEdits": {
                    "env": ["A=1"],
                    "deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}],
                    "mounts": [
                        {
                            "hostPath": "/dev/null",
                            "containerPath": "/dev/drasim/gpu-0",
                            "options": ["bind", "rw"],
                        }
                    ],
                },
            }
        ],
    }


def test_equal_content_is_not_written(tmp_path: Path) -> None:
    """Each write makes the runtime read everything, so what stands already stays as it is."""
    folder = CdiFolder(tmp_path)
    assert folder.write_static(KIND, (device("gpu-0"),))
    before = (tmp_path / STATIC).stat()
    assert not folder.write_static(KIND, (device("gpu-0"),))
    assert not CdiFolder(tmp_path).write_static(KIND, (device("gpu-0"),))
    assert (tmp_path / STATIC).stat().st_ino == before.st_ino
    assert folder.write_static(KIND, (device("gpu-0"), device("gpu-1")))
    assert folder.write_static(KIND, ())
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_claim_specs_come_and_go(tmp_path: Path) -> None:
    """One file per claim; the UIDs can be listed; removing twice is no error."""
    folder = CdiFolder(tmp_path)
    assert folder.claims(CLAIM) == frozenset()
    folder.write_claim(CLAIM, UID, (device(f"{UID}-gpu-0", "A=1"),))
    folder.write_static(KIND, (device("gpu-0"),))
    assert folder.claims(CLAIM) == {UID}
    assert f"k8s.gpu.dra.example.com-claim_{UID}.json" in sorted(path.name for path in tmp_path.iterdir())
    assert folder.remove_claim(CLAIM, UID)
    assert not folder.remove_claim(CLAIM, UID)


def test_resolves_looks_at_the_files_of_now(tmp_path: Path) -> None:
    """An id resolves while the file that defines it stands there with it."""
    folder = CdiFolder(tmp_path)
    static, claim = qualified(KIND, "gpu-0"), qualified(CLAIM, f"{UID}-gpu-0")
    assert not folder.resolves([static])
    folder.write_static(KIND, (device("gpu-0"),))
    folder.write_claim(CLAIM, UID, (device(f"{UID}-gpu-0"),))
    assert folder.resolves([static, claim])
    assert not folder.resolves([qualified(KIND, "gpu-1")])
    assert not folder.resolves([qualified(CLAIM, "gpu-0")])
    folder.write_static(KIND, (device("gpu-1"),))
    assert not folder.resolves([static])
    (tmp_path / STATIC).write_text("{")
    assert not folder.resolves([qualified(KIND, "gpu-1")])
    for path in tmp_path.iterdir():
        path.unlink()
    assert not folder.resolves([claim])
    assert folder.resolves([])


@pytest.mark.parametrize(
    ("kind", "edits", "name", "version"),
    [
        ("v/c", Edits(), "a", "0.3.0"),
        ("v/c", Edits(mounts=(Mount(host_path="/a", container_path="/b", type="tmpfs"),)), "a", "0.4.0"),
        ("v/c", Edits(), "0a", "0.5.0"),
        ("v/c.d", Edits(), "a", "0.6.0"),
        ("v/c", Edits(additional_gids=(7,)), "a", "0.7.0"),
        ("v/c", Edits(net_devices=(NetDevice(host_interface_name="x", name="y"),)), "0a", "1.1.0"),
    ],
)
def test_lowest_version(tmp_path: Path, kind: str, edits: Edits, name: str, version: str) -> None:
    """A runtime refuses a file that declares a lower version than it uses, or one that it does not know."""
    CdiFolder(tmp_path).write_static(kind, (CdiDevice(name=name, edits=edits),))
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["cdiVersion"] == version


@pytest.mark.parametrize(("kind", "name"), [("v/c", "a b"), ("v/c", "-a"), ("noclass", "a"), ("v/c", "")])
def test_impossible_names(tmp_path: Path, kind: str, name: str) -> None:
    """One wrong name would void the whole file, so it is not written."""
    with pytest.raises(ValueError, match="no CDI"):
        CdiFolder(tmp_path).write_static(kind, (device(name),))


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The start fails with a setup error, a claim with a claim error; both name the path."""
    (tmp_path / "file").touch()
    folder = CdiFolder(tmp_path / "file")
    with pytest.raises(SetupError, match="CDI spec"):
        folder.write_static(KIND, (device("a"),))
    with pytest.raises(ClaimError, match="CDI spec"):
        folder.write_claim(CLAIM, UID, (device("a"),))
    with pytest.raises(SetupError, match="CDI folder"):
        folder.claims(CLAIM)


def test_scraps_of_killed_writes_are_cleared(tmp_path: Path) -> None:
    """Temporary files of this kind go once they are a minute old; a running write's and other drivers' stay."""
    old, new, foreign = (
        tmp_path / name for name in (f".{STATIC}.00.tmp", f".{STATIC}.01.tmp", ".k8s.other-device.json.02.tmp")
    )
    for path in (old, new, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (1, 1))
    CdiFolder(tmp_path).clear_scraps(KIND)
    assert sorted(tmp_path.iterdir()) == sorted((new, foreign))
    CdiFolder(tmp_path / "missing").clear_scraps(KIND)
