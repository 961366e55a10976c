"""``drasim devices``: what a profile would publish, without a cluster."""

import enum
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dra_plugin.naming import checked
from dra_plugin.resources import ResourceSlice, encode
from dra_plugin.slices import Owner, plan
from drasim.cli.config import ConfigFile, Settings, flags_of
from drasim.config import Config, dump_yaml, load
from drasim.devices import Published, gpu_devices, nic_devices
from drasim.hardware import Gpu, Kind
from drasim.hardware.simulated import load_profile, machine_of
from drasim.pools import build_pool

__all__ = ["DriverChoice", "Output", "devices"]

_WIDE = 200  # columns where there is no terminal


class DriverChoice(enum.StrEnum):
    """One of the two drivers."""

    GPU = "gpu"
    NIC = "nic"


class Output(enum.StrEnum):
    """Forms of output."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class _Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one driver would publish."""

    kind: Kind
    driver: str
    devices: tuple[Published, ...]
    slices: tuple[ResourceSlice, ...]
    problems: tuple[str, ...]


def devices(
    profile: Annotated[str | None, typer.Option(help="Name of a shipped profile, or path of a YAML file.")] = None,
    node: Annotated[str | None, typer.Option(help="Name of the node; UUIDs and MACs follow from it.")] = None,
    driver: Annotated[DriverChoice | None, typer.Option(help="Only this driver.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TABLE,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Print what a machine of a profile would publish: a table, or the ResourceSlices."""
    used = load(config, _flags(profile, node, settings))
    offers = _offers(used, used.node_name or "node-a", driver)
    for problem in (problem for offer in offers for problem in offer.problems):
        typer.echo(f"warning: {problem}", err=True)
    if output is Output.TABLE:
        _print_tables(offers)
    else:
        _print_slices(offers, output)


def _flags(profile: str | None, node: str | None, settings: list[str] | None) -> dict[str, str]:
    flags = flags_of(settings)
    if profile is not None:
        flags["simulation.profile"] = str(Path(profile).absolute()) if "/" in profile else profile
    if node is not None:
        flags["nodeName"] = node
    return flags


def _offers(config: Config, node: str, only: DriverChoice | None) -> list[_Offer]:
    machine = machine_of(load_profile(config.simulation.profile), node)
    offers = []
    if config.gpu.hardware != "off" and only in (None, DriverChoice.GPU):
        offers.append(_offer("gpu", config.gpu.driver, node, gpu_devices(machine.gpus)))
    if config.nic.hardware != "off" and only in (None, DriverChoice.NIC):
        offers.append(_offer("nic", config.nic.driver, node, nic_devices(machine.nics)))
    return offers


def _offer(kind: Kind, driver: str, node: str, published: tuple[Published, ...]) -> _Offer:
    result = checked(build_pool(node, kind, published), driver)
    writes = plan(result.pool, (), Owner(driver=driver, node_name=node, reference=None))
    problems = tuple(str(problem) for problem in result.problems)
    return _Offer(kind=kind, driver=driver, devices=published, slices=writes.create, problems=problems)


def _print_slices(offers: list[_Offer], output: Output) -> None:
    slices: list[dict[str, Any]] = [json.loads(encode(part)) for offer in offers for part in offer.slices]
    if output is Output.YAML:
        typer.echo(dump_yaml(slices), nl=False)
    else:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": slices}, indent=2))


def _print_tables(offers: list[_Offer]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    for offer in offers:
        console.print(_heading(offer), markup=False, highlight=False)
        console.print(_table(offer))


def _heading(offer: _Offer) -> str:
    pool = offer.slices[0].spec.pool
    plural = "" if len(offer.slices) == 1 else "s"
    return f"{offer.driver}: {len(offer.devices)} devices, pool {pool.name} in {len(offer.slices)} slice{plural}"


def _table(offer: _Offer) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    own = ("MEMORY", "UUID") if offer.kind == "gpu" else ("LINK", "RDMA", "MAC")
    for title in ("DEVICE", "MODEL", "NUMA", "PCIE ROOT", "PCI BUS ID", *own):
        table.add_column(title, no_wrap=True)
    for published in offer.devices:
        table.add_row(*_cells(published))
    return table


def _cells(published: Published) -> tuple[str, ...]:
    hardware = published.hardware
    numa = "-" if hardware.pci.numa_node is None else str(hardware.pci.numa_node)
    place = (published.name, hardware.model, numa, hardware.pci.root, hardware.pci.bus_id)
    if isinstance(hardware, Gpu):
        return (*place, str(hardware.memory), hardware.id)
    link = f"{hardware.speed_gbps} Gbit/s" if hardware.link_up else "down"
    return (*place, link, "yes" if hardware.rdma else "no", hardware.mac)
