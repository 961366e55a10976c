"""``drasim uninstall``: remove what the drivers published and left, on purpose (stopping them leaves their slices)."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dra_plugin.cdi import CdiFolder
from dra_plugin.cluster import Cluster, Selector
from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.files import is_listening
from dra_plugin.resources import RESOURCE_SLICE, ResourceSlice
from drasim.cli.options import Api, expanded
from drasim.cli.output import Output
from drasim.cli.reach import opened
from drasim.cli.release import KINDS, held_by
from drasim.config import Config, for_node
from drasim.driver import driver_name
from drasim.edits import claim_kind, static_kind
from drasim.hardware.simulated import state_files

__all__ = ["Removed", "uninstall"]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    slices: list[str]
    files: list[str]


@expanded
def uninstall(
    everywhere: Annotated[bool, typer.Option("--all", help="Slices of all nodes, not of this one only.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Though claims are prepared or a driver runs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    api: Api,
) -> None:
    """Remove both drivers' ResourceSlices and files.

    The files are those on this node: sockets, CDI specs, records, the simulated machine's state.
    """
    removed = asyncio.run(_uninstall(api, everywhere=everywhere, force=force, dry_run=dry_run))
    if output is Output.JSON:
        typer.echo(json.dumps({"removed": not dry_run, **msgspec.to_builtins(removed)}))
        return
    for what in (*removed.slices, *removed.files):
        typer.echo(f"{'would remove' if dry_run else 'removed'} {what}")


async def _uninstall(api: Api, *, everywhere: bool, force: bool, dry_run: bool) -> Removed:
    config = api.used if everywhere else for_node(api.used)
    drivers = [driver_name(kind, config) for kind in KINDS]
    if not force:
        for driver in drivers:
            await _check_unused(driver, config)
    node = {} if everywhere else {"spec.nodeName": config.node_name}
    selectors = [Selector(fields={"spec.driver": driver, **node}) for driver in drivers]
    async with opened(api) as cluster:
        slices = [name for each in selectors for name in await _remove_slices(cluster, each, dry_run=dry_run)]
    files = [path for driver in drivers for path in _remove_files(driver, config, dry_run=dry_run)]
    files += _remove_state(config.paths.state_folder, dry_run=dry_run)
    return Removed(slices=slices, files=[str(path) for path in files])


async def _remove_slices(cluster: Cluster, selector: Selector, *, dry_run: bool) -> list[str]:
    slices = (await cluster.list(RESOURCE_SLICE, selector)).items
    for each in () if dry_run else slices:
        await cluster.delete(RESOURCE_SLICE, _any_version(each))
    return [f"ResourceSlice {each.metadata.name}" for each in slices]


def _any_version(each: ResourceSlice) -> ResourceSlice:
    """Return the slice without its version: it goes whatever was last written to it."""
    return msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, resource_version=None))


async def _check_unused(driver: str, config: Config) -> None:
    """Raise ClaimError while claims are prepared, SetupError while an instance lives."""
    held = await held_by(driver, config)
    names = [f"{record.namespace}/{record.name}" for record in held.records.values()] + [*held.damaged]
    if names:
        raise ClaimError(f"{driver} has prepared claims: {', '.join(names)}; delete their Pods, or use --force")
    for path in _sockets(driver, config):
        if is_listening(path):
            raise SetupError(f"{driver} is running (somebody listens on {path}); stop it, or use --force")


def _sockets(driver: str, config: Config) -> Iterator[Path]:
    yield from (path for path in config.paths.registry_folder.glob(f"{driver}-*reg.sock") if path.is_socket())
    yield from (path for path in (config.paths.plugins_folder / driver).glob("dra*.sock") if path.is_socket())


def _remove_files(driver: str, config: Config, *, dry_run: bool) -> Iterator[Path]:
    """Remove CDI specs, registration sockets and the driver's folder; yield each that was there."""
    cdi = CdiFolder(config.paths.cdi_folder)
    specs = [path for kind in (static_kind(driver), claim_kind(driver)) for path in cdi.paths(kind)]
    sockets = config.paths.registry_folder.glob(f"{driver}-*reg.sock")
    yield from _remove([*specs, *sockets, config.paths.plugins_folder / driver], dry_run=dry_run)


def _remove_state(folder: Path, *, dry_run: bool) -> Iterator[Path]:
    """Remove the simulated machine's files, and the folder when nothing else is in it: users choose it."""
    ours = state_files(folder)
    others = set(folder.iterdir()) - set(ours) if folder.is_dir() else set()
    yield from _remove([*ours, *(() if others else (folder,))], dry_run=dry_run)


def _remove(paths: list[Path], *, dry_run: bool) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            continue
        yield path
        if dry_run:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
