"""Preparer: carries out what a claim means. Record, hardware, CDI, record - and back.

A record is written before anything is made (STARTED) and after everything is (DONE), so that a crash at any point
leaves a record from which the rest can be done or undone. A claim that needs nothing but files is written once. A
record of another boot keeps its promise (who holds which device); what was made for it is gone, and made again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint, Held, HeldDevice, Record
from dra_plugin.claims import Claim, ClaimRef
from dra_plugin.errors import ClaimError
from dra_plugin.latest import Latest
from dra_plugin.locks import DeviceLocks, FileLock
from dra_plugin.plugin import PreparedDevice
from drasim.devices import Published
from drasim.edits import cdi_id, claim_devices, claim_kind, static_devices, static_kind
from drasim.hardware import DeviceLost, Hardware, HardwareError, NotSupported, Setting, Step
from drasim.planning import Inventory, PlannedDevice, plan_claim

__all__ = ["Preparer", "Stores"]

PATIENCE = 40.0
"""Seconds to wait for a lock or for hardware that fails: the kubelet gives a call 45."""


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Where a driver keeps what it promised and made. Two instances of the driver share all of it."""

    lock: FileLock
    devices: DeviceLocks
    checkpoint: Checkpoint
    cdi: CdiFolder


class Preparer:
    """Prepares and unprepares the claims of one driver on this node; implements ``dra_plugin.plugin.Plugin``."""

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
        self.damaged: Latest[Mapping[str, str]] = Latest({})
        self.prepared: Latest[int] = Latest(0)

    async def prepare(self, claim: Claim) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices ready; for a claim that is prepared already, answer the same."""
        inventory = await self._look()
        record = await self._promise(claim, inventory)
        if record is None:
            await self.unprepare(claim.ref)
            record = await self._promise(claim, inventory)
        if record is None:
            raise ClaimError("the claim's allocation changed while it was being prepared")
        if record.phase == "STARTED":
            await self._make(record, inventory)
        self._resolve(record, inventory)
        return _answer(record)

    async def unprepare(self, ref: ClaimRef) -> None:
        """Take back everything that was made for the claim, in reverse; an unknown claim is a success."""
        record = await self._withdraw(ref)
        if record is not None:
            await self._unmake(record)

    async def sweep(self) -> None:
        """Remove claim specs that no record knows (left by a crash), and learn which records are damaged."""
        async with self._held() as held:
            kind = claim_kind(self._driver)
            self._stores.cdi.clear_scraps(kind)
            self._stores.cdi.clear_scraps(static_kind(self._driver))
            for uid in self._stores.cdi.claims(kind) - held.records.keys() - held.damaged.keys():
                self._stores.cdi.remove_claim(kind, uid)

    # ------------------------------------------------------------------------------------------- under the short lock

    async def _promise(self, claim: Claim, inventory: Inventory) -> Record | None:
        """Return the claim's record: DONE when nothing is left to make, else STARTED.

        None when a record of this boot says something else and has to be taken back first.
        """
        async with self._held() as held:
            old = held.records.get(claim.ref.uid)
            if old and self._made_here(old) and old.phase == "DONE" and _same_devices(old, claim):
                return old
            new = self._record(claim, plan_claim(claim, inventory, held), inventory.pool)
            if old and self._made_here(old) and _steps(old) and (old.devices, old.made) != (new.devices, new.made):
                return None
            self._write(new)
            return new

    async def _withdraw(self, ref: ClaimRef) -> Record | None:
        """Return the record whose hardware has to be undone, marked as not done; without any, forget the claim."""
        async with self._held() as held:
            record = held.records.get(ref.uid)
            if record is None and ref.uid in held.damaged:
                record = self._suspect(ref, held)
            if record is None or not (self._made_here(record) and _steps(record)):
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
            devices=tuple(_held_device(inventory.pool, device) for device in free),
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
            _held_device(pool, device.published),
            requests=device.requests,
            cdi_ids=(cdi_id(self._driver, name, uid if device.settings else None),),
            share_id=device.share_id,
            admin_access=device.admin_access,
        )

    def _write(self, record: Record) -> Record:
        self._stores.lock.changed()
        self._stores.checkpoint.write(record)
        return record

    def _forget(self, uid: str, *, known: bool) -> None:
        """Remove the claim's spec, then its record: so a crash between them leaves a record to start again from."""
        self._stores.cdi.remove_claim(claim_kind(self._driver), uid)
        if known:
            self._stores.lock.changed()
            self._stores.checkpoint.remove(uid)

    # --------------------------------------------------------------------------- under the locks of the devices alone

    async def _make(self, record: Record, inventory: Inventory) -> None:
        """Apply the hardware steps, write the claim's spec, and say so in the record."""
        async with self._owning(record):
            for step in _steps(record):
                await self._patiently(record, step, self._hardware.apply)
            self._write_claim_spec(record, inventory)
            async with self._held():
                self._write(msgspec.structs.replace(record, phase="DONE"))

    async def _unmake(self, record: Record) -> None:
        async with self._owning(record):
            for step in reversed(_steps(record)):
                await self._patiently(record, step, self._hardware.undo)
            async with self._held():
                self._forget(record.uid, known=True)

    @asynccontextmanager
    async def _owning(self, record: Record) -> AsyncIterator[None]:
        """Hold the record's devices; raises ClaimError when another instance changed the record meanwhile."""
        async with self._stores.devices.hold({step.device for step in _steps(record)}, self._patience):
            async with self._held() as held:
                if held.records.get(record.uid) != record:
                    raise ClaimError("another instance of the driver is working on the claim; try again")
            yield

    async def _patiently(self, record: Record, step: Step, act: Callable[[Step, str], Awaitable[None]]) -> None:
        """Carry out a step; a fault that may pass is tried again until the caller's time is nearly over."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._patience, 0.1
        while True:
            try:
                return await act(step, record.uid)
            except HardwareError as error:
                if isinstance(error, DeviceLost | NotSupported) or loop.time() + pause > deadline:
                    raise ClaimError(f"device {_name_of(record, step)}: {error}") from error
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
            held = self._tell(self._stores.checkpoint.load(unchanged))
            yield held
            self._tell(self._stores.checkpoint.load(fresh=True))  # as the body left it

    def _tell(self, held: Held) -> Held:
        self.damaged.set(held.damaged)
        self.prepared.set(len(held.records))
        return held

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
        settings = _settings(record)
        found = [(inventory.devices[name], settings[name]) for name in settings if name in inventory.devices]
        if found:
            self._stores.cdi.write_claim(claim_kind(self._driver), record.uid, claim_devices(record.uid, found))


def _answer(record: Record) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            requests=device.requests,
            pool=device.pool,
            device=device.device,
            cdi_ids=device.cdi_ids,
            share_id=device.share_id,
        )
        for device in record.devices
    )


def _held_device(pool: str, device: Published) -> HeldDevice:
    return HeldDevice(pool=pool, device=device.name, requests=(), cdi_ids=(), hardware=device.id)


def _same_devices(record: Record, claim: Claim) -> bool:
    """Tell whether the record promises what the claim's allocation names now."""
    promised = {
        (device.pool, device.device, device.share_id, request)
        for device in record.devices
        for request in device.requests
    }
    return promised == {(result.pool, result.device, result.share_id, result.request) for result in claim.results}


def _settings(record: Record) -> dict[str, dict[str, Setting]]:
    """Return the settings that a record asks for, by device name."""
    settings: dict[str, dict[str, Setting]] = record.made.get("settings", {})
    return settings


def _steps(record: Record) -> tuple[Step, ...]:
    """Return the hardware steps of a record: everything that has to be undone follows from the record alone."""
    settings = _settings(record)
    return tuple(
        Step(device=device.hardware, settings=settings[device.device])
        for device in record.devices
        if device.device in settings
    )


def _name_of(record: Record, step: Step) -> str:
    return next((device.device for device in record.devices if device.hardware == step.device), step.device)
