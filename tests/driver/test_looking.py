"""Looking: looks, time and memory together."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from drasim.config import ProblemsConfig, Seconds
from drasim.hardware import HardwareError, Looked
from drasim.looking import Looking
from drasim.memory import Memory
from drasim.problems import standing
from drasim.state import NodeState
from tests.driver.looks import FALLEN, GPUS, look
from tests.driver.staged import Stage

QUICK = ProblemsConfig(clear_after=Seconds(0.05), clear_after_most=Seconds(0.2))


class Watched:
    """A Looking that runs, what its follower heard, and what was on the disk then."""

    def __init__(self, folder: Path, stage: Stage, policy: ProblemsConfig = QUICK) -> None:
        self.file = folder / "problems.json"
        self.looking = Looking(stage, Memory(self.file, "gpu", "boot-1"), policy, look_again=0.01)
        self.heard: list[tuple[NodeState, bytes]] = []

    def hear(self) -> None:
        """Note what is known, and what a restart would remember."""
        self.heard.append((self.looking.state.value, self.file.read_bytes() if self.file.is_file() else b""))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Watched"]:
        """Run it."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.looking.run(self.hear))
            yield self
            task.cancel()

    def problems(self, index: int = 0) -> list[str]:
        """Return what stands on a GPU."""
        return [each.kind for each in standing(self.looking.state.value.problems.get(GPUS[index].id, ()))]


def now(*sick: int) -> Looked:
    """Return a look of this moment that finds XID 79 on these GPUs."""
    return look(time.time(), dict.fromkeys(sick, (FALLEN,)))


async def test_what_is_found_is_on_the_disk_before_anybody_hears_of_it(tmp_path: Path) -> None:
    """Whoever is told of a problem can rely on it being known after a restart."""
    stage = Stage(now())
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: state.looked_at > 0)
        stage.show(now(0))
        await watched.looking.state.wait(lambda state: bool(state.problems))
        state, disk = next(heard for heard in watched.heard if heard[0].problems)
        assert list(state.problems) == [GPUS[0].id]
        assert b'"79"' in disk


async def test_a_look_is_told_in_the_same_turn(tmp_path: Path) -> None:
    """Nobody waits for another turn of the loop between a look and what follows from it."""
    stage = Stage(now())
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.devices))
        told = len(watched.heard)
        stage.show(now(0))
        async with asyncio.timeout(5):
            await watched.looking.state.wait(lambda state: bool(state.problems))
        assert watched.heard[told][0].problems  # it was heard before the waiter's turn came


async def test_a_problem_is_over_at_its_time(tmp_path: Path) -> None:
    """No look is needed for that moment; then it is forgotten."""
    stage = Stage(now(0))
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
        stage.show(now())
        await watched.looking.state.wait(lambda _: not watched.problems())
        assert not standing(watched.heard[-1][0].problems[GPUS[0].id])
        await watched.looking.state.wait(lambda state: not state.problems)


async def test_what_was_known_is_known_before_the_first_look(tmp_path: Path) -> None:
    """The state of the last process is there at once, and its problem still stands after a look that finds it."""
    async with Watched(tmp_path, Stage(now(0))).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
    stage = Stage(HardwareError("no driver"))
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.blind.wait(lambda blind: blind is not None)
        assert (watched.problems(), watched.looking.state.value.looked_at, watched.heard) == (["xid"], 0.0, [])


async def test_hardware_that_cannot_be_looked_at_is_tried_again(tmp_path: Path) -> None:
    """It is said until a look succeeds; what was known stays."""
    stage = Stage(now(0))
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
        stage.show(HardwareError("no driver"))
        assert await watched.looking.blind.wait(lambda blind: blind is not None) == "no driver"
        assert watched.problems() == ["xid"]
        stage.show(now(0))
        await watched.looking.blind.wait(lambda blind: blind is None)


async def test_a_disk_that_cannot_be_written_does_not_keep_a_taint_back(tmp_path: Path) -> None:
    """The problem is told all the same; that it will not be remembered is said, until it is again."""
    stage = Stage(now(0))
    watched = Watched(tmp_path, stage)
    watched.file.mkdir()
    watched.file.with_name("problems.json.damaged").write_text("in the way, so that the folder stays")
    async with watched.running():
        await watched.looking.state.wait(lambda state: state.looked_at > 0)
        assert watched.problems() == ["xid"]
        assert "problems.json" in (watched.looking.forgetful.value or "")
        watched.file.rmdir()
        stage.show(now(0))
        await watched.looking.forgetful.wait(lambda reason: reason is None)
        assert b'"79"' in watched.file.read_bytes()


async def test_memory_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """It is no reason not to serve."""
    watched = Watched(tmp_path, Stage(now()))
    watched.file.write_text("{")
    async with watched.running():
        await watched.looking.state.wait(lambda state: state.looked_at > 0)
        assert "cannot be read" in (watched.looking.lost.value or "")


async def test_what_is_gone_for_long_is_forgotten_unless_held(tmp_path: Path) -> None:
    """Who asks says what is held."""
    stage = Stage(look(1.0))
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: state.looked_at > 0)
        stage.show(look(2.0, devices=GPUS[1:]))
        await watched.looking.state.wait(lambda state: bool(state.missing))
        watched.looking.forget(frozenset({GPUS[0].id}))
        assert watched.looking.state.value.missing
        watched.looking.forget(frozenset())
        assert not watched.looking.state.value.missing


async def test_a_clock_that_is_set_back_does_not_make_it_blind(tmp_path: Path) -> None:
    """Looks go on to count, and what they do not find any more is over in time."""
    stage = Stage(look(5e9, {0: (FALLEN,)}))
    async with Watched(tmp_path, stage).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
        stage.show(now(0, 1))
        await watched.looking.state.wait(lambda state: len(state.problems) == 2)
        stage.show(now())
        await watched.looking.state.wait(lambda state: not state.problems)


async def test_hardware_that_stays_blind_is_unknown(tmp_path: Path) -> None:
    """Nobody takes its devices for well any longer than one whose probe hangs; a look settles it."""
    policy = ProblemsConfig(clear_after=Seconds(0.05), clear_after_most=Seconds(0.2), silent_after=Seconds(0.03))
    stage = Stage(now(0))
    async with Watched(tmp_path, stage, policy).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
        seen = dict(watched.looking.state.value.looks)
        stage.show(HardwareError("no driver"))
        await watched.looking.state.wait(lambda _: watched.problems(1) == ["probe-hangs"])
        assert (watched.problems(0), watched.looking.state.value.looks) == (["xid", "probe-hangs"], seen)
        stage.show(now(0))
        await watched.looking.state.wait(lambda _: (watched.problems(0), watched.problems(1)) == (["xid"], []))


async def test_hardware_that_was_never_seen_is_not_published_blindly(tmp_path: Path) -> None:
    """After a restart what is known of before is no look: nothing is told of it until there is one."""
    async with Watched(tmp_path, Stage(now(0))).running() as watched:
        await watched.looking.state.wait(lambda state: bool(state.problems))
    policy = ProblemsConfig(silent_after=Seconds(0.001))
    async with Watched(tmp_path, Stage(HardwareError("no driver")), policy).running() as watched:
        await asyncio.sleep(0.05)
        assert (watched.problems(1), watched.looking.state.value.looked_at) == ([], 0.0)
