"""The fold that keeps what is known of a node."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from drasim.hardware import Looked, Sign
from drasim.problems import standing
from drasim.state import REMEMBERED, NodeState, fold, forgotten, next_settling, settled
from drasim.taints import taints_for
from tests.driver.looks import FALLEN, FULL, GPUS, HOT, POLICY, after, look, looks

DRIVER = "gpu.dra.example.com"


def kinds(state: NodeState, index: int) -> list[str]:
    """Return the standing problems of a GPU, by kind."""
    return [problem.kind for problem in standing(state.problems.get(GPUS[index].id, ()))]


def test_nobody_has_looked_at_first() -> None:
    """A state without a look says so."""
    assert (NodeState().looked_at, dict(NodeState().devices)) == (0.0, {})


def test_a_look_is_the_whole_inventory() -> None:
    """Devices of a look are there, by identity and in the order of their index; others are gone."""
    state = after(look(1.0, devices=GPUS[::-1]))
    assert list(state.devices.values()) == list(GPUS)
    later = fold(state, look(2.0, devices=GPUS[1:]), POLICY)
    assert list(later.devices) == [gpu.id for gpu in GPUS[1:]]


def test_a_look_that_saw_nothing_new_keeps_everything_else() -> None:
    """Only the times of looks change, so that followers of devices and problems have nothing to do."""
    state = after(look(1.0, {0: (FALLEN,)}))
    later = fold(state, look(2.0, {0: (FALLEN,)}), POLICY)
    assert later.devices is state.devices
    assert later.problems is state.problems
    assert (later.looked_at, set(later.looks.values())) == (2.0, {2.0})


def test_an_older_look_changes_nothing() -> None:
    """A look that comes late is not news."""
    state = after(look(2.0))
    assert fold(state, look(1.0, {0: (FALLEN,)}), POLICY) is state


def test_problems_of_a_device_hold_and_clear_independently() -> None:
    """Two problems on one device, none on the others; one goes, and in time only that one is over."""
    state = after(look(1.0, {0: (FALLEN, HOT)}), look(2.0, {0: (HOT,)}))
    assert (kinds(state, 0), kinds(state, 1)) == (["xid", "thermal"], [])
    assert next_settling(state, POLICY) == 7.0
    assert settled(state, 6.9, POLICY) is state
    assert kinds(settled(state, 7.0, POLICY), 0) == ["thermal"]


def test_what_is_over_leaves_nothing_behind() -> None:
    """Once everything is forgotten there is nothing left to wait for."""
    state = settled(after(look(1.0, {0: (FALLEN,)}), look(2.0)), 1000.0, POLICY)
    assert (dict(state.problems), next_settling(state, POLICY)) == ({}, None)


def test_a_silent_device_has_a_problem_since_it_was_last_seen() -> None:
    """Its other problems stay, though they had begun to be gone; its last look is the one that saw it."""
    state = after(look(1.0, {0: (FALLEN,)}), look(2.0), look(6.0, silent={0: 2.5}))
    assert kinds(state, 0) == ["xid", "probe-hangs"]
    assert state.problems[GPUS[0].id][1].since == 2.5
    assert (state.looks[GPUS[0].id], state.looks[GPUS[1].id]) == (2.5, 6.0)
    assert kinds(settled(state, 1000.0, POLICY), 0) == ["xid", "probe-hangs"]
    answers = fold(state, look(7.0), POLICY)
    assert kinds(settled(answers, 11.9, POLICY), 0) == ["xid", "probe-hangs"]
    assert kinds(settled(answers, 12.0, POLICY), 0) == []


def test_a_device_that_never_answered() -> None:
    """Without a last look the problem holds since it was noticed."""
    state = after(look(6.0, silent={0: 0.0}))
    assert state.problems[GPUS[0].id][0].since == 6


def test_a_device_that_is_gone_is_remembered() -> None:
    """It has a problem of its own, is known as it was, and what was wrong with it still is."""
    state = after(look(1.0, {3: (FALLEN,)}), look(2.0, devices=GPUS[:3]))
    assert state.missing == {GPUS[3].id: GPUS[3]}
    assert kinds(state, 3) == ["unplugged", "xid"]
    assert state.looks[GPUS[3].id] == 1.0
    back = fold(state, look(3.0), POLICY)
    assert (dict(back.missing), kinds(settled(back, 8.0, POLICY), 3)) == ({}, [])


def test_a_device_that_is_gone_for_a_day_is_forgotten() -> None:
    """Unless a claim holds it; nothing of it is left."""
    state = after(look(1.0), look(2.0, devices=GPUS[:3]))
    late = 2.0 + REMEMBERED
    assert forgotten(state, late - 1, frozenset()) is state
    assert forgotten(state, late, frozenset({GPUS[3].id})) is state
    bare = forgotten(state, late, frozenset())
    assert all(GPUS[3].id not in of for of in (bare.missing, bare.problems, bare.looks))
    assert bare.devices is state.devices


def test_after_a_reboot_a_fresh_look_decides_at_once() -> None:
    """What is found again keeps its time, what is not is dropped without damping; who is not seen is not judged."""
    before = after(look(1.0, {0: (FALLEN, FULL), 1: (HOT,), 2: (FALLEN,)}))
    state = replace(before, looked_at=0.0, doubtful=frozenset(before.problems))
    state = fold(state, look(60.0, {0: (FULL,)}, silent={2: 0.0}), POLICY)
    assert [(each.code, each.since) for each in state.problems[GPUS[0].id]] == [("48", 1)]
    assert (kinds(state, 1), kinds(state, 2)) == ([], ["xid", "probe-hangs"])
    assert state.doubtful == {GPUS[2].id}
    state = fold(state, look(61.0, {0: (FULL,)}), POLICY)
    assert (kinds(state, 2), state.doubtful) == ([], frozenset())


# ------------------------------------------------------------------------------------------ for any sequence of looks


@given(looks())
def test_folding_the_same_look_twice_changes_nothing(seen: list[Looked]) -> None:
    """The fold is idempotent."""
    state = after(*seen)
    assert fold(state, seen[-1], POLICY) == state


@given(looks())
def test_the_last_look_is_the_inventory(seen: list[Looked]) -> None:
    """What is there is what the last look says; what was there before is missing, and nothing is both."""
    state = after(*seen)
    assert set(state.devices) == {device.id for device in seen[-1].devices}
    ever = {device.id for each in seen for device in each.devices}
    assert state.devices.keys() | state.missing.keys() == ever
    assert not state.devices.keys() & state.missing.keys()


@given(looks(), st.floats(0, 30))
def test_it_does_not_matter_who_looks_at_the_clock(seen: list[Looked], pause: float) -> None:
    """To settle between two looks, at any time, changes nothing of the state after the second."""
    state = after(*seen[:-1])
    between = min(state.looked_at + pause, seen[-1].at)
    assert fold(settled(state, between, POLICY), seen[-1], POLICY) == fold(state, seen[-1], POLICY)


@given(looks(), st.floats(0, 100))
def test_settling_is_done_when_it_is_said_to_be(seen: list[Looked], pause: float) -> None:
    """Before its time nothing is settled, at its time something is, and then the next time is later."""
    state = settled(after(*seen), seen[-1].at + pause, POLICY)
    due = next_settling(state, POLICY)
    if due is None:
        assert settled(state, 1e9, POLICY) is state
        return
    assert settled(state, due - 0.001, POLICY) is state
    later = next_settling(settled(state, due, POLICY), POLICY)
    assert later is None or later > due


@given(looks())
def test_each_problem_is_judged_alone(seen: list[Looked]) -> None:
    """What is known of a problem would be the same had no other one ever been found, on its device or another."""
    state = after(*seen)
    keys = {(device, each.kind, each.code) for device, problems in state.problems.items() for each in problems}
    for key in keys | {(GPUS[0].id, "xid", "79")}:
        alone = after(*(only(each, key) for each in seen))
        assert named(state, *key) == named(alone, *key)


@given(looks())
def test_taints_are_those_of_what_was_found_last(seen: list[Looked]) -> None:
    """A device that was seen has the taints of what the last look found, and of what is not gone for long; no others.

    A device that was not seen keeps those that it had, and gets that of not being seen.
    """
    before, state, last = after(*seen[:-1]), after(*seen), seen[-1]
    for device in state.devices.keys() | state.missing.keys():
        keys = {taint.key for taint in taints_for(state.problems.get(device, ()), DRIVER, POLICY)}
        had = standing(settled(before, last.at, POLICY).problems.get(device, ()))
        found = {sign.kind for sign in last.signs.get(device, ())}
        if device in last.silent or device in state.missing:
            found = {problem.kind for problem in had} | {"probe-hangs" if device in last.silent else "unplugged"}
            assert keys == {f"{DRIVER}/{kind}" for kind in found}
        else:
            damped = {problem.kind for problem in had}
            assert {f"{DRIVER}/{kind}" for kind in found} <= keys <= {f"{DRIVER}/{kind}" for kind in found | damped}


@given(looks())
def test_taints_keep_their_time_while_they_stand(seen: list[Looked]) -> None:
    """A problem that stands before and after a look has the same age."""
    before, state = after(*seen[:-1]), after(*seen)
    settled_before = settled(before, seen[-1].at, POLICY)
    for device, problems in state.problems.items():
        old = {(each.kind, each.code): each.since for each in standing(settled_before.problems.get(device, ()))}
        new = {(each.kind, each.code): each.since for each in standing(problems)}
        assert {key: new[key] for key in new.keys() & old.keys()} == {key: old[key] for key in new.keys() & old.keys()}


@given(looks())
def test_everything_heals(seen: list[Looked]) -> None:
    """When all devices are there and well for long enough, no taint is left."""
    end = seen[-1].at
    state = fold(after(*seen), look(end + 1), POLICY)
    state = fold(state, look(end + 1000), POLICY)
    assert dict(state.problems) == {}


def only(seen: Looked, key: tuple[str, str, str]) -> Looked:
    """Return the look as if it could find nothing but one problem."""
    device, kind, code = key
    signs: dict[str, tuple[Sign, ...]] = {
        device: tuple(sign for sign in seen.signs.get(device, ()) if (sign.kind, sign.code) == (kind, code))
    }
    return replace(seen, signs=signs)


def named(state: NodeState, device: str, kind: str, code: str) -> list[object]:
    """Return what is known of one problem."""
    return [each for each in state.problems.get(device, ()) if (each.kind, each.code) == (kind, code)]
