"""Offer: what containers, Prepare, the scheduler and the kubelet are told of a state."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_plugin.cdi import CdiFolder
from dra_plugin.errors import SetupError
from dra_plugin.health import DeviceHealth, Health
from dra_plugin.resources import Device
from drasim.config import Config
from drasim.edits import cdi_id
from drasim.hardware import Looked, Sign
from drasim.offering import Offer
from drasim.problems import standing
from drasim.state import NodeState, fold
from drasim.taints import taints_for
from tests.driver.looks import FALLEN, GPUS, HOT, POLICY, after, look, looks

GPU = "gpu.dra.example.com"
CONFIG = Config(node_name="node-a", problems=POLICY)
NOBODY = frozenset[str]()


def offer(folder: Path) -> Offer:
    """Return an offer that nobody has renewed yet."""
    return Offer(GPU, "gpu", CONFIG, CdiFolder(folder / "cdi"))


def devices(of: Offer) -> dict[str, Device]:
    """Return what is published."""
    pools = of.pools.value
    assert pools is not None
    return {device.name: device for device in pools["node-a-gpu"].devices}


def health(of: Offer) -> dict[str, DeviceHealth]:
    """Return what the kubelet is told."""
    return {each.device: each for each in of.health.value}


def tainted(of: Offer) -> list[str]:
    """Return the names of devices with taints."""
    return [name for name, device in devices(of).items() if device.taints]


def renewed(folder: Path, *seen: Looked, held: frozenset[str] = NOBODY, kept: bool = True) -> Offer:
    """Return an offer made of the state after these looks."""
    made = offer(folder)
    made.renew(after(*seen), held, taints_kept=kept)
    return made


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    """Before the first look nothing is published, not even an empty pool."""
    made = offer(tmp_path)
    assert (made.inventory.value, made.pools.value, made.health.value) == (None, None, ())


def test_a_sick_device_is_told_to_everybody(tmp_path: Path) -> None:
    """Taint and health in the slice, health and words for the kubelet; the others are well, and it can be prepared."""
    made = renewed(tmp_path, look(7.5, {1: (FALLEN, HOT)}))
    assert tainted(made) == ["gpu-1"]
    assert health(made)["gpu-1"] == DeviceHealth(
        pool="node-a-gpu",
        device="gpu-1",
        health=Health.UNHEALTHY,
        message="xid 79: GPU has fallen off the bus; thermal: clocks are slowed down",
        looked_at=7,
        timeout=30,
    )
    assert {each.health for name, each in health(made).items() if name != "gpu-1"} == {Health.HEALTHY}
    assert list(made.inventory.value.devices) == [f"gpu-{index}" for index in range(4)]  # type: ignore[union-attr]  # it was renewed


def test_a_silent_device_is_unknown_since_it_was_last_seen(tmp_path: Path) -> None:
    """The time is that of its own last look."""
    made = renewed(tmp_path, look(2.0), look(9.0, silent={0: 2.0}))
    assert (health(made)["gpu-0"].health, health(made)["gpu-0"].looked_at) == (Health.UNKNOWN, 2)
    assert (health(made)["gpu-1"].health, health(made)["gpu-1"].looked_at) == (Health.HEALTHY, 9)


def test_looking_writes_no_slices(tmp_path: Path) -> None:
    """A look that finds nothing new renews health, and leaves inventory, pool and CDI spec as they are."""
    made = offer(tmp_path)
    first = after(look(1.0, {0: (FALLEN,)}))
    made.renew(first, NOBODY, taints_kept=True)
    before = made.inventory.value, made.pools.value
    for path in (tmp_path / "cdi").iterdir():
        path.unlink()
    made.renew(fold(first, look(2.0, {0: (FALLEN,)}), POLICY), NOBODY, taints_kept=True)
    assert (made.inventory.value, made.pools.value) == before
    assert made.pools.value is before[1]
    assert list((tmp_path / "cdi").iterdir()) == []
    assert {each.looked_at for each in made.health.value} == {2}


def test_what_did_not_change_is_the_same_object(tmp_path: Path) -> None:
    """One sick device costs the publisher one comparison, and no new CDI spec."""
    made = offer(tmp_path)
    state = after(look(1.0, {1: (HOT,)}))
    made.renew(state, NOBODY, taints_kept=True)
    before, inventory = devices(made), made.inventory.value
    made.renew(fold(state, look(2.0, {0: (FALLEN,), 1: (HOT,)}), POLICY), NOBODY, taints_kept=True)
    assert [name for name, device in devices(made).items() if device is not before[name]] == ["gpu-0"]
    assert made.inventory.value is inventory


def test_a_device_in_use_stays_when_it_is_unplugged(tmp_path: Path) -> None:
    """It is published with a taint, reported and found by containers until its claim is gone; then it goes."""
    made = offer(tmp_path)
    state, uuid = after(look(1.0), look(2.0, devices=GPUS[:3])), GPUS[3].id
    made.renew(state, frozenset({uuid}), taints_kept=True)
    assert [taint.key for taint in devices(made)["gpu-3"].taints or ()] == [f"{GPU}/unplugged"]
    assert health(made)["gpu-3"].health is Health.UNHEALTHY
    assert CdiFolder(tmp_path / "cdi").resolves([cdi_id(GPU, "gpu-3")])
    made.renew(state, NOBODY, taints_kept=True)
    assert list(devices(made)) == list(health(made)) == ["gpu-0", "gpu-1", "gpu-2"]
    assert not CdiFolder(tmp_path / "cdi").resolves([cdi_id(GPU, "gpu-3")])


def test_where_taints_are_dropped_sick_devices_are_left_out(tmp_path: Path) -> None:
    """Not those that a claim holds, nor those with a warning; Prepare and the kubelet's stream still know them."""
    seen = look(1.0, {0: (FALLEN,), 1: (FALLEN,), 2: (HOT,)})
    made = renewed(tmp_path, seen, held=frozenset({GPUS[1].id}), kept=False)
    assert list(devices(made)) == ["gpu-1", "gpu-2", "gpu-3"]
    assert made.unpublished.value == {"gpu-0"}
    assert (len(made.health.value), len(made.inventory.value.devices)) == (4, 4)  # type: ignore[union-attr]  # it was renewed
    made.renew(after(seen), frozenset({GPUS[1].id}), taints_kept=True)
    assert (list(devices(made)), made.unpublished.value) == (["gpu-0", "gpu-1", "gpu-2", "gpu-3"], frozenset())


