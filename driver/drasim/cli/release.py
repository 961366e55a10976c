"""``drasim release``: settle the record of a claim that nobody will unprepare any more, or that cannot be read."""

import asyncio
import json
from typing import Annotated

import msgspec
import typer

from dra_plugin.checkpoint import Held
from dra_plugin.claims import RESOURCE_CLAIM, ClaimRef, ResourceClaim
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClaimError, ClusterError
from dra_plugin.files import read_boot_id
from dra_plugin.latest import Latest
from drasim.cli.options import Api, expanded
from drasim.cli.output import Output
from drasim.cli.reach import opened
from drasim.config import Config, for_node
from drasim.driver import driver_name, inventory_of, stores_for
from drasim.hardware import Kind
from drasim.hardware.simulated import SimulatedHardware, load_profile, machine_of
from drasim.hardware.simulated import opened as opened_machine
from drasim.preparer import Preparer

__all__ = ["Found", "held_by", "release"]

KINDS: tuple[Kind, ...] = ("gpu", "nic")
LOCK_TIMEOUT = 10.0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one driver has on record of a claim. ``damaged`` says why the record cannot be read, if it cannot."""

    kind: Kind
    driver: str
    namespace: str = ""
    name: str = ""
    phase: str = ""
    devices: tuple[str, ...] = ()
    settings: dict[str, dict[str, str | int | bool]] = {}
    damaged: str | None = None

    def __str__(self) -> str:
        """Say it for people."""
        if self.damaged is not None:
            return f"{self.driver}: a record that cannot be read ({self.damaged})"
        changed = f", settings of {', '.join(self.settings)} go back" if self.settings else ""
        return f"{self.driver}: {self.phase}, holds {', '.join(self.devices)} for {self.namespace}/{self.name}{changed}"


@expanded
def release(
    uid: Annotated[str, typer.Argument(metavar="UID", help="UID of the claim: the name of its record.")],
    force: Annotated[bool, typer.Option("--force", help="Even if the claim still exists, or nobody can tell.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
    *,
    api: Api,
) -> None:
    """Take back what this node holds for a claim that is gone.

    Does what Unprepare would do, and may be run beside a running driver.
    """
    found = asyncio.run(_release(api, uid, force=force, dry_run=dry_run))
    _report(uid, found, released=not dry_run, output=output)


async def held_by(driver: str, config: Config) -> Held:
    """Return what that driver has on record on this node; nothing is created where it never ran."""
    if not (config.paths.plugins_folder / driver).is_dir():
        return Held()
    stores = stores_for(driver, config)
    async with stores.lock.hold(LOCK_TIMEOUT) as unchanged:
        return stores.checkpoint.load(unchanged)


async def _release(api: Api, uid: str, *, force: bool, dry_run: bool) -> tuple[Found, ...]:
    config = for_node(api.used)
    found = tuple([each for kind in KINDS if (each := await _find(kind, config, uid))])
    if not found:
        raise ClaimError(f"no record of claim {uid} in {config.paths.plugins_folder}")
    if dry_run:
        return found
    if not force:
        await _check_gone(api, uid, found)
    for each in found:
        await _unprepare(config, each, ClaimRef(each.namespace, each.name, uid))
    return found


async def _find(kind: Kind, config: Config, uid: str) -> Found | None:
    driver = driver_name(kind, config)
    held = await held_by(driver, config)
    if uid in held.damaged:
        return Found(kind=kind, driver=driver, damaged=held.damaged[uid])
    if uid not in held.records:
        return None
    record = held.records[uid]
    return Found(
        kind=kind,
        driver=driver,
        namespace=record.namespace,
        name=record.name,
        phase=record.phase,
        devices=tuple(device.device for device in record.devices),
        settings=record.made.get("settings", {}),
    )


async def _check_gone(api: Api, uid: str, found: tuple[Found, ...]) -> None:
    """Raise ClaimError unless the API server says that the claim object is gone."""
    try:
        async with opened(api) as cluster:
            claims = await _candidates(cluster, next((each for each in found if each.name), None))
    except ClusterError as error:
        raise ClaimError(f"nobody can tell whether claim {uid} still exists ({error}); --force releases it") from error
    for claim in claims:
        if claim.metadata.uid == uid:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise ClaimError(f"claim {where} still exists: delete its Pods and it, or use --force")


async def _candidates(cluster: Cluster, named: Found | None) -> tuple[ResourceClaim, ...]:
    """Return the claim of that name; without a name, which a damaged record has lost, all claims."""
    if named is None:
        return (await cluster.list(RESOURCE_CLAIM)).items
    claim = await cluster.get(RESOURCE_CLAIM, named.name, named.namespace)
    return () if claim is None else (claim,)


async def _unprepare(config: Config, found: Found, ref: ClaimRef) -> None:
    machine = machine_of(load_profile(config.simulation.profile), config.node_name)
    boot_id = read_boot_id(config.paths.boot_id_file)
    async with opened_machine(machine, config.paths.state_folder, config.paths.boot_id_file) as simulated:
        hardware = SimulatedHardware(simulated, found.kind, float(config.periods.look))
        inventory = inventory_of(config.node_name, found.kind, simulated.present(found.kind))
        preparer = Preparer(found.driver, hardware, Latest(inventory), stores_for(found.driver, config), boot_id)
        await preparer.unprepare(ref)


def _report(uid: str, found: tuple[Found, ...], *, released: bool, output: Output) -> None:
    if output is Output.JSON:
        drivers = msgspec.to_builtins(found)
        typer.echo(json.dumps({"uid": uid, "released": released, "drivers": drivers}))
        return
    for each in found:
        typer.echo(f"{'released' if released else 'would release'}: {each}")
