"""The command: what is asked for, how often, and in which form it is printed."""

import asyncio
import enum
import shutil
import sys
import textwrap
import time
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from dra_plugin.cluster import Cluster
from dra_plugin.latest import follow
from drasim.cli.options import Api, Nodes, expanded
from drasim.cli.reach import opened
from drasim.cli.status.notes import UNREAD, notes, summary
from drasim.cli.status.objects import Snapshot
from drasim.cli.status.reading import SLICES, Current, Wanted, current, read
from drasim.cli.status.table import table
from drasim.cli.status.view import DeviceRow, Scope, concerns, view
from drasim.config import Config
from drasim.devices import pool_name
from drasim.driver import driver_name
from drasim.hardware import Kind

__all__ = ["Asked", "Form", "Frame", "Printer", "fitted", "frame_of", "show_on", "show_once", "status"]

KINDS: tuple[Kind, ...] = ("gpu", "nic")
WIDTH = 120
"""Characters of a line where there is no terminal that says otherwise."""

_CLEAR = "\x1b[H\x1b[2J"
_CALM = 0.1  # seconds in which changes are gathered: slices of many devices change one after the other
_TICK = 1.0  # seconds after which a terminal is drawn again, for the ages


class Form(enum.StrEnum):
    """Forms of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line asks for."""

    wanted: Wanted
    scope: Scope
    everything: bool = False
    form: Form = Form.TABLE


class Frame(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is shown at one time: the devices, how many others there are, and what else is to be said."""

    devices: tuple[DeviceRow, ...]
    others: int
    notes: tuple[str, ...]


@expanded
def status(
    api: Api,
    node: Nodes = "",
    everything: Annotated[bool, typer.Option("--all", "-A", help="Also devices that are well and unused.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes.")] = False,
    output: Annotated[Form, typer.Option("--output", "-o", help="Form of the output.")] = Form.TABLE,
) -> None:
    """Show devices that have problems or are in use.

    Health, problems, taints, rules, claims and Pods: all of it is read from the API server, and what may not be read
    is said. Of a device that is not published, DeviceFaults say what is wrong. The form "wide" folds nothing and names
    the rules. With --watch, JSON is one document a line.
    """
    asked = _asked(api.used, node, everything=everything, form=output)
    with suppress(*([KeyboardInterrupt] if watch else [])):  # the way to end it
        asyncio.run(_show(api, asked, watch=watch))


def frame_of(snapshot: Snapshot, asked: Asked) -> Frame:
    """Return what to show of a snapshot."""
    rows = view(snapshot, asked.scope)
    shown = rows if asked.everything else tuple(row for row in rows if concerns(row))
    said = tuple(notes(snapshot, rows, asked.scope, time.time()))
    return Frame(devices=shown, others=len(rows) - len(shown), notes=said)


async def show_once(cluster: Cluster, asked: Asked, printer: "Printer") -> None:
    """Print what is so now. Raises Retryable when the API server does not answer, Exit when devices cannot be read."""
    snapshot = await read(cluster, asked.wanted)
    printer.show(frame_of(snapshot, asked))
    if any(text.startswith(SLICES) for text in snapshot.unread):
        raise typer.Exit(1)


async def show_on(cluster: Cluster, asked: Asked, printer: "Printer") -> None:
    """Print what is so whenever it changes, until cancelled."""
    loop = asyncio.get_running_loop()
    async with current(cluster, asked.wanted) as now:
        changes = follow(*now.changes, until=lambda: loop.time() + _TICK if printer.redraws else None)
        async with aclosing(changes):
            async for _ in changes:
                await _show_known(now, asked, printer)


class Printer:
    """Prints frames: a terminal is drawn over, everything else gets what differs from the last one, below it."""

    def __init__(self, form: Form, *, redraws: bool = False, following: bool = False) -> None:
        """Print in that form. ``redraws``: over the last one; ``following``: one of many."""
        self.redraws = redraws
        self._form, self._following = form, following
        self._last: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Print the frame, unless it says what the last one said and nobody looks at its ages."""
        if frame == self._last and not self.redraws:
            return
        text = self._json(frame) if self._form is Form.JSON else self._table(frame)
        again = "\n" if self._last and self._form is not Form.JSON and not self.redraws else ""
        typer.echo(f"{_CLEAR if self.redraws else again}{text}", color=self.redraws or None)
        self._last = frame

    def _json(self, frame: Frame) -> str:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        document: dict[str, Any] = {"at": at, **msgspec.to_builtins(frame)}
        encoded = msgspec.json.encode(document)
        return (encoded if self._following else msgspec.json.format(encoded, indent=2)).decode()

    def _table(self, frame: Frame) -> str:
        """Return the table and what is to be said below it; on a terminal, as much of it as fits."""
        size = shutil.get_terminal_size((WIDTH, 0))
        terminal = sys.stdout.isatty()
        width = None if self._form is Form.WIDE else (size.columns if terminal else WIDTH)
        rows = table(frame.devices, time.time(), width, color=terminal)
        unread = any(note.startswith(UNREAD) for note in frame.notes)
        last = summary(len(frame.devices), len(frame.devices) + frame.others, unread=unread)
        lines, below = [*(rows if frame.devices else ())], [*frame.notes, last]
        return "\n".join(fitted(lines, below, size.lines - 1, size.columns) if self.redraws else [*lines, *below])


def fitted(lines: list[str], below: list[str], room: int, width: int) -> list[str]:
    """Return at most ``room`` lines, all where nobody knows it (0); those ``below`` say what matters and go last.

    They are folded to ``width`` characters: a terminal that does it itself would need more lines.
    """
    if room < 1:
        return [*lines, *below]
    below = [part for text in below for part in textwrap.wrap(text, width)]
    if len(lines) + len(below) <= room:
        return [*lines, *below]
    kept = max(0, room - 1 - len(below))
    return [*lines[:kept], f"... {len(lines) - kept} more lines", *below][:room]


def _asked(config: Config, node: str, *, everything: bool, form: Form) -> Asked:
    drivers = tuple(driver_name(kind, config) for kind in KINDS)
    pools = frozenset(pool_name(node, kind) for kind in KINDS) if node else None
    wanted = Wanted(
        drivers=drivers, node=node, controller=config.controller.name, namespace=config.controller.namespace
    )
    return Asked(wanted=wanted, scope=Scope(drivers=drivers, pools=pools), everything=everything, form=form)


async def _show_known(now: Current, asked: Asked, printer: Printer) -> None:
    """Print what is known, once there is something; then leave others time to change more."""
    if now.known:
        printer.show(frame_of(await now.snapshot(), asked))
        await asyncio.sleep(_CALM)


async def _show(api: Api, asked: Asked, *, watch: bool) -> None:
    redraws = watch and asked.form is not Form.JSON and sys.stdout.isatty()
    printer = Printer(asked.form, redraws=redraws, following=watch)
    async with opened(api) as cluster:
        await (show_on if watch else show_once)(cluster, asked, printer)
