"""The image builder's own parts; the image itself is tested on the real cluster."""

import gzip
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from hack.cluster.errors import ClusterError
from hack.cluster.folders import CHECKOUT
from hack.cluster.progress import Progress
from hack.image import contents, pipsettings
from hack.image.build import version
from hack.image.command import Commands
from hack.image.store import CONTAINERFILE, inputs, key


def tarred(files: dict[str, bytes]) -> bytes:
    """Return a tar file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_the_report_says_what_takes_the_room(tmp_path: Path) -> None:
    """Parts are named, the largest first, and so are the largest packages."""
    layer = gzip.compress(
        tarred(
            {
                "usr/bin/true": b"x" * 300_000,
                "usr/lib/python3.11/os.py": b"x" * 200_000,
                "opt/drasim/packages/grpc/a.so": b"x" * 900_000,
                "opt/drasim/lib/drasim/node.py": b"x" * 100_000,
            }
        )
    )
    manifest = json.dumps({"layers": [{"digest": "sha256:aa"}]}).encode()
    index = json.dumps({"manifests": [{"digest": "sha256:bb"}]}).encode()
    archive = tmp_path / "image.tar"
    archive.write_bytes(tarred({"index.json": index, "blobs/sha256/bb": manifest, "blobs/sha256/aa": layer}))
    lines = [line.split() for line in contents.report(archive).splitlines()]
    assert lines[0][-3:] == ["1.5", "MB", "unpacked:"]
    assert [line[0] for line in lines[1:5]] == ["0.9", "0.3", "0.2", "0.1"]
    assert lines[5] == ["largest", "packages:", "grpc", "0.9", "MB"]


def test_pip_settings_are_read() -> None:
    """The environment wins over files, and what is none of the build's business stays out."""
    listing = (
        "global.index-url='https://a/simple'\nglobal.cert='/c.pem'\n:env:.index-url='https://b/simple'\nuser.x='1'\n"
    )
    assert pipsettings.parsed(listing) == {"index-url": "https://b/simple", "cert": "/c.pem"}
    assert pipsettings.rendered({"timeout": "9"}).split() == ["[global]", "timeout", "=", "9"]


def test_a_failed_command_shows_the_end_of_its_output() -> None:
    """The error names the step and has what the command said last."""
    commands = Commands(Progress(io.StringIO()), {"PATH": "/usr/bin:/bin"}, ())
    with pytest.raises(ClusterError, match=r"(?s)step: failed with exit status 3\n.*so it goes"):
        commands.run("step", ["sh", "-c", "echo so it goes >&2; exit 3"])
    assert commands.run("step", ["echo", "fine"]) == "fine\n"


def test_the_key_covers_what_goes_in() -> None:
    """Sources, locks and the Containerfile count; bytecode and tests do not; the same tree gives the same key."""
    names = {path.relative_to(CHECKOUT).as_posix() for path in inputs()}
    assert {"locks/runtime.txt", "hack/image/Containerfile", "driver/drasim/__main__.py"} <= names
    assert not any("__pycache__" in name or name.startswith("tests/") for name in names)
    assert key() == key()


def test_the_context_has_what_the_containerfile_copies() -> None:
    """Everything that is copied is let through .dockerignore, and nothing else is."""
    text = (CHECKOUT / CONTAINERFILE).read_text()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]}
    ignore = (CHECKOUT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == copied


def test_the_image_has_the_drivers_version() -> None:
    """The tag is the version that the chart expects."""
    chart = (CHECKOUT / "charts/drasim/Chart.yaml").read_text()
    assert f'appVersion: "{version()}"' in chart
