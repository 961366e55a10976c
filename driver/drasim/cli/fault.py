"""``drasim fault``: tell devices to fail, look at that, repair them."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer

from drasim.cli import scenario
from drasim.cli.books import Book, opened_book, recorded
from drasim.cli.devices import Output as Form
from drasim.cli.options import Common, expanded
from drasim.cli.output import Output, columns
from drasim.config import ConfigError, dump_yaml
from drasim.faults import DeviceFault, DeviceFaultSpec, DeviceFaultStatus
from drasim.faults.manifests import check_spec, manifest_of
from drasim.faults.objects import fault_name, where
from drasim.faults.wanted import moment
from drasim.hardware.simulated import Machine
from drasim.hardware.simulated.faults import ROOT, FaultRefused, checked_code, checked_kind, resolve

__all__ = ["app", "clear", "inject", "list_faults"]

_KINDS = ("gpu", "nic")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_WORDS = {"device": "DEVICE", "all": "DEVICE", "kind": "KIND", "code": "CODE"}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

app = typer.Typer(help="Tell devices to fail, and repair them.", no_args_is_help=True)

Device = Annotated[str, typer.Argument(metavar="DEVICE", help="gpu-3, a UUID, a PCI address, a root; gpu or nic: all.")]


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault may have besides."""

    after: Annotated[str | None, typer.Option(metavar="TIME", help="Begin later, such as 30s.")] = None
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="End by itself, such as 5m.")] = None
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the object. Default: made of the rest.")] = ""


@app.command("inject")
@expanded
def inject(
    device: Device,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What is wrong: xid, lost, link-down, prepare-fails ...")],
    code: Annotated[str, typer.Argument(metavar="CODE", help="Number of an XID; seconds of a slow prepare.")] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    details: Details,
    common: Common,
) -> None:
    """Let a device fail.

    Creates a DeviceFault, or writes a manifest into a file. Everything is checked before anything changes; what stands
    already stays as it is.
    """
    place = {"all": device} if device in _KINDS else {"device": device}
    timing = {"after": details.after, "duration": details.duration}
    spec = DeviceFaultSpec(node=common.node, kind=kind, code=code or None, **place, **timing)
    with _named():
        checked_code(kind, code)
    fault, new = asyncio.run(_inject(spec, details.name, common))
    if output is Output.JSON:
        typer.echo(json.dumps({"name": fault.metadata.name, "new": new, "spec": msgspec.to_builtins(fault.spec)}))
        return
    typer.echo(f"{'injected' if new else 'stands already:'} {fault.metadata.name} ({_told(fault.spec)})")


@app.command("list")
@expanded
def list_faults(
    output: Annotated[Form, typer.Option("--output", "-o", help="Form of the output.")] = Form.TABLE,
    *,
    common: Common,
) -> None:
    """Show the faults of all nodes, or of one."""
    faults = asyncio.run(_faults(common))
    manifests = [{**manifest_of(fault), "status": msgspec.to_builtins(fault.status or {})} for fault in faults]
    if output is Form.JSON:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}, indent=2))
    elif output is Form.YAML:
        typer.echo(dump_yaml(manifests), nl=False)
    else:
        _print_table(faults)


@app.command("clear")
@expanded
def clear(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="As it was given to inject, or its name.")] = "",
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Only faults of this kind.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All faults of the node; without --node of all.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    common: Common,
) -> None:
    """Repair a device.

    Deletes its DeviceFaults, or takes them out of a file.
    """
    if bool(device) == everything:
        raise ConfigError("arguments", "DEVICE", "exactly one of DEVICE and --all must be given")
    if kind:
        with _named():
            checked_kind(kind)
    removed = asyncio.run(_clear(device, kind, common))
    if output is Output.JSON:
        typer.echo(json.dumps({"cleared": removed}))
    elif not removed:
        typer.echo("nothing to clear")
    else:
        typer.echo("\n".join(f"cleared {name}" for name in removed))


app.command("run")(scenario.run)


