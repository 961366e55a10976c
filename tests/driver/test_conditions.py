"""conditions: what faults do to the devices of a simulated machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drasim.config.problems import PROBLEM_KINDS
from drasim.hardware import Fault, Sign
from drasim.hardware.simulated.conditions import Condition, PlacedFault, conditions_of, next_toggle, signs_at
from drasim.hardware.simulated.faults import FAULT_KINDS
from tests.driver.machines import machine

MACHINE = machine()
GPU, NIC = MACHINE.gpus[0], MACHINE.nics[0]
BORN = 1000.0


def conditions(*faults: Fault) -> dict[str, Condition]:
    return dict(conditions_of(MACHINE, [PlacedFault(fault=fault, since=BORN) for fault in faults]))


def signs(*faults: Fault, device: str = GPU.id, now: float = BORN) -> list[tuple[str, str]]:
    found = conditions(*faults).get(device, Condition())
    return [(sign.kind, sign.code) for sign in signs_at(found, now)]


def test_without_faults_every_device_is_as_it_should_be() -> None:
    """Nothing is said of a sound device."""
    assert conditions() == {}


def test_a_fault_befalls_its_device_alone() -> None:
    """All others are as they should be."""
    assert conditions(Fault(device=GPU.id, kind="thermal")).keys() == {GPU.id}


@pytest.mark.parametrize(
    ("code", "message"), [("79", "GPU has fallen off the bus"), ("48", "double bit ECC error"), ("998", "error")]
)
def test_an_xid_is_explained(code: str, message: str) -> None:
    """Well-known numbers have their own text; the others are an error of the GPU."""
    (sign,) = conditions(Fault(device=GPU.id, kind="xid", code=code))[GPU.id].signs
    assert (sign.kind, sign.code) == ("xid", code)
    assert message in sign.message


def test_signs_are_told_once_and_in_order() -> None:
    """Sources that want the same make one sign; the order is that of the kinds, then of the codes."""
    wanted = [("xid", "79"), ("thermal", ""), ("xid", "48"), ("xid", "79"), ("lost", "")]
    faults = [Fault(device=GPU.id, kind=kind, code=code) for kind, code in wanted]
    assert signs(*faults) == [("lost", ""), ("xid", "48"), ("xid", "79"), ("thermal", "")]


def test_a_root_that_is_down_takes_its_devices_along() -> None:
    """GPU and NIC below it show the root's name as a label value, and cannot be reached."""
    found = conditions(Fault(device=GPU.pci.root, kind="down"))
    below = {device.id for device in MACHINE.devices if device.pci.root == GPU.pci.root}
    assert {GPU.id, NIC.id} <= found.keys() == below
    label = GPU.pci.root.replace(":", "-")
    for condition in found.values():
        assert condition.signs == (Sign(kind="down", code=label, message=f"PCIe root {GPU.pci.root} is down"),)
        assert GPU.pci.root in condition.gone


def test_a_fault_of_a_root_befalls_what_it_can() -> None:
    """An XID below a root is the GPUs', a link without signal the NICs'."""
    root = GPU.pci.root
    found = conditions(Fault(device=root, kind="xid", code="79"), Fault(device=root, kind="link-down"))
    assert [sign.kind for sign in found[GPU.id].signs] == ["xid"]
    assert [sign.kind for sign in found[NIC.id].signs] == ["link-down"]


def test_what_only_changes_behaviour_shows_no_sign() -> None:
    """A device that is slow or fails when it is prepared looks sound, as does one that cannot be looked at."""
    kinds = ("prepare-fails", "prepare-slow", "unprepare-slow", "probe-hangs", "unplugged")
    faults = [Fault(device=GPU.id, kind=kind) for kind in kinds]
    assert signs(*faults) == []
    found = conditions(*faults)[GPU.id]
    assert (found.fails, found.hangs, found.absent) == (True, True, True)
    assert "unplugged" in found.gone


@pytest.mark.parametrize(("codes", "seconds"), [(("",), 5.0), (("2.5", "0.5"), 2.5), (("soon",), 5.0), (("inf",), 5.0)])
def test_the_slowest_wins(codes: tuple[str, ...], seconds: float) -> None:
    """The code is a number of seconds, five where there is none that can be used."""
    found = conditions(*[Fault(device=GPU.id, kind="prepare-slow", code=code) for code in codes])[GPU.id]
    assert (found.prepare_seconds, found.unprepare_seconds) == (seconds, 0.0)


@pytest.mark.parametrize(("after", "down"), [(0.0, True), (1.4, True), (1.5, False), (2.9, False), (3.0, True)])
def test_a_flapping_link_is_down_in_the_first_half_of_each_period(after: float, down: object) -> None:
    """A flap of three seconds begins with the fault, so that it is seen at once."""
    fault = Fault(device=NIC.id, kind="link-flap", code="3")
    assert bool(signs(fault, device=NIC.id, now=BORN + after)) is down


@given(eighths=st.integers(0, 10**7), halves=st.integers(1, 7200))
def test_a_link_toggles_when_it_says(eighths: int, halves: int) -> None:
    """Until the next toggle the link stays as it is, and the next toggle is at most half a period away."""
    now, period = BORN + eighths / 8, halves / 2  # floats that are exact
    found = conditions(Fault(device=NIC.id, kind="link-flap", code=str(period)))[NIC.id]
    toggle = next_toggle([found], now)
    assert toggle is not None
    assert now < toggle <= now + period / 2
    assert signs_at(found, now) == signs_at(found, (now + toggle) / 2)
    assert signs_at(found, toggle + period / 4) != signs_at(found, now)


def test_the_earliest_toggle_counts() -> None:
    """Of several links the next one to change says when to look; without any, nobody has to."""
    faults = [Fault(device=NIC.id, kind="link-flap", code=code) for code in ("8", "3")]
    assert next_toggle(conditions(*faults).values(), BORN + 0.5) == BORN + 1.5
    assert next_toggle(conditions(Fault(device=GPU.id, kind="thermal")).values(), BORN) is None


@given(
    st.lists(
        st.builds(
            Fault,
            device=st.sampled_from([each.id for each in MACHINE.devices] + [GPU.pci.root, "nobody"]),
            kind=st.sampled_from([*FAULT_KINDS, "unheard-of"]),
            code=st.sampled_from(["", "79", "1.5", "x"]),
        )
    )
)
def test_a_device_shows_only_what_can_befall_it(faults: list[Fault]) -> None:
    """Whatever is wanted, each sign is a problem of that kind of devices, is told once and has a message."""
    found = conditions(*faults)
    kinds = {device.id: type(device).__name__.lower() for device in MACHINE.devices}
    for device, condition in found.items():
        shown = signs_at(condition, BORN)
        assert all(kinds[device] in PROBLEM_KINDS[sign.kind] and sign.message for sign in shown)
        assert len({(sign.kind, sign.code) for sign in shown}) == len(shown)
