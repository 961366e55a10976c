"""Is there room: asked before a long step, not found out in the middle of it."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import UnableError

GIB = 2**30


@dataclass(frozen=True)
class Need:
    """So many bytes are going to be written below this folder, which need not exist yet."""

    folder: Path
    size: int

    @property
    def existing(self) -> Path:
        """Return the folder or the nearest one above it that exists."""
        return next(path for path in (self.folder, *self.folder.parents) if path.exists())


def check(needs: Iterable[Need]) -> None:
    """Refuse when a file system has less room than everything that goes there needs together."""
    together: dict[int, list[Need]] = {}
    for need in needs:
        together.setdefault(need.existing.stat().st_dev, []).append(need)
    for parts in together.values():
        wanted = sum(part.size for part in parts)
        free = shutil.disk_usage(parts[0].existing).free
        if free < wanted:
            places = ", ".join(str(part.folder) for part in parts)
            msg = f"not enough disk: {wanted / GIB:.1f} GiB are needed for {places}, {free / GIB:.1f} GiB are free"
            raise UnableError(msg)
