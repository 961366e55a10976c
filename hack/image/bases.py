"""The two bases, made from Debian packages: one to build on (pip), one to run on (Python and little else)."""

from dataclasses import dataclass
from pathlib import Path

from hack.cluster import cache
from hack.image.command import Commands

SUITE = "bookworm"
LEFT_OUT = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/zoneinfo/*",
    "path-exclude=/usr/lib/*/gconv/*",
)
# Packages insist on these while they are installed; no program here needs them afterwards.
REMOVED = (
    "usr/lib/python3*/test",
    "usr/lib/python3*/lib2to3",
    "usr/lib/python3*/pydoc_data",
    "usr/lib/python3*/idlelib",
    "usr/lib/*/perl-base",
    "usr/lib/*/perl",
    "usr/lib/*/libperl.so*",
    "usr/share/perl",
    "usr/bin/perl*",
    "var/cache/*",
    "var/log/*",
)


@dataclass(frozen=True)
class Base:
    """A root file system of Debian packages: its name, its options for mmdebstrap, what to say beforehand."""

    name: str
    options: tuple[str, ...]
    notice: str

    @property
    def key(self) -> str:
        """Return what changes when the base has to be made anew."""
        return cache.key_of([SUITE, *self.options], [])

    @property
    def reference(self) -> str:
        """Return the name under which the builder knows it."""
        return f"localhost/drasim-{self.name}:{self.key}"

    @property
    def folder(self) -> Path:
        """Return its place in the cache."""
        return cache.place(f"image-{self.name}", self.key)

    @property
    def tar(self) -> Path:
        """Return the tar file of the root file system."""
        return self.folder / "root.tar"


BUILDER = Base(
    "builder",
    ("--variant=minbase", "--include=python3,python3-pip", *(f"--dpkgopt={rule}" for rule in LEFT_OUT)),
    "making the base to build on from Debian packages: about a minute, 250 MB",
)
SLIM = Base(
    "slim",
    (
        "--variant=essential",
        "--include=python3,libstdc++6",
        *(f"--dpkgopt={rule}" for rule in LEFT_OUT),
        "--customize-hook=rm -rf " + " ".join(f'"$1"/{path}' for path in REMOVED),
    ),
    "making the base to run on from Debian packages: about a minute, 150 MB",
)


def make(base: Base, commands: Commands) -> None:
    """Put the base into the cache, unless it is there."""
    if base.folder.exists():
        return
    commands.progress.say(base.notice)

    def debootstrap(folder: Path) -> None:
        command: list[str | Path] = ["mmdebstrap", "--quiet", "--mode=root", *base.options, SUITE, folder / "root.tar"]
        commands.run(f"{base.name} base", command)

    cache.fill(base.folder, debootstrap)
