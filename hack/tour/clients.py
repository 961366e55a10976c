"""kubectl, Helm and drasim as commands, and answers that are read as JSON."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Object = dict[str, Any]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PAUSE = 0.2
COMMAND_TIMEOUT = 180.0


class Failed(Exception):
    """Something is not as expected; the text says what was expected and what came instead."""


@dataclass(frozen=True)
class Clients:
    """The commands, each a list of words, and the environment they need."""

    kubectl: tuple[str, ...]
    helm: tuple[str, ...]
    environment: Mapping[str, str]
    drasim: tuple[str, ...] = ("hack/drasim",)

    def run(self, *words: str, given: str | None = None) -> str:
        """Run kubectl and return what it printed. Raises Failed with what it complained about."""
        return self._run([*self.kubectl, *words], given)

    def chart(self, *words: str) -> str:
        """Run Helm and return what it printed. Raises Failed with what it complained about."""
        return self._run([*self.helm, *words], None)

    def driver(self, *words: str) -> str:
        """Run drasim and return what it printed. Raises Failed with what it complained about."""
        return self._run([*self.drasim, *words], None)

    def get(self, *words: str) -> Object:
        """Return an object, or a list of them, as JSON."""
        read: Object = json.loads(self.run("get", *words, "--output", "json"))
        return read

    def items(self, *words: str) -> list[Object]:
        """Return a list of objects."""
        found: list[Object] = self.get(*words)["items"]
        return found

    def find(self, *words: str) -> Object | None:
        """Return an object, or None when there is none."""
        text = self.run("get", *words, "--output", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def apply(self, manifest: str, namespace: str) -> str:
        """Apply YAML or JSON and return what changed."""
        return self.run("apply", "--namespace", namespace, "--filename", "-", given=manifest)

    def _run(self, command: list[str], given: str | None) -> str:
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                text=True,
                check=False,
                cwd=CHECKOUT,
                env=dict(self.environment),
                timeout=COMMAND_TIMEOUT,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"`{' '.join(command)}` did not end within {COMMAND_TIMEOUT:.0f} s") from late
        if done.returncode:
            raise Failed(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def wait_for(what: str, condition: Callable[[], T | None], within: float = 60.0) -> T:
    """Return the first result of `condition` that is true. Raises Failed with the last one when there was none.

    A condition may raise Failed to say what is missing; its text ends up in the error.
    """
    end = time.monotonic() + within
    seen: object = None
    while True:
        try:
            if result := condition():
                return result
            seen = result
        except Failed as missing:
            seen = missing
        if time.monotonic() > end:
            raise Failed(f"expected within {within:.0f} s: {what}" + (f"; seen: {seen}" if seen else ""))
        time.sleep(PAUSE)
