"""``drasim devices``: what a profile would publish, without a cluster."""

import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dra_plugin.naming import checked
from dra_plugin.resources import ResourceSlice, encode
from dra_plugin.slices import Owner, plan
from drasim.cli.config import ConfigFile, Settings, flags_of
from drasim.config import Config, ConfigError, dump_yaml, load
from drasim.devices import Published, gpu_devices, nic_devices
from drasim.hardware import Gpu, Kind
from drasim.hardware.simulated import load_profile, machine_of
from drasim.pools import build_pool

__all__ = ["DriverChoice", "Output", "devices"]


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
    """Print what a machine of a profile would publish.

    A table, or the ResourceSlices: `kubectl create -f -` takes both forms (the server gives them their names).
    """
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
    if not offers:
        off = "gpu" if only is DriverChoice.GPU or only is None else "nic"
        raise ConfigError("config", f"{off}.hardware", '"off" leaves nothing to show; allowed: simulated')
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
    typer.echo("\n\n".join("\n".join((_heading(offer), *_table(offer))) for offer in offers))


def _heading(offer: _Offer) -> str:
    devices, slices = _counted(len(offer.devices), "device"), _counted(len(offer.slices), "slice")
    return f"{offer.driver}: {devices}, pool {offer.slices[0].spec.pool.name} in {slices}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _table(offer: _Offer) -> Iterator[str]:
    """Yield the lines of a table as wide as its cells: a terminal may wrap what a program has to read whole."""
    own = ("MEMORY", "UUID") if offer.kind == "gpu" else ("LINK", "RDMA", "MAC")
    rows = [("DEVICE", "MODEL", "NUMA", "PCIE ROOT", "PCI BUS ID", *own), *map(_cells, offer.devices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(published: Published) -> tuple[str, ...]:
    hardware = published.hardware
    numa = "-" if hardware.pci.numa_node is None else str(hardware.pci.numa_node)
    place = (published.name, hardware.model, numa, hardware.pci.root, hardware.pci.bus_id)
    if isinstance(hardware, Gpu):
        return (*place, str(hardware.memory), hardware.id)
    link = f"{hardware.speed_gbps} Gbit/s" if hardware.link_up else "down"
    return (*place, link, "yes" if hardware.rdma else "no", hardware.mac)
