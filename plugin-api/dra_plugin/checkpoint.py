"""What a driver promised for each claim: one small record per claim, checksummed, replaced as a whole.

``<folder>/<uid>.json`` holds ``{"version": 1, "checksum": "<crc32 of the record, hex>", "record": {...}}``. A record
is on the disk, content and name, when ``write`` returns, and gone for good when ``remove`` returns: a power loss loses
nothing that the kubelet was told. Prices on a quiet ext4: 0.3 ms for a new record (its name is given first, see
``files.write_atomically``: a power loss in those 0.3 ms leaves a damaged record of a claim that nobody was promised,
and the kubelet asks for it again), 0.25 ms for a change of the phase alone (a power loss may undo that, and voids with
the boot what it speaks of), 0.55 ms for any other change, 0.25 ms for removing one.

All methods but ``has`` are for the holder of the driver's ``FileLock``::

    async with lock.hold(timeout) as unchanged:
        held = checkpoint.load(unchanged)
        ...
        lock.changed()
        checkpoint.write(record)
"""

import contextlib
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from dra_plugin import files
from dra_plugin.errors import ClaimError
from dra_plugin.resources import Value

__all__ = ["Checkpoint", "Held", "HeldDevice", "Record", "holders"]

_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIX = ".json"
_DAMAGED = ".json.damaged"


class HeldDevice(Value, frozen=True, kw_only=True):
    """One device of a claim: names as in the allocation, ``hardware`` the identity of the physical device."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None
    admin_access: bool | None = None
    hardware: str = ""


class Record(Value, frozen=True, kw_only=True):
    """One claim. STARTED: hardware may have been changed; DONE: the kubelet was told.

    Attributes:
        uid: UID of the claim; also the file's name.
        namespace: of the claim, for people.
        name: of the claim, for people.
        phase: STARTED or DONE.
        boot_id: of the boot in which it was written; another one voids ``made``, not the devices.
        devices: what the claim holds.
        made: what hardware steps made, in the plugin's own JSON.
    """

    uid: str
    namespace: str
    name: str
    phase: Literal["STARTED", "DONE"]
    boot_id: str
    devices: tuple[HeldDevice, ...] = ()
    made: dict[str, Any] = msgspec.field(default_factory=dict)


class Held(msgspec.Struct, frozen=True):
    """All claims that are held at one moment, by UID; ``damaged`` says why a record cannot be read.

    ``by_device`` leads from (pool, device) to the UIDs of the records that name it.
    """

    records: Mapping[str, Record] = {}
    damaged: Mapping[str, str] = {}
    by_device: Mapping[tuple[str, str], tuple[str, ...]] = {}


class _Envelope(msgspec.Struct, frozen=True):
    """What a file holds; ``record`` stays bytes until its checksum is right."""

    version: int
    checksum: str
    record: msgspec.Raw


class _UnreadableError(Exception):
    """A record's file cannot be used; the text is for people. Damaged files are moved aside, newer ones stay."""

    def __init__(self, reason: str, *, damaged: bool = True) -> None:
        super().__init__(reason)
        self.damaged = damaged


_ENCODER = msgspec.json.Encoder()
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_RECORDS = msgspec.json.Decoder(Record)


class Checkpoint:
    """The records of one driver on one node, with an index in memory."""

    def __init__(self, folder: Path) -> None:
        """Keep the records in ``folder``, created at the first ``load``."""
        self._folder = folder
        self._held: Held | None = None

    def load(self, fresh: bool) -> Held:  # noqa: FBT001 - handed on from FileLock.hold
        """Return what is held.

        ``fresh`` is what ``FileLock.hold`` yielded: True when nobody else wrote, so that the index in memory is valid
        and no file is read. A file that cannot be read is moved aside (``<uid>.json.damaged``) and reported in
        ``damaged`` until that UID is written or removed. Raises ClaimError when the folder cannot be read.
        """
        if self._held is None or not fresh:
            with _claim_errors("read", self._folder):
                self._held = _read_folder(self._folder)
        return self._held

    def has(self, uid: str) -> bool:
        """Tell whether a record of the claim stands in the folder, readable or not; nobody needs to hold the lock."""
        return bool(_NAME.fullmatch(uid)) and os.access(f"{self._folder}/{uid}{_SUFFIX}", os.F_OK)

    def write(self, record: Record) -> None:
        """Store the record, in place of an older or a damaged one of its UID. Raises ClaimError."""
        path = self._path(record.uid)
        held, self._held = self._held, None  # valid again only when the disk says the same
        new = held is None or not _same_but_phase(held.records.get(record.uid), record)
        with _claim_errors("written", path):
            files.write_atomically(path, _encode(record), checked=True, settled=new)
            path.with_name(record.uid + _DAMAGED).unlink(missing_ok=True)
        self._held = held and _with(_without(held, record.uid), record)

    def remove(self, uid: str) -> bool:
        """Forget the claim and what is damaged of it; False when nothing was known. Raises ClaimError."""
        path = self._path(uid)
        held, self._held = self._held, None
        with _claim_errors("removed", path):
            damaged = files.remove(path.with_name(uid + _DAMAGED))
            found = files.remove(path, sync=True) or damaged
        self._held = held and _without(held, uid)
        return found

    def _path(self, uid: str) -> Path:
        if not _NAME.fullmatch(uid):
            raise ClaimError(f"claim UID {uid!r} cannot name a record")
        return self._folder / (uid + _SUFFIX)


