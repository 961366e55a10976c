"""The forms of output that the commands for people share."""

import enum
from collections.abc import Iterator, Sequence

__all__ = ["Output", "columns"]


class Output(enum.StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table as wide as its cells: a terminal may wrap what a program has to read whole."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
