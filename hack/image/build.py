"""The driver's image in the cache: built once for each content of the tree."""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import cache, disk, packages
from hack.cluster.errors import UnableError
from hack.cluster.folders import CHECKOUT, cache_root
from hack.cluster.packages import Package
from hack.cluster.progress import Progress
from hack.image import bases, contents, pipsettings
from hack.image.command import Commands
from hack.image.store import Store, key

REPOSITORY = "localhost/drasim"
ROOM = 3 * 2**30
TOOLS = (
    Package("mmdebstrap", lambda: _found("mmdebstrap")),
    Package("buildah", lambda: _found("buildah")),
)


@dataclass(frozen=True)
class Image:
    """A built image: its name, the OCI archive, the key of its content, and what is in it."""

    reference: str
    archive: Path
    key: str
    report: str


def version() -> str:
    """Return the driver's version, which is the image's tag."""
    text = (CHECKOUT / "driver" / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    return found[1] if found else "0"


def build(progress: Progress) -> Image:
    """Return the image of this tree; two builds at once wait for each other. Raises ClusterError."""
    wanted = key()
    folder = cache.place("image", wanted)
    if not folder.exists():
        _able(progress)
        with cache.building(progress.say, "image build"):
            _fill(folder, progress)
    report = (folder / "report.txt").read_text()
    return Image(f"{REPOSITORY}:{version()}", folder / "drasim.tar", wanted, report)


def _able(progress: Progress) -> None:
    if os.geteuid() != 0:
        raise UnableError(
            "building the image without Docker needs root (or: docker build -f hack/image/Containerfile .)"
        )
    packages.require(TOOLS, progress.say)
    disk.check([disk.Need(cache_root(), ROOM)])


def _fill(folder: Path, progress: Progress) -> None:
    if folder.exists():
        return
    commands = Commands(progress, {**os.environ, "BUILDAH_FORMAT": "oci"})
    for base in (bases.BUILDER, bases.SLIM):
        bases.make(base, commands)
    progress.say("building the image from hack/image/Containerfile: 10 to 90 s, up to 1 GB in the cache")
    cache.fill(folder, lambda scratch: _build(scratch, commands))


def _build(scratch: Path, commands: Commands) -> None:
    reference, archive = f"{REPOSITORY}:{version()}", scratch / "drasim.tar"
    store = Store.at_home(commands)
    with tempfile.TemporaryDirectory() as private:
        store.build(reference, pipsettings.secrets(Path(private)))
    store.push(reference, archive)
    (scratch / "report.txt").write_text(contents.report(archive))


def _found(command: str) -> bool:
    return any((Path(folder) / command).exists() for folder in os.environ.get("PATH", "").split(os.pathsep))
