"""What a claim means on this node: its devices and the settings they get. Pure: values in, values out."""

from collections.abc import Iterable, Mapping

import msgspec

from dra_plugin.checkpoint import Held, holders
from dra_plugin.claims import Claim, Result, config_for
from dra_plugin.errors import ClaimError
from drasim.devices import Published
from drasim.hardware import Kind, Setting
from drasim.opaque import settings_for

__all__ = ["Inventory", "PlannedDevice", "plan_claim"]


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What one driver offers on this node.

    Attributes:
        kind: what its devices are.
        pool: name of the driver's pool.
        devices: the published devices by name.
    """

    kind: Kind
    pool: str
    devices: Mapping[str, Published]


class PlannedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a claim, or one share of it, with the settings that the claim's parameters ask for.

    Without settings the node's static CDI spec is all that the claim needs.
    """

    published: Published
    requests: tuple[str, ...]
    share_id: str | None = None
    admin_access: bool | None = None
    settings: Mapping[str, Setting] = {}


def plan_claim(claim: Claim, inventory: Inventory, held: Held) -> tuple[PlannedDevice, ...]:
    """Return what preparing ``claim`` means while ``held`` is what this node has promised already.

    What is wrong with a device does not matter here: that is for its taints, which a claim may tolerate. Raises
    ClaimError for a device that is gone, held by another claim or perhaps held by a damaged record, and for
    parameters that do not fit.
    """
    devices = tuple(_planned(claim, results, inventory) for results in _by_device(claim))
    for device in devices:
        _refuse_double_use(claim, device, inventory.pool, held)
    return devices


def _by_device(claim: Claim) -> Iterable[tuple[Result, ...]]:
    """Group the results that mean the same thing (one device, or one share of it), in the allocation's order."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in claim.results:
        key = (result.pool, result.device, result.share_id, bool(result.admin_access))
        groups.setdefault(key, []).append(result)
    return (tuple(group) for group in groups.values())


def _planned(claim: Claim, results: tuple[Result, ...], inventory: Inventory) -> PlannedDevice:
    first = results[0]
    planned = PlannedDevice(
        published=_published(first, inventory),
        requests=tuple(dict.fromkeys(result.request for result in results)),
        share_id=first.share_id,
        admin_access=first.admin_access,
        settings=_settings(claim, results, inventory),
    )
    if planned.admin_access and planned.settings:
        raise ClaimError(f"device {first.device}: a claim with admin access cannot change settings of a device")
    return planned


def _published(result: Result, inventory: Inventory) -> Published:
    if result.pool != inventory.pool:
        raise ClaimError(
            f"device {result.device}: pool {result.pool} is not of this node (its pool is {inventory.pool})"
        )
    if result.device not in inventory.devices:
        where = f"device {result.device} of pool {result.pool}"
        raise ClaimError(f"{where} is gone from this node: it was unplugged after the claim was allocated")
    return inventory.devices[result.device]


def _settings(claim: Claim, results: tuple[Result, ...], inventory: Inventory) -> dict[str, Setting]:
    """Return the settings that were asked for, by the parameters' names; what nobody asked for is not in it."""
    return settings_for(inventory.kind, [entry for result in results for entry in config_for(claim, result)])


def _refuse_double_use(claim: Claim, device: PlannedDevice, pool: str, held: Held) -> None:
    """Raise ClaimError where another claim holds the device, or may hold it (a record that cannot be read)."""
    if device.admin_access:
        return
    name = device.published.name
    for record in holders(held, pool, name, share_id=device.share_id):
        if record.uid != claim.ref.uid:
            raise ClaimError(f"device {name} is in use by claim {record.namespace}/{record.name}")
    if claim.ref.uid not in held.records and claim.ref.uid not in held.damaged:
        _refuse_unknown_holder(name, held)


def _refuse_unknown_holder(name: str, held: Held) -> None:
    for uid, reason in held.damaged.items():
        raise ClaimError(
            f"device {name} may be in use: the record of claim {uid} is damaged ({reason}); "
            f"`drasim release {uid}` settles it"
        )
