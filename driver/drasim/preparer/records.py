"""What a record means: the answer, the hardware and its steps; and what all records hold together. Pure."""

from collections.abc import Iterable

from dra_plugin.checkpoint import HeldDevice, Record
from dra_plugin.claims import Claim
from dra_plugin.plugin import PreparedDevice
from drasim.devices import Published
from drasim.hardware import Setting, Step

__all__ = [
    "Holdings",
    "answer",
    "hardware_of",
    "held_device",
    "name_of",
    "names_same",
    "settings_of",
    "steps_of",
]


class Holdings:
    """What hardware is held, kept up claim by claim: to gather it anew from 500 records would slow each call."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_claim: dict[str, tuple[str, ...]] = {}
        self._holders: dict[str, int] = {}
        self._devices: frozenset[str] | None = None
        for record in records:
            self.enter(record.uid, hardware_of(record))

    def enter(self, uid: str, devices: tuple[str, ...]) -> None:
        """Let the claim hold exactly these."""
        before = self._by_claim.pop(uid, ())
        if devices:
            self._by_claim[uid] = devices
        for device in devices:
            self._count(device, 1)
        for device in before:
            self._count(device, -1)

    def devices(self) -> frozenset[str]:
        """Return the identities of all hardware that some claim holds."""
        if self._devices is None:
            self._devices = frozenset(self._holders)
        return self._devices

    def _count(self, device: str, more: int) -> None:
        holders = self._holders.pop(device, 0) + more
        if holders:
            self._holders[device] = holders
        if holders in {0, more}:  # the last one has gone, or the first one has come
            self._devices = None


def answer(record: Record) -> tuple[PreparedDevice, ...]:
    """Return what the kubelet is told of a prepared claim."""
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


def held_device(pool: str, device: Published) -> HeldDevice:
    """Return a device as it stands in a record, without what the claim makes of it."""
    return HeldDevice(pool=pool, device=device.name, requests=(), cdi_ids=(), hardware=device.id)


def names_same(record: Record, claim: Claim) -> bool:
    """Tell whether the record promises what the claim's allocation names now."""
    promised = {
        (device.pool, device.device, device.share_id, request)
        for device in record.devices
        for request in device.requests
    }
    return promised == {(result.pool, result.device, result.share_id, result.request) for result in claim.results}


def settings_of(record: Record) -> dict[str, dict[str, Setting]]:
    """Return the settings that a record asks for, by device name."""
    settings: dict[str, dict[str, Setting]] = record.made.get("settings", {})
    return settings


def steps_of(record: Record) -> tuple[Step, ...]:
    """Return the hardware steps of a record: everything that has to be undone follows from the record alone."""
    settings = settings_of(record)
    return tuple(
        Step(device=device.hardware, settings=settings[device.device])
        for device in record.devices
        if device.device in settings
    )


def hardware_of(record: Record | None) -> tuple[str, ...]:
    """Return the identities of the devices that a record holds, each once."""
    return tuple(dict.fromkeys(device.hardware for device in record.devices if device.hardware)) if record else ()


def name_of(record: Record, step: Step) -> str:
    """Return the published name of the device that a step of the record changes."""
    return next((device.device for device in record.devices if device.hardware == step.device), step.device)
