"""instances: only the newest living instance publishes, and two never at once."""

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from dra_plugin.errors import SetupError
from dra_plugin.instances import Instance
from tests.plugin_api.served_plugin import until

OTHER = """
import asyncio, sys
from pathlib import Path
from dra_plugin.instances import Instance

async def main():
    instance = Instance(Path(sys.argv[1]), "other")
    instance.announce()
    print(instance.newest.value, flush=True)
    await instance.run()

asyncio.run(main())
"""


@asynccontextmanager
async def running(folder: Path, name: str) -> AsyncIterator[Instance]:
    instance = Instance(folder, name)
    with closing(instance):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(instance.run())
            yield instance
            task.cancel()


async def test_alone_means_newest_at_once(tmp_path: Path) -> None:
    """The first announcement needs no waiting; before it nobody publishes; afterwards the file is gone."""
    async with running(tmp_path / "instances", "one") as one:
        seen = [one.newest.value]
        for _ in range(2):
            one.announce()
            seen.append(one.newest.value)
        assert seen == [False, True, True]
    assert not one.newest.value
    assert sorted(path.name for path in (tmp_path / "instances").iterdir()) == [".newest"]


async def test_hand_over_and_back(tmp_path: Path) -> None:
    """The newer instance takes over only after the older let go; when it ends, the older one resumes."""
    async with running(tmp_path, "zz-old") as old:
        old.announce()
        async with running(tmp_path, "new") as new:
            new.announce()
            assert (old.newest.value, new.newest.value) == (True, False)
            await new.newest.wait(bool)
            assert not old.newest.value
            old.announce()  # the kubelet restarted and registered in another order: the younger stays the newest
            assert not old.newest.value
        await old.newest.wait(bool)


async def test_killed_process_is_no_instance(tmp_path: Path) -> None:
    """A newer instance in another process that is killed leaves its file, and the right to publish comes back."""
    async with running(tmp_path, "mine") as mine:
        mine.announce()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OTHER, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"False\n"
        await mine.newest.wait(lambda newest: not newest)
        assert (tmp_path / "other").exists()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await mine.newest.wait(bool)
        assert not (tmp_path / "other").exists()


async def test_same_name_after_a_crash(tmp_path: Path) -> None:
    """A container that restarts in its Pod has the same name; the old file is in nobody's way."""
    (tmp_path / "pod-uid").write_text("7\n")
    async with running(tmp_path, "pod-uid") as again:
        again.announce()
        assert again.newest.value


async def test_cleaned_folder(tmp_path: Path) -> None:
    """Somebody removes the folder: the instance makes itself known again, and two settle on one that publishes."""
    folder = tmp_path / "instances"
    async with running(folder, "old") as old:
        old.announce()
        shutil.rmtree(folder)
        async with running(folder, "new") as new:
            new.announce()
            await until((folder / "old").exists)
            await until(lambda: (old.newest.value, new.newest.value) in {(False, True), (True, False)})
            await asyncio.sleep(0.6)
            assert old.newest.value != new.newest.value
        await old.newest.wait(bool)


async def test_two_of_one_name(tmp_path: Path) -> None:
    """A second living instance under the same name is refused, and takes nothing from the first."""
    async with running(tmp_path, "pod-uid") as first, running(tmp_path, "pod-uid") as second:
        first.announce()
        with pytest.raises(SetupError, match="same name"):
            second.announce()
        await asyncio.sleep(0.6)
        assert (first.newest.value, second.newest.value) == (True, False)
