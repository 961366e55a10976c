"""The builder's own store of layers, in the cache: what did not change is not built again."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import cache
from hack.cluster.errors import ClusterError
from hack.cluster.folders import CHECKOUT, cache_root
from hack.image.bases import BUILDER, SLIM, Base
from hack.image.command import Commands

LIMIT = 4 * 2**30
CONTAINERFILE = Path("hack/image/Containerfile")


@dataclass(frozen=True)
class Store:
    """The builder, buildah, with a store of its own; where overlayfs can be used, its layers share what they can."""

    root: Path
    commands: Commands
    driver: str = "overlay"

    @classmethod
    def at_home(cls, commands: Commands) -> "Store":
        """Return the store of the cache; one that grew too large starts again from nothing."""
        root = cache_root() / "image-store"
        if root.exists() and _size(root) > LIMIT:
            commands.progress.say(f"emptying the image builder's store {root}: it has grown beyond {LIMIT >> 30} GiB")
            shutil.rmtree(root)
        root.mkdir(parents=True, exist_ok=True)
        store = cls(root, commands)
        try:
            store._buildah("store", "info")
        except ClusterError:
            return cls(root, commands, "vfs")
        return store

    def build(self, reference: str, secrets: list[str]) -> None:
        """Build the Containerfile on the two bases, without pulling anything."""
        for base in (BUILDER, SLIM):
            self._know(base)
        bases = [f"--build-arg=BASE={SLIM.reference}", f"--build-arg=BUILDER={BUILDER.reference}"]
        options = ["--isolation=chroot", "--pull-never", "--layers", "--format=oci", *bases, *secrets]
        self._buildah("image", "build", *options, "--file", CONTAINERFILE, "--tag", reference, ".", folder=CHECKOUT)

    def push(self, reference: str, archive: Path) -> None:
        """Write an image as an OCI archive that carries its name."""
        self._buildah("archive", "push", "--quiet", reference, f"oci-archive:{archive}:{reference}")

    def _know(self, base: Base) -> None:
        if self._buildah("store", "images", "--quiet", "--filter", f"reference={base.reference}").strip():
            return
        container = self._buildah("store", "from", "scratch").strip()
        try:
            self._buildah(f"{base.name} base into the store", "add", "--quiet", container, base.tar, "/")
            self._buildah(f"{base.name} base into the store", "commit", "--quiet", container, base.reference)
        finally:
            self._buildah("store", "rm", container)

    def _buildah(self, what: str, *arguments: str | Path, folder: Path | None = None) -> str:
        places: list[str | Path] = [
            "--root",
            self.root / self.driver,
            "--runroot",
            self.root / f"{self.driver}-run",
            "--storage-driver",
            self.driver,
        ]
        return self.commands.run(what, ["buildah", *places, *arguments], folder)


def _size(folder: Path) -> int:
    done = subprocess.run(["du", "--summarize", "--block-size=1", folder], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.stdout else 0


def key() -> str:
    """Return the key of the image: it changes with everything that goes into it."""
    parts = [BUILDER.key, SLIM.key]
    for path in inputs():
        parts += [str(path.relative_to(CHECKOUT)), cache.key_of([], [path])]
    return cache.key_of(parts, [])


def inputs() -> list[Path]:
    """Return the files of the tree that go into the image or say how it is made, in a fixed order."""
    named = [
        CHECKOUT / name
        for name in (".dockerignore", "LICENSE", "locks/runtime.txt", CONTAINERFILE, "hack/image/drasim")
    ]
    trees = [CHECKOUT / "plugin-api" / "dra_plugin", CHECKOUT / "driver" / "drasim"]
    found = [path for tree in trees for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(named + found)