def holders(held: Held, pool: str, device: str, *, share_id: str | None = None) -> tuple[Record, ...]:
    """Return the records that keep others from the device, the asking claim's own among them.

    Admin access keeps nobody away, and a share leaves room for other shares: with ``share_id`` only a whole-device
    holder, or a holder of that very share, is returned.
    """
    uids = held.by_device.get((pool, device), ())
    return tuple(record for uid in uids if _blocks(record := held.records[uid], (pool, device), share_id))


@contextlib.contextmanager
def _claim_errors(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClaimError(f"claim record {path} cannot be {verb}: {error.strerror or error}") from error


def _blocks(record: Record, key: tuple[str, str], share_id: str | None) -> bool:
    return any(
        (entry.pool, entry.device) == key
        and not entry.admin_access
        and (share_id is None or entry.share_id is None or entry.share_id == share_id)
        for entry in record.devices
    )


def _same_but_phase(old: Record | None, new: Record) -> bool:
    """Tell whether a power loss may bring back ``old``: the promise is the same, and another boot voids the rest."""
    return old is not None and msgspec.structs.replace(old, phase=new.phase) == new


def _encode(record: Record) -> bytes:
    data = _ENCODER.encode(record)
    return b'{"version":%d,"checksum":"%08x","record":%s}\n' % (_VERSION, zlib.crc32(data), data)


def _decode(data: bytes, uid: str) -> Record:
    """Return the record of ``uid``, or raise _UnreadableError. Unknown members are ignored (an older version reads)."""
    try:
        envelope = _ENVELOPES.decode(data)
        if envelope.version > _VERSION:
            raise _UnreadableError(f"written by a newer driver (version {envelope.version})", damaged=False)
        if f"{zlib.crc32(bytes(envelope.record)):08x}" != envelope.checksum:
            raise _UnreadableError("checksum does not match")
        record = _RECORDS.decode(envelope.record)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _UnreadableError(str(error)) from error
    if record.uid != uid:
        raise _UnreadableError(f"holds the record of {record.uid}")
    return record


def _read_folder(folder: Path) -> Held:
    """Read every record; clears leftovers of writes that a killed process did not finish."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    records: dict[str, Record] = {}
    damaged: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            path.unlink(missing_ok=True)
        elif path.name.endswith(_DAMAGED):
            damaged.setdefault(path.name.removesuffix(_DAMAGED), "moved aside earlier, see " + path.name)
        elif path.suffix == _SUFFIX:
            _read_one(path, records, damaged)
    unsettled = {uid: reason for uid, reason in damaged.items() if uid not in records}
    return Held(records, unsettled, _index(records))


def _read_one(path: Path, records: dict[str, Record], damaged: dict[str, str]) -> None:
    uid = path.name.removesuffix(_SUFFIX)
    try:
        records[uid] = _decode(path.read_bytes(), uid)
    except _UnreadableError as error:
        damaged[uid] = str(error)
        if error.damaged:
            path.replace(path.with_name(uid + _DAMAGED))
    except OSError as error:  # a bad block harms its own claim only; the file stays for whoever repairs the disk
        damaged[uid] = f"cannot be read: {error.strerror or error}"


def _index(records: Mapping[str, Record]) -> dict[tuple[str, str], tuple[str, ...]]:
    index: dict[tuple[str, str], tuple[str, ...]] = {}
    for record in records.values():
        _enter(index, record)
    return index


def _enter(index: dict[tuple[str, str], tuple[str, ...]], record: Record) -> None:
    for key in dict.fromkeys((entry.pool, entry.device) for entry in record.devices):
        index[key] = (*index.get(key, ()), record.uid)


def _with(held: Held, record: Record) -> Held:
    index = dict(held.by_device)
    _enter(index, record)
    return Held({**held.records, record.uid: record}, held.damaged, index)


def _without(held: Held, uid: str) -> Held:
    if uid not in held.records and uid not in held.damaged:
        return held
    records, damaged, index = dict(held.records), dict(held.damaged), dict(held.by_device)
    damaged.pop(uid, None)
    record = records.pop(uid, None)
    for key in {(entry.pool, entry.device) for entry in record.devices} if record else ():
        left = tuple(other for other in index[key] if other != uid)
        index[key] = left
        if not left:
            del index[key]
    return Held(records, damaged, index)
