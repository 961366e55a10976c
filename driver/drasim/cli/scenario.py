"""``drasim fault run``: play a scenario, as fast as asked, and repair what was injected when it is broken off."""

import asyncio
import json
import re
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dra_plugin.errors import PluginError
from drasim.cli.books import Book, opened_book, recorded
from drasim.cli.options import Common, expanded
from drasim.cli.output import Output
from drasim.config import ConfigError
from drasim.faults import DeviceFault
from drasim.faults.scenario import Scenario, load_scenario
from drasim.faults.timeline import Event, events_of, nodes_of

__all__ = ["BrokenOff", "Playing", "play", "run"]

_FASTEST = 1e6
_PATIENCE = 20.0  # seconds: a server that is away for a moment does not end what may have run for an hour


class BrokenOff(PluginError):
    """A scenario did not come to its end."""


class Playing(msgspec.Struct, frozen=True, kw_only=True):
    """How a scenario is played.

    Attributes:
        speed: how often faster than written.
        keep: whether what was injected stays when it is broken off.
        tell: is told of each event that was done: the event, and seconds since the start.
    """

    speed: float
    keep: bool
    tell: Callable[[Event, float], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    speed: Annotated[float, typer.Option(help="How often faster than the file says, such as 10.")] = 1.0
    node: Annotated[str, typer.Option(metavar="NAME", help="The Node, for a file that names none.")] = ""
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None
    keep: Annotated[bool, typer.Option("--keep", help="When broken off, leave what was injected.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the time line.")] = False


@expanded
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="YAML file of the scenario.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    options: Options,
    common: Common,
) -> None:
    """Play a scenario.

    That is faults and repairs on a time line, which is made and checked as a whole first: the same seed on the same
    devices gives the same events. Broken off (Ctrl-C), it repairs what it injected; at its end, what the scenario does
    not clear stays.
    """
    if not 0 < options.speed <= _FASTEST:
        raise ConfigError("arguments", "--speed", f'"{options.speed:g}" is not allowed; allowed: above 0, at most 1e6')
    loaded = load_scenario(scenario)
    if options.seed is not None:
        loaded = msgspec.structs.replace(loaded, seed=options.seed)
    left = asyncio.run(_run(loaded, scenario, options, common, _teller(output, planned=options.dry_run)))
    if output is Output.TEXT and not options.dry_run:
        typer.echo(f"done; still standing: {', '.join(left) or 'nothing'}")


async def play(events: Iterable[Event], book: Book, playing: Playing, stop: asyncio.Event) -> list[str]:
    """Do the events at their times; return the names of the faults that stand in the end.

    When ``stop`` or an error ends it before, it repairs what it injected and raises BrokenOff.
    """
    clock = asyncio.get_running_loop().time
    start = clock()
    standing: dict[str, DeviceFault] = {}
    try:
        for event in events:
            if await _stopped(stop, start + event.at / playing.speed):
                break
            await _do(event, book, standing)
            playing.tell(event, clock() - start)
        else:
            return list(standing)
    except PluginError as error:
        repaired = await _repair(book, standing, keep=playing.keep)
        raise BrokenOff(f"broken off after {clock() - start:.1f} s: {error}; {repaired}") from error
    repaired = await _repair(book, standing, keep=playing.keep)
    raise BrokenOff(f"broken off after {clock() - start:.1f} s; {repaired}")


async def _run(
    scenario: Scenario, file: Path, options: Options, common: Common, tell: Callable[[Event, float], None]
) -> list[str]:
    """Make the time line and play it, until the end or a signal."""
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with opened_book(common, _PATIENCE) as book:
        events = await _events(scenario, file, book, options.node)
        if options.dry_run:
            for event in events:
                tell(event, event.at)
            return []
        return await play(events, book, Playing(speed=options.speed, keep=options.keep, tell=tell), stop)


async def _events(scenario: Scenario, file: Path, book: Book, node: str) -> tuple[Event, ...]:
    named = all(step.inject is None or step.inject.node or scenario.node for step in scenario.steps)
    node = node if named else await book.node(node)
    nodes = nodes_of(scenario, node, str(file))
    if node and nodes and node not in nodes:
        raise ConfigError("arguments", "--node", f'"{node}" is not in the scenario; allowed: {", ".join(nodes)}')
    machines = {name: await book.machine(name) for name in nodes}
    stem = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "scenario"
    return events_of(scenario, machines, node, str(file), stem)


async def _stopped(stop: asyncio.Event, at: float) -> bool:
    """Wait until that time of the loop, or until stopped; return whether it was stopped."""
    try:
        async with asyncio.timeout_at(at):
            await stop.wait()
    except TimeoutError:
        return stop.is_set()
    return True


async def _do(event: Event, book: Book, standing: dict[str, DeviceFault]) -> None:
    fault = recorded(event.name, event.spec)
    if event.action == "inject":
        standing[event.name] = fault  # before: an answer that never comes may have been a success
        await book.put(fault)
    else:
        await book.remove(fault)
        standing.pop(event.name, None)


async def _repair(book: Book, standing: dict[str, DeviceFault], *, keep: bool) -> str:
    """Repair what stands, unless it is to be kept; return what became of it, for people."""
    left = dict(standing)
    problem = ""
    for name, fault in () if keep else standing.items():
        try:
            await book.remove(fault)
        except PluginError as error:
            problem = f" ({error})"
            break  # the server was asked for long enough
        del left[name]
    repaired = [name for name in standing if name not in left]
    return f"repaired: {', '.join(repaired) or 'nothing'}; left: {', '.join(left) or 'nothing'}{problem}"


def _teller(output: Output, *, planned: bool) -> Callable[[Event, float], None]:
    """Return what prints an event, done or ``planned``: a line for people, or a JSON object in a line."""

    def tell(event: Event, seconds: float) -> None:
        if output is Output.TEXT:
            typer.echo(str(event))
            return
        done = {} if planned else {"done": round(seconds, 3)}
        what = {"action": event.action, "name": event.name, "spec": msgspec.to_builtins(event.spec)}
        typer.echo(json.dumps({"at": event.at, **done, **what}))

    return tell
