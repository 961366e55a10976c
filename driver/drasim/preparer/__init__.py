"""Preparer: carries out what a claim means. Record, hardware, CDI, record - and back.

A record is written before anything is made (STARTED) and after everything is (DONE), so that a crash at any point
leaves a record from which the rest can be done or undone. A claim that needs nothing but files is written once. A
record of another boot keeps its promise (who holds which device); what was made for it is gone, and made again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint, Held, HeldDevice, Record
from dra_plugin.claims import Claim, ClaimRef
from dra_plugin.errors import ClaimError
from dra_plugin.latest import Latest
from dra_plugin.locks import DeviceLocks, FileLock
from dra_plugin.plugin import PreparedDevice
from drasim.edits import cdi_id, claim_devices, claim_kind, static_devices, static_kind
from drasim.hardware import DeviceLost, Hardware, HardwareError, NotSupported
from drasim.planning import Inventory, PlannedDevice, plan_claim
from drasim.preparer.records import (
    Holdings,
    answer,
    hardware_of,
    held_device,
    name_of,
    names_same,
    settings_of,
    steps_of,
)

__all__ = ["Preparer", "Stores"]

T = TypeVar("T")

PATIENCE = 40.0
"""Seconds to wait for a lock or for hardware that fails: the kubelet gives a call 45."""


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Where a driver keeps what it promised and made. Two instances of the driver share all of it."""

    lock: FileLock
    devices: DeviceLocks
    checkpoint: Checkpoint
    cdi: CdiFolder


