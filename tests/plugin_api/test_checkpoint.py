"""checkpoint: records that are whole or reported, an index that follows, two instances."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.checkpoint import Checkpoint, HeldDevice, Record, holders
from dra_plugin.errors import ClaimError
from dra_plugin.locks import FileLock


def record(uid: str, device: str = "gpu-0", **changes: object) -> Record:
    values: dict[str, object] = {"namespace": "ns", "name": "claim-" + uid, "phase": "DONE", "boot_id": "b"} | changes
    held = HeldDevice(pool="p", device=device, requests=("r",), cdi_ids=("k/c=d",), hardware="GPU-" + device)
    return Record(uid=uid, devices=(held,), **values)  # type: ignore[arg-type] # free in a test


def test_written_is_read_by_a_new_process(tmp_path: Path) -> None:
    """What was written is there for another object; what was removed is not."""
    one = Checkpoint(tmp_path / "claims")
    assert one.load(False).records == {}
    one.write(record("a", made={"step": [1, "x"]}))
    one.write(record("b", "gpu-1"))
    assert one.remove("b")
    assert not one.remove("b")
    assert Checkpoint(tmp_path / "claims").load(False) == one.load(True)
    assert one.load(True).records["a"].made == {"step": [1, "x"]}


def test_whether_there_is_a_record_is_known_without_the_index(tmp_path: Path) -> None:
    """Another object's records are found at once, readable or not; a name that can be no record's is not there."""
    mine, other = Checkpoint(tmp_path / "claims"), Checkpoint(tmp_path / "claims")
    assert not mine.has("a")
    other.load(False)
    other.write(record("a"))
    (tmp_path / "claims" / "b.json").write_bytes(b"{")
    assert [mine.has(uid) for uid in ("a", "b", "c", "../claims/a", "")] == [True, True, False, False, False]
    other.remove("a")
    assert not mine.has("a")


def test_fresh_index_reads_no_file(tmp_path: Path) -> None:
    """With a valid index the folder is not looked at: 512 held claims cost what none costs."""
    mine, other = Checkpoint(tmp_path), Checkpoint(tmp_path)
    mine.load(False)
    other.load(False)
    other.write(record("a"))
    assert mine.load(True).records == {}
    assert set(mine.load(False).records) == {"a"}


@given(data=st.data())
def test_a_record_cut_at_any_byte_is_never_half_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A shorter file is damaged as a whole: moved aside, reported with its UID, gone with the next write."""
    folder = tmp_path_factory.mktemp("claims")
    checkpoint = Checkpoint(folder)
    checkpoint.load(False)
    checkpoint.write(record("a"))
    path = folder / "a.json"
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 2))
    path.write_bytes(whole[:cut])
    held = checkpoint.load(False)
    assert held.records == {}
    assert set(held.damaged) == {"a"}
    assert sorted(path.name for path in folder.iterdir()) == ["a.json.damaged"]
    checkpoint.write(record("a"))
    assert checkpoint.load(False) == checkpoint.load(True)
    assert sorted(path.name for path in folder.iterdir()) == ["a.json"]


@given(data=st.data())
def test_a_flipped_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any other byte in the record gives the same record or a damaged one, never a third."""
    folder = tmp_path_factory.mktemp("claims")
    checkpoint = Checkpoint(folder)
    checkpoint.load(False)
    checkpoint.write(record("a"))
    path = folder / "a.json"
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    held = checkpoint.load(False)
    assert held.records == {"a": record("a")} or set(held.damaged) == {"a"}


def test_damaged_is_reported_until_settled(tmp_path: Path) -> None:
    """Over restarts, and until the UID is removed (Unprepare of a claim that nobody knows any more)."""
    (tmp_path / "a.json").write_text("{")
    assert "a" in Checkpoint(tmp_path).load(False).damaged
    later = Checkpoint(tmp_path)
    assert "moved aside" in later.load(False).damaged["a"]
    assert later.remove("a")
    assert later.load(True).damaged == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_record_of_a_newer_driver_stays_in_place(tmp_path: Path) -> None:
    """A version that we do not know blocks like a damaged one, but is left for the instance that wrote it."""
    (tmp_path / "a.json").write_text('{"version":2,"checksum":"0","record":{}}')
    assert "newer driver" in Checkpoint(tmp_path).load(False).damaged["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json"]


def test_record_under_another_name_is_damaged(tmp_path: Path) -> None:
    """The file's name and the record's UID must agree."""
    one = Checkpoint(tmp_path)
    one.load(False)
    one.write(record("a"))
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert set(one.load(False).damaged) == {"b"}


def test_unknown_members_are_ignored(tmp_path: Path) -> None:
    """A record of the next minor version is read (rolling update, downgrade)."""
    import zlib

    body = b'{"uid":"a","namespace":"n","name":"c","phase":"DONE","bootId":"b","novel":1}'
    (tmp_path / "a.json").write_bytes(
        b'{"version":1,"checksum":"%08x","record":%s,"more":2}' % (zlib.crc32(body), body)
    )
    assert Checkpoint(tmp_path).load(False).records["a"].boot_id == "b"


def test_leftovers_of_a_killed_write_vanish(tmp_path: Path) -> None:
    """A temporary file is no record."""
    (tmp_path / ".a.json.12345678.tmp").write_text("{")
    held = Checkpoint(tmp_path).load(False)
    assert (held.records, held.damaged) == ({}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_holders(tmp_path: Path) -> None:
    """Who blocks a device: whole holders always, shares among each other not, admin access never."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.load(False)
    checkpoint.write(record("whole", "gpu-0"))
    share = HeldDevice(pool="p", device="gpu-1", share_id="s1")
    checkpoint.write(Record(uid="share", namespace="", name="", phase="DONE", boot_id="", devices=(share,)))
    admin = HeldDevice(pool="p", device="gpu-2", admin_access=True)
    checkpoint.write(Record(uid="admin", namespace="", name="", phase="STARTED", boot_id="", devices=(admin,)))
    held = checkpoint.load(True)
    assert [each.uid for each in holders(held, "p", "gpu-0", share_id="s2")] == ["whole"]
    assert holders(held, "p", "gpu-1", share_id="s2") == ()
    assert [each.uid for each in holders(held, "p", "gpu-1")] == ["share"]
    assert [each.uid for each in holders(held, "p", "gpu-1", share_id="s1")] == ["share"]
    assert holders(held, "p", "gpu-2") == ()
    assert holders(held, "other", "gpu-0") == ()


