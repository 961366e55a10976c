"""The fold that keeps what is known of a node."""

from hypothesis import given
from hypothesis import strategies as st

from drasim.hardware import Looked
from drasim.state import NodeState, fold
from tests.driver.machines import machine

GPUS = machine("dgx").gpus
LOOKS = st.builds(
    Looked,
    at=st.floats(min_value=0, max_value=1e9),
    devices=st.lists(st.sampled_from(GPUS), unique_by=lambda gpu: gpu.id).map(tuple),
)


def test_a_look_is_the_whole_inventory() -> None:
    """Devices of a look are there, by identity and in the order of their index; others are gone."""
    state = fold(NodeState(), Looked(at=1.0, devices=GPUS[::-1]))
    assert list(state.devices.values()) == list(GPUS)
    later = fold(state, Looked(at=2.0, devices=GPUS[1:]))
    assert list(later.devices) == [gpu.id for gpu in GPUS[1:]]


def test_nobody_has_looked_at_first() -> None:
    """A state without a look says so."""
    assert (NodeState().looked_at, dict(NodeState().devices)) == (0.0, {})


def test_a_look_that_saw_nothing_new_keeps_the_inventory() -> None:
    """Only the time of the look changes, so that followers of the devices have nothing to do."""
    state = fold(NodeState(), Looked(at=1.0, devices=GPUS))
    later = fold(state, Looked(at=2.0, devices=GPUS))
    assert later.devices is state.devices
    assert later.looked_at == 2.0


@given(LOOKS)
def test_folding_the_same_look_twice_changes_nothing(look: Looked) -> None:
    """The fold is idempotent."""
    once = fold(NodeState(), look)
    assert fold(once, look) == once


@given(st.lists(LOOKS, min_size=1))
def test_the_newest_look_decides(looks: list[Looked]) -> None:
    """After any sequence of looks the state is that of the last one among the newest."""
    state = NodeState()
    for look in looks:
        state = fold(state, look)
    newest = max(look.at for look in looks)
    last = [look for look in looks if look.at == newest][-1]
    assert state.looked_at == newest
    assert set(state.devices) == {gpu.id for gpu in last.devices}
