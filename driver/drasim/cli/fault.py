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
from drasim.cli.books import Book, Put, opened_book, recorded
from drasim.cli.devices import Output as Form
from drasim.cli.options import Common, Node, Nodes, expanded
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

    node: Node = ""
    after: Annotated[str | None, typer.Option(metavar="TIME", help="Begin later, such as 30s.")] = None
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="End by itself, such as 5m.")] = None
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the object. Default: made of the rest.")] = ""


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """Which faults are repaired."""

    device: Annotated[str, typer.Argument(metavar="DEVICE", help="gpu-3, or as it was given to inject.")] = ""
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Only faults of this kind.")] = ""
    name: Annotated[str, typer.Option(metavar="NAME", help="The fault of that name, instead of a DEVICE's.")] = ""
    everything: Annotated[bool, typer.Option("--all", help="All faults of the Node; without --node of all.")] = False
    node: Annotated[
        str, typer.Option(metavar="NAME", help="The Node. Default for a DEVICE: $NODE_NAME, else the only one.")
    ] = ""

    def check(self) -> None:
        """Raise ConfigError unless they say one thing."""
        if sum(map(bool, (self.device, self.name, self.everything))) != 1:
            raise ConfigError("arguments", "DEVICE", "exactly one of DEVICE, --name and --all must be given")
        if self.name and self.node:
            raise ConfigError("arguments", "--node", "not allowed with --name, which is of the whole cluster")
        if self.kind:
            with _named():
                checked_kind(self.kind)


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the faults that were repaired, and what still befalls the device, being meant for others too."""

    removed: tuple[str, ...]
    left: tuple[DeviceFault, ...]


@app.command("inject")
@expanded
def inject(
    device: Device,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What is wrong.")],
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="What some kinds have: the number of an XID, or seconds.")
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    details: Details,
    common: Common,
) -> None:
    """Let a device fail.

    GPUs can have xid (CODE: its number), ecc-uncorrectable, nvlink, thermal; NICs link-down, link-flap (CODE: seconds
    of a period), crc-errors; both lost, unplugged, probe-hangs, prepare-fails, prepare-slow and unprepare-slow (CODE:
    seconds); PCIe roots down.

    Creates a DeviceFault, or writes a manifest into a file. Everything is checked before anything changes. The same
    fault again changes nothing; with other times, or another one by a name that is taken, it replaces the first.
    """
    if not device:
        raise ConfigError("arguments", "DEVICE", "empty; needed: a device such as gpu-3")
    place = {"all": device} if device in _KINDS else {"device": device}
    timing = {"after": details.after, "duration": details.duration}
    spec = DeviceFaultSpec(node=details.node, kind=kind, code=code or None, **place, **timing)
    with _named():
        checked_code(kind, code)
    fault, became = asyncio.run(_inject(spec, details.name, common))
    if output is Output.JSON:
        told = {"name": fault.metadata.name, "new": became is Put.NEW, "replaced": became is Put.REPLACED}
        typer.echo(json.dumps({**told, "spec": msgspec.to_builtins(fault.spec)}))
        return
    typer.echo(f"{became} {fault.metadata.name} ({_told(fault.spec)})")


@app.command("list")
@expanded
def list_faults(
    output: Annotated[Form, typer.Option("--output", "-o", help="Form of the output.")] = Form.TABLE,
    node: Nodes = "",
    *,
    common: Common,
) -> None:
    """Show the faults of all Nodes, or of one."""
    faults = asyncio.run(_faults(node, common))
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
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    meant: Meant,
    common: Common,
) -> None:
    """Repair a device.

    Deletes its DeviceFaults, or takes them out of a file. A fault that befalls more devices (all GPUs, a PCIe root) is
    not repaired for one of them; it is named.
    """
    meant.check()
    cleared = asyncio.run(_clear(meant, common))
    if output is Output.JSON:
        left = [fault.metadata.name for fault in cleared.left]
        typer.echo(json.dumps({"cleared": cleared.removed, "left": left}))
        return
    typer.echo("\n".join(f"cleared {name}" for name in cleared.removed) or "nothing to clear")
    for fault in cleared.left:
        typer.echo(f"still on {meant.device}: {fault.metadata.name} ({_told(fault.spec)})")


app.command("run")(scenario.run)


@contextmanager
def _named() -> Iterator[None]:
    """Raise a refused fault as an error that names the word of the command line."""
    try:
        yield
    except FaultRefused as refusal:
        raise ConfigError("arguments", _WORDS.get(refusal.field, f"--{refusal.field}"), refusal.problem) from None


async def _inject(spec: DeviceFaultSpec, name: str, common: Common) -> tuple[DeviceFault, Put]:
    """Check the fault against the machine, let it stand; return it and what became of it."""
    async with opened_book(common) as book:
        spec = msgspec.structs.replace(spec, node=await book.node(spec.node))
        with _named():
            _check(spec, await book.machine(spec.node))
        fault = recorded(_checked_name(name) or fault_name(spec), spec)
        return fault, await book.put(fault)


async def _faults(node: str, common: Common) -> list[DeviceFault]:
    """Return the faults of that Node, or of all; a Node that nobody knows is an error."""
    async with opened_book(common) as book:
        found = [fault for fault in await book.faults() if node in ("", fault.spec.node)]
        if node and not found:
            await book.check_node(node)
        return found


async def _clear(meant: Meant, common: Common) -> Cleared:
    """Repair what is meant; a device or Node that nobody knows is an error."""
    async with opened_book(common) as book:
        node = await book.node(meant.node) if meant.device else meant.node
        faults = await book.faults()
        found = [fault for fault in faults if _is_meant(fault, node, meant)]
        if not found:
            await _check_known(book, node, meant.device)
        left = tuple(fault for fault in faults if fault not in found and _befalls(fault, node, meant))
        return Cleared(
            removed=tuple([each.metadata.name or "" for each in found if await book.remove(each)]), left=left
        )


async def _check_known(book: Book, node: str, device: str) -> None:
    """Raise ConfigError for a Node that is none, or that does not have the device."""
    if not device:
        await book.check_node(node)
        return
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


def _is_meant(fault: DeviceFault, node: str, meant: Meant) -> bool:
    """Tell whether the fault is to be repaired; one that befalls more devices is meant as a whole only."""
    spec, device = fault.spec, meant.device
    if meant.name:
        return fault.metadata.name == meant.name and meant.kind in ("", spec.kind)
    if node not in ("", spec.node) or meant.kind not in ("", spec.kind):
        return False
    alone = spec.device and not ROOT.fullmatch(spec.device) and (fault.status or DeviceFaultStatus()).devices
    return not device or device in (spec.device, spec.all) or alone == (device,)


def _befalls(fault: DeviceFault, node: str, meant: Meant) -> bool:
    """Tell whether the fault befalls the device, now or later."""
    status = fault.status or DeviceFaultStatus()
    there = fault.spec.node == node and meant.device in (status.devices or ())
    return there and meant.kind in ("", fault.spec.kind) and status.phase in ("Pending", "Active")


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