@contextmanager
def _named() -> Iterator[None]:
    """Raise a refused fault as an error that names the word of the command line."""
    try:
        yield
    except FaultRefused as refusal:
        raise ConfigError("arguments", _WORDS.get(refusal.field, f"--{refusal.field}"), refusal.problem) from None


async def _inject(spec: DeviceFaultSpec, name: str, common: Common) -> tuple[DeviceFault, bool]:
    """Check the fault against the machine, let it stand; return it and whether it is new."""
    async with opened_book(common.used, common.file) as book:
        spec = msgspec.structs.replace(spec, node=await book.node(spec.node))
        with _named():
            _check(spec, await book.machine(spec.node))
        fault = recorded(_checked_name(name) or fault_name(spec), spec)
        return fault, await book.put(fault)


async def _faults(common: Common) -> list[DeviceFault]:
    async with opened_book(common.used, common.file) as book:
        return [fault for fault in await book.faults() if common.node in ("", fault.spec.node)]


async def _clear(device: str, kind: str, common: Common) -> list[str]:
    """Repair what is meant and return the names; a device that nobody knows is an error."""
    async with opened_book(common.used, common.file) as book:
        node = await book.node(common.node) if device else common.node
        meant = [fault for fault in await book.faults() if _is_meant(fault, node, device, kind)]
        if device and not meant:
            await _check_known(book, node, device)
        return [fault.metadata.name or "" for fault in meant if await book.remove(fault)]


async def _check_known(book: Book, node: str, device: str) -> None:
    """Raise ConfigError unless the node has that device."""
    machine, kind = await book.machine(node), "down" if ROOT.fullmatch(device) else "lost"
    with _named():
        resolve(machine, kind, **({"every": device} if device in _KINDS else {"device": device}))


def _check(spec: DeviceFaultSpec, machine: Machine) -> None:
    check_spec(spec)
    resolve(machine, spec.kind, spec.code or "", device=spec.device or "", every=spec.all or "")


def _checked_name(name: str) -> str:
    if name and not (_NAME.fullmatch(name) and len(name) <= _LONGEST_NAME):
        problem = f'"{name}" is not allowed; allowed: lower-case letters, digits, - and dots, at most {_LONGEST_NAME}'
        raise ConfigError("arguments", "--name", problem)
    return name


def _is_meant(fault: DeviceFault, node: str, device: str, kind: str) -> bool:
    """Tell whether the fault is on that node and device; one that befalls more devices is meant as a whole only."""
    spec = fault.spec
    if node not in ("", spec.node) or kind not in ("", spec.kind):
        return False
    alone = (fault.status or DeviceFaultStatus()).devices if spec.device and not ROOT.fullmatch(spec.device) else None
    return not device or device in (spec.device, spec.all) or alone == (device,)


def _told(spec: DeviceFaultSpec) -> str:
    """Return the fault for people."""
    times = f"{f', after {spec.after}' if spec.after else ''}{f', for {spec.duration}' if spec.duration else ''}"
    return f"{' '.join(filter(None, (spec.kind, spec.code)))} on {where(spec)} of {spec.node}{times}"


def _print_table(faults: list[DeviceFault]) -> None:
    now = time.time()
    rows = [("NAME", "NODE", "DEVICE", "KIND", "CODE", "PHASE", "AGE", "REASON"), *(_row(each, now) for each in faults)]
    typer.echo("\n".join(columns(rows)) if faults else "no faults")


def _row(fault: DeviceFault, now: float) -> tuple[str, ...]:
    status, spec = fault.status or DeviceFaultStatus(), fault.spec
    created = moment(fault.metadata.creation_timestamp)
    age = "-" if created is None else _age(max(0, int(now - created)))
    cells: tuple[Any, ...] = (fault.metadata.name, spec.node, where(spec), spec.kind, spec.code, status.phase)
    return (*(cell or "-" for cell in cells), age, status.reason or "")


def _age(seconds: int) -> str:
    """Return an age as kubectl shows it, in its largest unit."""
    number, unit = next(((seconds // size, unit) for size, unit in _UNITS if seconds >= size), (0, "s"))
    return f"{number}{unit}"