names = st.sampled_from(["a", "b", "c"])
devices = st.sampled_from(["gpu-0", "gpu-1"])


@given(st.lists(st.tuples(st.booleans(), names, devices), max_size=12))
def test_index_always_equals_the_folder(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, str, str]]
) -> None:
    """After any writes and removals the index in memory is what a new process would read."""
    folder = tmp_path_factory.mktemp("claims")
    checkpoint = Checkpoint(folder)
    checkpoint.load(False)
    for write, uid, device in steps:
        if write:
            checkpoint.write(record(uid, device))
        else:
            checkpoint.remove(uid)
    mine, read = checkpoint.load(True), Checkpoint(folder).load(False)
    assert mine.records == read.records
    for device in ("gpu-0", "gpu-1"):
        assert set(mine.by_device.get(("p", device), ())) == set(read.by_device.get(("p", device), ()))


@pytest.mark.parametrize("uid", ["", "../x", "a/b", ".hidden"])
def test_uid_that_is_no_file_name(tmp_path: Path, uid: str) -> None:
    """A UID never leads out of the folder."""
    with pytest.raises(ClaimError, match="cannot name a record"):
        Checkpoint(tmp_path).remove(uid)


def test_disk_errors_are_claim_errors(tmp_path: Path) -> None:
    """A folder that is none fails the claim, with the path; the index is read again afterwards."""
    checkpoint = Checkpoint(tmp_path / "claims")
    checkpoint.load(False)
    (tmp_path / "claims").rmdir()
    with pytest.raises(ClaimError, match="cannot be written"):
        checkpoint.write(record("a"))
    assert checkpoint.load(True).records == {}


WRITER = """
import asyncio, sys
from pathlib import Path
from dra_plugin.checkpoint import Checkpoint, HeldDevice, Record
from dra_plugin.locks import FileLock

async def main():
    lock, checkpoint = FileLock(Path(sys.argv[1]) / "lock"), Checkpoint(Path(sys.argv[1]) / "claims")
    async with lock.hold(5) as unchanged:
        checkpoint.load(unchanged)
        lock.changed()
        checkpoint.write(Record(uid="theirs", namespace="n", name="c", phase="STARTED", boot_id="b"))
        print("started", flush=True)
        await asyncio.sleep(60)
        checkpoint.write(Record(uid="theirs", namespace="n", name="c", phase="DONE", boot_id="b"))

asyncio.run(main())
"""


async def test_killed_between_the_phases(tmp_path: Path) -> None:
    """Another instance that dies after STARTED frees the lock; its record is seen, as STARTED."""
    lock, checkpoint = FileLock(tmp_path / "lock"), Checkpoint(tmp_path / "claims")
    async with lock.hold(1) as unchanged:
        checkpoint.load(unchanged)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGKILL)
    async with lock.hold(5) as unchanged:
        held = checkpoint.load(unchanged)
    assert held.records["theirs"].phase == "STARTED"
    await process.wait()


def test_a_file_that_cannot_be_read_harms_its_own_claim_only(tmp_path: Path) -> None:
    """A bad block, or a folder under a record's name, is reported with its UID; the other claims go on."""
    Checkpoint(tmp_path).write(record("a"))
    (tmp_path / "b.json").mkdir()
    held = Checkpoint(tmp_path).load(False)
    assert set(held.records) == {"a"}
    assert "directory" in held.damaged["b"]
