"""What the commands for people share: the forms of output, and the configuration of a command."""

import enum
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from drasim.cli.config import flags_of
from drasim.cli.node import environment
from drasim.config import Config, load

__all__ = ["Output", "columns", "configured"]


class Output(enum.StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


def configured(file: Path | None, settings: list[str] | None) -> Config:
    """Return the configuration of a command: the file, then the environment, then ``--set``. Raises ConfigError."""
    return load(file, {**environment(os.environ), **flags_of(settings)})


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table as wide as its cells: a terminal may wrap what a program has to read whole."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
