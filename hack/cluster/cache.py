"""The cache of built things: a folder for each key, and the key is a hash of everything that goes into it."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.cluster.folders import cache_root


def key_of(parts: Iterable[str], files: Iterable[Path]) -> str:
    """Return a key for what is made from these words and the contents of these files; names count, places do not."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part.encode())
    for path in sorted(files, key=lambda path: path.name):
        content = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:20]


def place(name: str, key: str) -> Path:
    """Return the folder of one thing in the cache; it exists only when it is complete."""
    return cache_root() / "bin" / f"{name}-{key}"


def fill(target: Path, make: Callable[[Path], None]) -> None:
    """Make a folder of the cache: all of it or nothing, since it gets its name only when `make` has succeeded.

    To be called with the right to build.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for scrap in target.parent.glob(f".{target.name}-*"):  # of a builder that was killed
        shutil.rmtree(scrap, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        make(scratch)
        scratch.chmod(0o755)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def building(say: Callable[[str], None], what: str = "build") -> Iterator[None]:
    """Hold the right to build one kind of thing; a second builder waits here, and says for whom.

    The right ends with the process, however that ends.
    """
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{what.replace(' ', '-')}.lock").open("a+") as lock:
        if not _locked(lock.fileno()):
            lock.seek(0)
            say(f"another {what} (process {lock.read().strip() or '?'}) is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
