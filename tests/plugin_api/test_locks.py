"""locks: tasks and processes, the change counter, deadlines."""

import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from dra_plugin.errors import ClaimError
from dra_plugin.locks import DeviceLocks, FileLock

HOLDER = """
import asyncio, sys
from pathlib import Path
from dra_plugin.locks import FileLock

async def main():
    lock = FileLock(Path(sys.argv[1]))
    async with lock.hold(5):
        lock.changed()
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_unchanged_only_for_who_changed_last(tmp_path: Path) -> None:
    """The first hold knows nothing; afterwards only changes of other objects count."""
    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    async with one.hold(1) as unchanged:
        assert not unchanged
        one.changed()
    async with one.hold(1) as unchanged:
        assert unchanged
    async with two.hold(1) as unchanged:
        assert not unchanged
    async with one.hold(1) as unchanged:
        assert unchanged
    async with two.hold(1) as unchanged:
        assert unchanged
        two.changed()
    async with one.hold(1) as unchanged:
        assert not unchanged


async def test_changed_needs_the_lock(tmp_path: Path) -> None:
    """The counter belongs to the holder."""
    with pytest.raises(RuntimeError):
        FileLock(tmp_path / "lock").changed()


async def test_tasks_take_turns_in_order(tmp_path: Path) -> None:
    """Within a process nobody overtakes, and a timeout says that another call holds it."""
    lock, order = FileLock(tmp_path / "deep" / "lock"), []

    async def turn(number: int) -> None:
        async with lock.hold(5):
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(turn(number))
    assert order == [0, 1, 2, 3, 4]
    async with lock.hold(1):
        with pytest.raises(ClaimError, match="another call"):
            async with lock.hold(0.02):
                pass


async def test_other_process_holds_then_dies(tmp_path: Path) -> None:
    """A held flock is an error after the deadline; the holder's death (kill -9) frees it and shows as a change."""
    path = tmp_path / "lock"
    mine = FileLock(path)
    async with mine.hold(1):
        pass
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    with pytest.raises(ClaimError, match="another instance"):
        async with mine.hold(0.05):
            pass
    process.send_signal(signal.SIGKILL)
    async with mine.hold(5) as unchanged:
        assert not unchanged
    await process.wait()


async def test_lock_file_removed_by_somebody(tmp_path: Path) -> None:
    """Who waits for a file that is removed meanwhile locks the new one, not the old inode."""
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        path.unlink()
        async with FileLock(path).hold(1):
            assert path.stat().st_ino != os.fstat(old.fileno()).st_ino


async def test_cancelled_waiter_leaves_the_lock_free(tmp_path: Path) -> None:
    """A caller that leaves while it waits takes nothing with it."""
    lock = FileLock(tmp_path / "lock")

    async def wait() -> None:
        async with lock.hold(5):
            raise AssertionError

    async with asyncio.TaskGroup() as group:
        async with lock.hold(1):
            waiter = group.create_task(wait())
            await asyncio.sleep(0)
            waiter.cancel()
        await asyncio.wait([waiter])
        async with lock.hold(0.1):
            pass


async def test_device_locks_hold_only_their_devices(tmp_path: Path) -> None:
    """Two claims on different devices run together; on a common one they wait, in whatever order they name them."""
    one, two = DeviceLocks(tmp_path), DeviceLocks(tmp_path)
    async with one.hold(["GPU-b", "GPU-a"], 1):
        async with two.hold(["0000:3b:00.0"], 1):
            pass
        with pytest.raises(ClaimError, match="GPU-a"):
            async with two.hold(["GPU-c", "GPU-a"], 0.02):
                pass
        async with two.hold(["GPU-c"], 0.1):
            pass
    async with two.hold(["GPU-a", "GPU-b", "GPU-a"], 0.1):
        pass


@pytest.mark.looptime
async def test_the_timeout_is_for_tasks_and_processes_together(tmp_path: Path) -> None:
    """Who waited for another task has only the rest of the time for the other process."""
    lock, loop = FileLock(tmp_path / "lock"), asyncio.get_running_loop()

    async def hold() -> None:
        async with lock.hold(1):
            await asyncio.sleep(8)
        fcntl.flock(other, fcntl.LOCK_EX)

    with (tmp_path / "lock").open("w") as other:
        async with asyncio.TaskGroup() as group:
            group.create_task(hold())
            await asyncio.sleep(0)
            begun = loop.time()
            with pytest.raises(ClaimError, match="another instance"):
                async with lock.hold(10):
                    pass
            assert loop.time() - begun < 11


async def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    """It is the claim's error and names the file."""
    (tmp_path / "file").touch()
    with pytest.raises(ClaimError, match="file/lock"):
        async with FileLock(tmp_path / "file" / "lock").hold(1):
            pass