def test_a_spec_that_cannot_be_written(tmp_path: Path) -> None:
    """Nothing is offered that containers would not find; the next time it is tried again."""
    (tmp_path / "cdi").write_text("")
    made = offer(tmp_path)
    with pytest.raises(SetupError):
        made.renew(after(look(1.0)), NOBODY, taints_kept=True)
    assert (made.inventory.value, made.pools.value) == (None, None)
    (tmp_path / "cdi").unlink()
    made.renew(after(look(1.0)), NOBODY, taints_kept=True)
    assert len(devices(made)) == 4


@settings(max_examples=50, deadline=None)
@given(seen=looks(6), held=st.sets(st.sampled_from([gpu.id for gpu in GPUS[:2]])), kept=st.booleans())
def test_what_is_published_is_what_stands(
    tmp_path_factory: pytest.TempPathFactory, seen: list[Looked], held: set[str], kept: bool
) -> None:
    """After any looks, through one offer renewed each time: each device has the taints of what stands on it.

    Nothing that a claim holds is left out, and without taints nothing is published that claims must not have.
    """
    made = offer(tmp_path_factory.mktemp("offer"))
    state = NodeState()
    for each in seen:
        state = fold(state, each, POLICY)
        made.renew(state, frozenset(held), taints_kept=kept)
    shown = {device.attributes["uuid"].string: device for device in devices(made).values() if device.attributes}
    for uuid, device in shown.items():
        assert (device.taints or ()) == taints_for(state.problems.get(uuid or "", ()), GPU, POLICY)
    assert {uuid for uuid in held if uuid in state.devices or uuid in state.missing} <= shown.keys()
    assert shown.keys() <= state.devices.keys() | held
    if kept:
        assert state.devices.keys() <= shown.keys()
    else:
        assert all(uuid in held or not sick(state, uuid) for uuid in shown)


def sick(state: NodeState, uuid: str | None) -> bool:
    """Return whether something stands that is more than a warning."""
    harmless = {("thermal", ""), ("xid", "13")}
    return any((each.kind, each.code) not in harmless for each in standing(state.problems.get(uuid or "", ())))


def test_a_link_that_flaps_writes_one_slice(tmp_path: Path) -> None:
    """While it goes up and down within the damping, the pool does not change."""
    made, pools, state = offer(tmp_path), [], NodeState()
    for second in range(1, 8):
        signs = {0: (Sign(kind="nvlink"),)} if second % 2 else {}
        state = fold(state, look(float(second), signs), POLICY)
        made.renew(state, NOBODY, taints_kept=True)
        pools.append(made.pools.value)
    assert all(each is pools[0] for each in pools)


def test_problems_are_told_though_no_spec_can_be_written(tmp_path: Path) -> None:
    """A disk that is full when a device goes away keeps no sick device in use: isolation needs no CDI spec."""
    made, whole = offer(tmp_path), look(1.0)
    made.renew(after(whole), NOBODY, taints_kept=True)
    (tmp_path / "cdi").rename(tmp_path / "away")
    (tmp_path / "cdi").write_text("")
    state = after(whole, look(2.0, {0: (FALLEN,)}, devices=GPUS[:3]))
    with pytest.raises(SetupError):
        made.renew(state, NOBODY, taints_kept=True)
    assert tainted(made) == ["gpu-0", "gpu-3"]
    assert {name for name, each in health(made).items() if each.health is Health.UNHEALTHY} == {"gpu-0", "gpu-3"}
    (tmp_path / "cdi").unlink()
    made.renew(state, NOBODY, taints_kept=True)
    assert (list(devices(made)), tainted(made)) == (["gpu-0", "gpu-1", "gpu-2"], ["gpu-0"])
