"""What is remembered of devices over a restart."""

import json
from pathlib import Path

import pytest

from drasim.memory import Memory
from drasim.problems import standing
from drasim.state import NodeState, fold
from tests.driver.looks import FALLEN, FULL, GPUS, NICS, POLICY, after, look


def memory(folder: Path, boot_id: str = "boot-1") -> Memory:
    """Return the memory as a process has it that starts now."""
    return Memory(folder / "problems.json", "gpu", boot_id)


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    """No file is an empty state, and no reason to complain."""
    assert memory(tmp_path).load() == (NodeState(), None)


def test_a_restart_heals_nothing(tmp_path: Path) -> None:
    """Problems, devices and missing ones are known again; no look of the old process counts as one of this."""
    before = after(look(1.0, {0: (FALLEN,)}), look(2.0, {0: (FALLEN,)}, devices=GPUS[:3]))
    memory(tmp_path).keep(before)
    state, reason = memory(tmp_path).load()
    assert (state.problems, state.devices, state.missing) == (before.problems, before.devices, before.missing)
    assert (reason, state.looked_at, state.doubtful) == (None, 0.0, frozenset())
    assert fold(state, look(9.0, {0: (FALLEN,)}, devices=GPUS[:3]), POLICY).problems == before.problems


def test_nics_are_remembered_too(tmp_path: Path) -> None:
    """The other kind of devices comes back as what it was."""
    file = tmp_path / "problems.json"
    Memory(file, "nic", "boot-1").keep(after(look(1.0, devices=NICS)))
    state, _ = Memory(file, "nic", "boot-1").load()
    assert tuple(state.devices.values()) == NICS


def test_time_without_the_driver_is_no_recovery(tmp_path: Path) -> None:
    """What had begun to be gone is seen gone anew: the slice that is stored has its taint, so the first one has it."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN,)}), look(2.0)))
    state, _ = memory(tmp_path).load()
    first = fold(state, look(500.0), POLICY)
    assert [problem.since for problem in standing(first.problems[GPUS[0].id])] == [1]


def test_a_device_that_went_while_the_driver_was_away(tmp_path: Path) -> None:
    """It is missing after the first look, as it was known: a claim may hold it."""
    memory(tmp_path).keep(after(look(1.0)))
    state, _ = memory(tmp_path).load()
    assert fold(state, look(9.0, devices=GPUS[1:]), POLICY).missing == {GPUS[0].id: GPUS[0]}


def test_after_a_reboot_the_first_look_decides(tmp_path: Path) -> None:
    """What it finds keeps its time, what it does not find is over at once."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN, FULL)})))
    state, _ = memory(tmp_path, "boot-2").load()
    assert len(state.problems[GPUS[0].id]) == 2
    state = fold(state, look(99.0, {0: (FULL,)}), POLICY)
    assert [(each.code, each.since) for each in state.problems[GPUS[0].id]] == [("48", 1)]


def test_looking_alone_writes_nothing(tmp_path: Path) -> None:
    """The file is written when something is new, not at each look."""
    kept, state = memory(tmp_path), after(look(1.0, {0: (FALLEN,)}))
    kept.keep(state)
    (tmp_path / "problems.json").unlink()
    kept.keep(fold(state, look(2.0, {0: (FALLEN,)}), POLICY))
    assert not (tmp_path / "problems.json").exists()
    kept.keep(fold(state, look(3.0, {0: (FULL,)}), POLICY))
    assert (tmp_path / "problems.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"bootID": 1}', b"\xff\xfe", b'{"bootID": "a", "problems": [1]}'])
def test_a_file_that_cannot_be_read_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    """It is said, it stays for who wants to see it, and the next state is kept."""
    (tmp_path / "problems.json").write_bytes(content)
    kept = memory(tmp_path)
    state, reason = kept.load()
    assert state == NodeState()
    assert "problems.json cannot be read" in (reason or "")
    assert (tmp_path / "problems.json.damaged").read_bytes() == content
    kept.keep(after(look(1.0)))
    assert memory(tmp_path).load()[1] is None


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    """Something else stands there: said when reading, an OSError when writing; nothing is lost of it."""
    (tmp_path / "problems.json").mkdir()
    (tmp_path / "problems.json.damaged").write_text("older")
    kept = memory(tmp_path)
    _, reason = kept.load()
    assert "cannot be moved aside" in (reason or "")
    with pytest.raises(OSError, match=r"problems\.json"):
        kept.keep(after(look(1.0)))


def test_a_file_of_a_later_version(tmp_path: Path) -> None:
    """What it says beyond ours is left alone, a kind of problem that we do not know included."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN,)})))
    file = tmp_path / "problems.json"
    known = json.loads(file.read_text())
    known["more"] = {"a": 1}
    known["problems"][GPUS[0].id][0] |= {"kind": "melted", "weight": 3}
    file.write_text(json.dumps(known))
    state, reason = memory(tmp_path).load()
    assert (reason, state.problems[GPUS[0].id][0].kind) == (None, "melted")


def test_every_cut_of_the_file_is_found_out(tmp_path: Path) -> None:
    """A file cut at any byte is moved aside, never half believed."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN,)}, devices=GPUS[:1])))
    whole = (tmp_path / "problems.json").read_bytes()
    for end in range(len(whole)):
        (tmp_path / "problems.json").write_bytes(whole[:end])
        state, reason = memory(tmp_path).load()
        assert (state, reason is None) == (NodeState(), False)


@pytest.mark.parametrize("since", [-1, 10**12])
def test_a_time_that_is_none_is_damage(tmp_path: Path, since: int) -> None:
    """No taint could have it: the file is moved aside instead of stopping every process that reads it."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN,)})))
    file = tmp_path / "problems.json"
    known = json.loads(file.read_text())
    known["problems"][GPUS[0].id][0]["since"] = since
    file.write_text(json.dumps(known))
    state, reason = memory(tmp_path).load()
    assert (state, "since" in (reason or "")) == (NodeState(), True)


def test_a_link_that_goes_up_and_down_writes_nothing(tmp_path: Path) -> None:
    """What comes back within the damping was never over, and is remembered as such."""
    kept, state = memory(tmp_path), after(look(1.0, {0: (FALLEN,)}))
    kept.keep(state)
    (tmp_path / "problems.json").unlink()
    for second in (2.0, 3.0, 4.0, 5.0):
        state = fold(state, look(second, {0: (FALLEN,)} if second % 2 else {}), POLICY)
        kept.keep(state)
    assert not (tmp_path / "problems.json").exists()
    for second in (99.0, 199.0):
        state = fold(state, look(second), POLICY)
        kept.keep(state)
    assert (tmp_path / "problems.json").exists()


def test_a_restart_before_the_first_look_after_a_reboot(tmp_path: Path) -> None:
    """A device that has not answered since the reboot is still decided by the first look that sees it."""
    memory(tmp_path).keep(after(look(1.0, {0: (FALLEN,), 1: (FULL,)})))
    kept = memory(tmp_path, "boot-2")
    kept.keep(fold(kept.load()[0], look(99.0, {1: (FULL,)}, silent={0: 99.0}), POLICY))
    state, _ = memory(tmp_path, "boot-2").load()
    assert state.doubtful == {GPUS[0].id}
    state = fold(state, look(199.0, {1: (FULL,)}), POLICY)
    assert [each.kind for each in standing(state.problems.get(GPUS[0].id, ()))] == []
