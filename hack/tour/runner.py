"""Runs steps one after the other and says what came of each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from hack.tour import chart
from hack.tour.clients import Failed
from hack.tour.settings import Settings

EVENTS = 25
LOG_LINES = "40"


class Skipped(Exception):
    """The step needs something that this server does not have; the text names it."""


@dataclass(frozen=True)
class Step:
    """One step: what it shows, and the function that does it."""

    title: str
    run: Callable[[], None]


def run(steps: Sequence[Step], settings: Settings, console: Console) -> int:
    """Run the steps; return 0, or 1 at the first one that failed."""
    started = time.monotonic()
    passed = 0
    for number, step in enumerate(steps, 1):
        console.print(f"\n[bold]{number}. {step.title}[/bold]")
        try:
            step.run()
        except Skipped as reason:
            console.print(f"   skipped: {reason}", highlight=False)
        except Failed as failure:
            _report(number, step, failure, settings, console)
            return 1
        else:
            passed += 1
    _farewell(settings, console)
    console.print(f"demo: {passed} steps passed in {time.monotonic() - started:.0f} s", highlight=False)
    return 0


def _farewell(settings: Settings, console: Console) -> None:
    console.print("\nThe cluster stays up.", highlight=False)
    console.print(f"  look around:  {settings.look}", highlight=False)
    if settings.stop:
        console.print(f"  stop it:      {settings.stop}", highlight=False)


def _report(number: int, step: Step, failure: Failed, settings: Settings, console: Console) -> None:
    """Say which step failed and why, and what the cluster has to say about it."""
    console.print(f"   [red]failed[/red]: {escape(str(failure))}", highlight=False, markup=True)
    for what, look in (("events", _events), ("logs", _logs)):
        console.print(f"\n   {what}:", highlight=False)
        try:
            text = look(settings)
        except Failed as again:
            text = str(again)
        console.print("\n".join(f"     {line}" for line in text.splitlines()), highlight=False, markup=False)
    console.print(f"\ndemo: step {number} failed: {step.title}", highlight=False)


def _events(settings: Settings) -> str:
    lines = []
    for namespace in (settings.namespace, settings.pods):
        where = ["--namespace", namespace, "--sort-by", ".metadata.creationTimestamp"]
        lines += settings.clients.run("get", "events", *where).splitlines()[-EVENTS:]
    return "\n".join(lines)


def _logs(settings: Settings) -> str:
    lines = []
    for pod in [*chart.pods(settings), *chart.pods(settings, chart.CONTROLLER)]:
        name = pod["metadata"]["name"]
        lines += [
            f"{name}:",
            settings.clients.run("logs", "--namespace", settings.namespace, name, "--tail", LOG_LINES),
        ]
    return "\n".join(lines)
