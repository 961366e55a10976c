"""What an image weighs, and what takes it."""

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import IO, cast

PACKAGES = "opt/drasim/packages/"
SHOWN = 6


def report(archive: Path) -> str:
    """Return the size of an OCI archive and its largest parts, unpacked, as lines of text."""
    parts: Counter[str] = Counter()
    packages: Counter[str] = Counter()
    with tarfile.open(archive) as tar:
        for layer in _layers(tar):
            _count(layer, parts, packages)
    head = f"  {_mb(archive.stat().st_size)} to send, {_mb(parts.total())} unpacked:"
    lines = [f"  {_mb(size):>9}  {part}" for part, size in parts.most_common()]
    largest = ", ".join(f"{name} {_mb(size)}" for name, size in packages.most_common(SHOWN))
    return "\n".join([head, *lines, f"  largest packages: {largest}"])


def _layers(tar: tarfile.TarFile) -> list[IO[bytes]]:
    index = json.loads(_read(tar, "index.json"))
    manifest = json.loads(_blob(tar, index["manifests"][0]["digest"]))
    return [cast("IO[bytes]", tar.extractfile(_path(layer["digest"]))) for layer in manifest["layers"]]


def _count(layer: IO[bytes], parts: Counter[str], packages: Counter[str]) -> None:
    with gzip.open(layer) as content, tarfile.open(fileobj=cast("IO[bytes]", content), mode="r|") as files:
        for member in files:
            parts[part_of(member.name)] += member.size
            if member.name.startswith(PACKAGES):
                packages[member.name.removeprefix(PACKAGES).partition("/")[0]] += member.size


def part_of(path: str) -> str:
    """Return the part of the image that a path belongs to."""
    if path.startswith(PACKAGES):
        return "Python packages of locks/runtime.txt"
    if path.startswith("opt/drasim/"):
        return "the driver"
    return "Python" if "/python3" in path else "Debian"


def _blob(tar: tarfile.TarFile, digest: str) -> bytes:
    return _read(tar, _path(digest))


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    return file.read() if file else b""


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
