"""How far a long step is: a bar on a terminal, a plain line now and then elsewhere."""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

LINE_EVERY = 15.0
BAR_EVERY = 0.1


class Tally:
    """Counts the packages that `go build -v` names as it compiles them, of those known to be stale."""

    def __init__(self, stale: frozenset[str]) -> None:
        """Start with nothing compiled."""
        self.stale = stale
        self.compiled: set[str] = set()
        self.other: list[str] = []

    def feed(self, line: str) -> None:
        """Take one line of the build's output; what is not a package's name is kept, as it may be an error."""
        word = line.strip()
        if word in self.stale:
            self.compiled.add(word)
        elif word:
            self.other.append(word)

    @property
    def done(self) -> int:
        """Return the number of packages compiled or being compiled."""
        return len(self.compiled)


def bar(done: int, total: int, width: int) -> str:
    """Return a bar of so many characters."""
    filled = width if total <= 0 else min(width, width * done // total)
    return "█" * filled + "░" * (width - filled)


class Progress:
    """Prints steps and how far they are; what it prints depends on whether a person watches a terminal."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Print to this stream."""
        self._out = out
        self._clock = clock
        self._terminal = out.isatty()
        self._next = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self._clear()
        print(text, file=self._out, flush=True)

    def count(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` are done; cheap enough to be called in a loop."""
        self._show(f"{done}/{total} {what}", f"{bar(done, total, 30)} ")

    def tick(self, text: str) -> None:
        """Show a step whose end cannot be counted; as cheap as `count`."""
        self._show(text, "")

    def _show(self, text: str, drawn: str) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (BAR_EVERY if self._terminal else LINE_EVERY)
        if self._terminal:
            self._draw(drawn + text)
        else:
            print(f"  {text}", file=self._out, flush=True)

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._out.write("\r\x1b[K" + text[:width])
        self._out.flush()
        self._open = True

    def _clear(self) -> None:
        if self._open:
            self._out.write("\r\x1b[K")
            self._open = False