class Preparer:
    """Prepares and unprepares the claims of one driver on this node; implements ``dra_plugin.plugin.Plugin``.

    Attributes:
        damaged: why the record of a claim cannot be read, by the claim's UID.
        prepared: how many claims have a record.
        held: the hardware identities of all devices in these records, shares and admin access included.
    """

    def __init__(
        self,
        driver: str,
        hardware: Hardware,
        inventory: Latest[Inventory | None],
        stores: Stores,
        boot_id: str,
        patience: float = PATIENCE,
    ) -> None:
        """Work for ``driver``; ``inventory`` is None until the hardware was looked at, calls wait for it."""
        self._driver = driver
        self._hardware = hardware
        self._inventory = inventory
        self._stores = stores
        self._boot_id = boot_id
        self._patience = patience
        self._index = Held()
        self._holdings = Holdings(())
        self.damaged: Latest[Mapping[str, str]] = Latest({})
        self.prepared: Latest[int] = Latest(0)
        self.held: Latest[frozenset[str]] = Latest(frozenset())

    async def prepare(self, claim: Claim) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices ready; for a claim that is prepared already, answer the same."""
        inventory = await self._look()
        record = await self._finished(claim)
        if record is None:
            await self._admit(claim, inventory)
            record = await self._promise(claim, inventory)
        if record is None:
            await self.unprepare(claim.ref)
            record = await self._promise(claim, inventory)
        if record is None:
            raise ClaimError("the claim's allocation changed while it was being prepared")
        if record.phase == "STARTED":
            await self._make(record, inventory)
        self._resolve(record, inventory)
        return answer(record)

    async def unprepare(self, ref: ClaimRef) -> None:
        """Take back everything that was made for the claim, in reverse; an unknown claim is a success."""
        dismissed = self._index.records.get(ref.uid)  # as it was seen last: most often it still is
        while True:
            await self._dismiss(dismissed)
            record = await self._withdraw(ref, dismissed)
            if record is None:
                break
            if hardware_of(record) == hardware_of(dismissed):
                await self._unmake(record)
                break
            dismissed = record

    async def sweep(self) -> None:
        """Remove claim specs that no record knows (left by a crash), and learn which records are damaged."""
        async with self._held() as held:
            kind = claim_kind(self._driver)
            self._stores.cdi.clear_scraps(kind)
            self._stores.cdi.clear_scraps(static_kind(self._driver))
            for uid in self._stores.cdi.claims(kind) - held.records.keys() - held.damaged.keys():
                self._stores.cdi.remove_claim(kind, uid)

    def holders(self, devices: frozenset[str]) -> tuple[Record, ...]:
        """Return the records, as they were last seen, that hold any of these devices (hardware identities)."""
        return tuple(record for record in self._index.records.values() if devices.intersection(hardware_of(record)))

    # ------------------------------------------------------------------------------------------- under the short lock

    async def _finished(self, claim: Claim) -> Record | None:
        """Return the record of a claim that is prepared; most claims are new, and that costs no lock to find out."""
        if not self._stores.checkpoint.has(claim.ref.uid):
            return None
        async with self._held() as held:
            return self._done(claim, held)

    def _done(self, claim: Claim, held: Held) -> Record | None:
        record = held.records.get(claim.ref.uid)
        done = record and record.phase == "DONE" and self._made_here(record) and names_same(record, claim)
        return record if done else None

    async def _promise(self, claim: Claim, inventory: Inventory) -> Record | None:
        """Return the claim's record: DONE when nothing is left to make, else STARTED.

        None when a record says something else and has to be taken back first.
        """
        async with self._held() as held:
            if done := self._done(claim, held):
                return done
            old = held.records.get(claim.ref.uid)
            new = self._record(claim, plan_claim(claim, inventory, held), inventory.pool)
            if old and self._outgrown(old, new):
                return None
            self._write(new)
            return new

    def _outgrown(self, old: Record, new: Record) -> bool:
        """Tell whether the new record does not cover the old one: it lacks a device, or other things were made."""
        if set(hardware_of(old)) - set(hardware_of(new)):
            return True
        made = self._made_here(old) and bool(steps_of(old))
        return made and (old.devices, old.made) != (new.devices, new.made)

    async def _withdraw(self, ref: ClaimRef, dismissed: Record | None) -> Record | None:
        """Return the record whose hardware has to be undone, marked as not done; without any, forget the claim.

        A record of other devices than those ``dismissed`` is returned as it is: they have to be dismissed first.
        """
        async with self._held() as held:
            record = held.records.get(ref.uid)
            if record is None and ref.uid in held.damaged:
                record = self._suspect(ref, held)
            if record is not None and hardware_of(record) != hardware_of(dismissed):
                return record
            if record is None or not (self._made_here(record) and steps_of(record)):
                self._forget(ref.uid, known=record is not None)
                return None
            return self._write(msgspec.structs.replace(record, phase="STARTED"))

    def _suspect(self, ref: ClaimRef, held: Held) -> Record:
        """Return a record in place of a damaged one: any device that no other record holds may have been changed."""
        inventory = self._inventory.value
        if inventory is None:
            raise ClaimError("the claim's record is damaged, and the hardware was not looked at yet; try again")
        taken = {device.hardware for record in held.records.values() for device in record.devices}
        free = [device for device in inventory.devices.values() if device.id not in taken]
        return Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase="STARTED",
            boot_id=self._boot_id,
            devices=tuple(held_device(inventory.pool, device) for device in free),
            made={"settings": {device.name: {} for device in free}},
        )

    def _record(self, claim: Claim, planned: tuple[PlannedDevice, ...], pool: str) -> Record:
        settings = {device.published.name: dict(device.settings) for device in planned if device.settings}
        return Record(
            uid=claim.ref.uid,
            namespace=claim.ref.namespace,
            name=claim.ref.name,
            phase="STARTED" if settings else "DONE",
            boot_id=self._boot_id,
            devices=tuple(self._promised(claim.ref.uid, pool, device) for device in planned),
            made={"settings": settings} if settings else {},
        )

    def _promised(self, uid: str, pool: str, device: PlannedDevice) -> HeldDevice:
        name = device.published.name
        return msgspec.structs.replace(
            held_device(pool, device.published),
            requests=device.requests,
            cdi_ids=(cdi_id(self._driver, name, uid if device.settings else None),),
            share_id=device.share_id,
            admin_access=device.admin_access,
        )

    def _write(self, record: Record) -> Record:
        self._stores.lock.changed()
        self._stores.checkpoint.write(record)
        self._holdings.enter(record.uid, hardware_of(record))
        return record

    def _forget(self, uid: str, *, known: bool) -> None:
        """Remove the claim's spec, then its record: so a crash between them leaves a record to start again from."""
        self._stores.cdi.remove_claim(claim_kind(self._driver), uid)
        if known:
            self._stores.lock.changed()
            self._stores.checkpoint.remove(uid)
            self._holdings.enter(uid, ())

    # ------------------------------------------------------------------------------------------- outside of all locks

    async def _admit(self, claim: Claim, inventory: Inventory) -> None:
        """Return when the claim may have its devices; what is not there is the plan's to refuse."""
        names = dict.fromkeys(result.device for result in claim.results if result.pool == inventory.pool)
        for name in names:
            if device := inventory.devices.get(name):
                await self._patiently(name, self._hardware.admit, device.id, claim.ref.uid)

    async def _dismiss(self, record: Record | None) -> None:
        """Return when the record's devices can be taken from its claim."""
        if record is not None:
            names = {device.hardware: device.device for device in record.devices if device.hardware}
            for hardware, name in names.items():
                await self._patiently(name, self._hardware.dismiss, hardware, record.uid)

    # --------------------------------------------------------------------------- under the locks of the devices alone

    async def _make(self, record: Record, inventory: Inventory) -> None:
        """Apply the hardware steps, write the claim's spec, and say so in the record."""
        async with self._owning(record):
            for step in steps_of(record):
                await self._patiently(name_of(record, step), self._hardware.apply, step, record.uid)
            self._write_claim_spec(record, inventory)
            async with self._held():
                self._write(msgspec.structs.replace(record, phase="DONE"))

    async def _unmake(self, record: Record) -> None:
        async with self._owning(record):
            for step in reversed(steps_of(record)):
                await self._patiently(name_of(record, step), self._hardware.undo, step, record.uid)
            async with self._held():
                self._forget(record.uid, known=True)

    @asynccontextmanager
    async def _owning(self, record: Record) -> AsyncIterator[None]:
        """Hold the record's devices; raises ClaimError when another instance changed the record meanwhile."""
        async with self._stores.devices.hold({step.device for step in steps_of(record)}, self._patience):
            async with self._held() as held:
                if held.records.get(record.uid) != record:
                    raise ClaimError("another instance of the driver is working on the claim; try again")
            yield

    async def _patiently(self, name: str, act: Callable[[T, str], Awaitable[None]], what: T, uid: str) -> None:
        """Do ``act`` on the device of that name; a fault that may pass is tried again until the time is nearly over."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._patience, 0.1
        while True:
            try:
                return await act(what, uid)
            except HardwareError as error:
                if isinstance(error, DeviceLost | NotSupported) or loop.time() + pause > deadline:
                    raise ClaimError(f"device {name}: {error}") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    # --------------------------------------------------------------------------------------------------------- the rest

    async def _look(self) -> Inventory:
        """Return the inventory, after the first look at the hardware."""
        inventory = self._inventory.value
        while inventory is None:
            inventory = await self._inventory.wait(lambda inventory: inventory is not None)
        return inventory

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Held]:
        """Hold the short lock and yield what is promised to whom."""
        async with self._stores.lock.hold(self._patience) as unchanged:
            held = self._stores.checkpoint.load(unchanged)
            if held is not self._index:
                self._holdings = Holdings(held.records.values())  # others wrote, or a write of ours failed
            self._tell(held)
            yield held
            self._tell(self._stores.checkpoint.load(fresh=True))  # as the body left it

    def _tell(self, held: Held) -> None:
        self._index = held
        self.damaged.set(held.damaged)
        self.prepared.set(len(held.records))
        self.held.set(self._holdings.devices())

    def _made_here(self, record: Record) -> bool:
        """Tell whether what was made for the record may still be there: it was made since the last boot."""
        return record.boot_id == self._boot_id

    def _resolve(self, record: Record, inventory: Inventory) -> None:
        """Write the specs again where the runtime would not find what the answer names."""
        ids = [name for device in record.devices for name in device.cdi_ids]
        if self._stores.cdi.resolves(ids):
            return
        self._stores.cdi.write_static(static_kind(self._driver), static_devices(inventory.devices.values()))
        self._write_claim_spec(record, inventory)
        if not self._stores.cdi.resolves(ids):
            raise ClaimError(f"a device of the claim is gone from this node: {', '.join(ids)}")

    def _write_claim_spec(self, record: Record, inventory: Inventory) -> None:
        settings = settings_of(record)
        found = [(inventory.devices[name], settings[name]) for name in settings if name in inventory.devices]
        if found:
            self._stores.cdi.write_claim(claim_kind(self._driver), record.uid, claim_devices(record.uid, found))
