"""What DeviceFaults mean at a moment, and what is said of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.resources import decode, encode
from drasim.faults import DeviceFault, DeviceFaultSpec, DeviceFaultStatus, refused
from drasim.faults.objects import PHASES, fault_name, where
from drasim.faults.wanted import SEEN_PERIOD, judge, next_status, outcome_of, stamp
from drasim.hardware import Fault, Kind
from tests.driver.faulting import CREATED, T0, fault, site, spec

SITE = site()
GPU = SITE.machine.gpus[1]


def status_at(obj: DeviceFault, now: float) -> DeviceFaultStatus:
    return next_status(obj, judge(obj, SITE, now), now)


def saying(obj: DeviceFault, status: DeviceFaultStatus) -> DeviceFault:
    return msgspec.structs.replace(obj, status=status)


def test_a_fault_stands_until_it_is_deleted() -> None:
    """Without times it is active at once, whatever the node's clock says, and never ends by itself."""
    for now in (0.0, T0 - 3600, T0, T0 + 1e9):
        verdict = judge(fault(), SITE, now)
        assert (verdict.phase, verdict.changes) == ("Active", None)
        assert verdict.faults == (Fault(device=GPU.id, kind="lost"),)
        assert verdict.devices == ("gpu-1",)


def test_after_and_duration_count_from_the_creation() -> None:
    """Pending, Active, Cleared; each phase knows when the next one begins. The creation's own second is not counted."""
    obj = fault(after="30s", duration="1m")
    found = [judge(obj, SITE, T0 + seconds) for seconds in (0, 30.9, 31, 90.9, 91)]
    assert [verdict.phase for verdict in found] == ["Pending", "Pending", "Active", "Active", "Cleared"]
    assert [verdict.changes and verdict.changes - T0 for verdict in found] == [31, 31, 91, 91, None]
    assert [bool(verdict.faults) for verdict in found] == [False, False, True, True, False]
    assert found[0].reason == "begins at 2026-03-01T12:00:31Z"
    assert found[2].reason == "ends at 2026-03-01T12:01:31Z"
    assert found[4].reason == "ended at 2026-03-01T12:01:31Z"


@given(st.floats(0, 0.999), st.floats(0, 3), st.integers(1, 3000), st.integers(0, 3000))
def test_no_fault_is_early_or_short(fraction: float, late: float, duration: int, after: int) -> None:
    """The API says of a creation only in which second it was: half a second is half a second all the same."""
    obj = fault(after=f"{after}ms", duration=f"{duration}ms")
    created, at = T0 + fraction, T0 + fraction + late
    phase = judge(obj, SITE, at).phase
    if at < created + after / 1000:
        assert phase == "Pending" or not after
    elif at < created + (after + duration) / 1000:
        assert phase != "Cleared"


@pytest.mark.parametrize("created", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
@pytest.mark.parametrize("members", [{"after": "24h"}, {"duration": "24h"}])
def test_any_time_of_creation_is_one(created: str, members: dict[str, str]) -> None:
    """A file may say what it likes of its faults: the process goes on, and what it says has the form of the API."""
    obj = fault(**members)
    obj = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, creation_timestamp=created))
    verdict = judge(obj, SITE, T0)
    times = [f"{word} at 9999-12-31T23:59:59Z" for word in ("begins", "ends")]
    assert verdict.reason in ("", *times, "ended at 1970-01-01T00:00:00Z")


def test_after_nothing_is_at_once() -> None:
    """``after: 0s`` is no time."""
    assert judge(fault(after="0s"), SITE, 0.0).phase == "Active"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"device": "gpu-9"}, 'spec.device: "gpu-9" is no device of this machine'),
        ({"kind": "melted"}, 'spec.kind: "melted" is no kind of fault'),
        ({"kind": "xid", "code": "x"}, 'spec.code: "x" is not allowed'),
        ({"after": "soon"}, 'spec.after: "soon" is not allowed; allowed: 0s to 24h'),
        ({"duration": "0s"}, 'spec.duration: "0s" is not allowed'),
        ({"device": ""}, "spec.device: exactly one of device and all"),
    ],
)
def test_what_cannot_be_done_is_refused(members: dict[str, str], reason: str) -> None:
    """The reason names the field; the machine is told nothing."""
    verdict = judge(fault(**members), SITE, T0)
    assert (verdict.phase, verdict.faults, verdict.changes) == ("Refused", (), None)
    assert verdict.reason.startswith(reason)


@pytest.mark.parametrize(
    ("running", "members", "reason"),
    [
        ("gpu", {"device": "nic-0"}, "spec.device: the driver of such devices does not run on this node (nic.hardware"),
        ("nic", {"all": "gpu"}, "spec.all: the driver of such devices does not run on this node (gpu.hardware is off)"),
    ],
)
def test_devices_without_a_driver_cannot_fail(running: Kind, members: dict[str, str], reason: str) -> None:
    """Where the hardware of a kind is off, a fault of it is refused, and the status says why."""
    assert judge(fault(**members), site(running), T0).reason.startswith(reason)


def test_a_root_with_one_driver_running() -> None:
    """The devices that are told are those that are published."""
    obj = fault(device=GPU.pci.root, kind="down")
    assert judge(obj, site("nic"), T0).devices == ("nic-1",)
    assert judge(obj, SITE, T0).devices == ("gpu-1", "nic-1")


def test_the_status_keeps_what_was_seen() -> None:
    """First seen stays; last seen is renewed every few minutes only, and says the end when there is one."""
    obj = fault(duration="10m")
    first = status_at(obj, T0 + 2.7)
    assert (first.phase, first.first_seen, first.last_seen) == ("Active", stamp(T0 + 2), stamp(T0 + 2))
    obj = saying(obj, first)
    assert status_at(obj, T0 + 2 + SEEN_PERIOD - 1) == first
    renewed = status_at(obj, T0 + 2 + SEEN_PERIOD)
    assert (renewed.first_seen, renewed.last_seen) == (first.first_seen, stamp(T0 + 2 + SEEN_PERIOD))
    over = status_at(obj, T0 + 5000)
    assert (over.phase, over.first_seen, over.last_seen) == ("Cleared", first.first_seen, stamp(T0 + 601))


def test_last_seen_follows_a_clock_that_was_set_back() -> None:
    """A time that lies far ahead was written by a clock that was wrong: it would stand there until that time comes."""
    obj = saying(fault(), status_at(fault(), T0 + 86400))
    assert status_at(obj, T0 + 86400 - 1).last_seen == stamp(T0 + 86400)
    assert status_at(obj, T0 + 100).last_seen == stamp(T0 + 100)


def test_what_was_over_before_anybody_looked() -> None:
    """A driver that was away all the time says that it never saw it."""
    status = status_at(fault(duration="5s"), T0 + 60)
    assert (status.phase, status.first_seen, status.last_seen) == ("Cleared", None, None)
    assert status.reason == f"ended at {stamp(T0 + 6)}, before this node's driver knew of it"


def test_another_spec_is_another_fault() -> None:
    """What was seen of the spec before does not count for the new one."""
    old = DeviceFaultStatus(phase="Active", first_seen=CREATED, last_seen=CREATED, observed_generation=1)
    obj = saying(fault(), old)
    changed = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, generation=2))
    status = status_at(changed, T0 + 100)
    assert (status.first_seen, status.observed_generation) == (stamp(T0 + 100), 2)


def test_refusing_keeps_what_was_seen() -> None:
    """The controller's refusal says why, and does not touch the times."""
    seen = DeviceFaultStatus(phase="Active", first_seen=CREATED, last_seen=CREATED, observed_generation=1)
    status = refused(saying(fault(), seen), 'spec.node: "node-z" is no Node')
    assert (status.phase, status.reason) == ("Refused", 'spec.node: "node-z" is no Node')
    assert (status.first_seen, status.last_seen) == (CREATED, CREATED)


def test_a_long_reason_is_cut() -> None:
    """The CRD takes 1024 characters."""
    assert len(refused(fault(), "x" * 5000).reason or "") == 1024


def test_all_faults_are_one_state() -> None:
    """What two objects want alike is told once; other nodes and what is being deleted mean nothing."""
    going = fault("c", kind="thermal")
    going = msgspec.structs.replace(going, metadata=msgspec.structs.replace(going.metadata, deletion_timestamp=CREATED))
    objects = (fault("a"), fault("b", device=GPU.id), going, fault("d", node="node-b"), fault("e", all="nic"))
    outcome = outcome_of(objects, SITE, T0)
    hit = sorted((GPU.id, *(nic.id for nic in SITE.machine.nics)))
    assert outcome.faults == tuple(Fault(device=each, kind="lost") for each in hit)
    assert set(outcome.statuses) == {"uid-a", "uid-b", "uid-e"}
    assert outcome.look_again == T0 + SEEN_PERIOD


def test_what_was_said_goes_before_what_is_stored() -> None:
    """A status that is not stored yet is not made anew a second later."""
    first = outcome_of((fault(),), SITE, T0)
    second = outcome_of((fault(),), SITE, T0 + 2, known=first.statuses)
    assert second.statuses == first.statuses


_PLACES = st.sampled_from([{"device": "gpu-1"}, {"device": "nic-0"}, {"device": GPU.pci.root}, {"all": "gpu"}, {}])
_TIMES = st.none() | st.sampled_from(["0s", "1s", "90s", "10m", "soon", "500ms"])
_OBJECTS = st.lists(
    st.builds(
        lambda name, place, kind, code, after, duration: fault(
            f"f{name}", **({"device": None} | place), kind=kind, code=code, after=after, duration=duration
        ),
        st.integers(0, 9),
        _PLACES,
        st.sampled_from(["lost", "xid", "down", "link-down", "prepare-slow", "nonsense"]),
        st.none() | st.sampled_from(["79", "5", ""]),
        _TIMES,
        _TIMES,
    ),
    max_size=8,
    unique_by=lambda obj: obj.metadata.name,
)


@given(objects=_OBJECTS, seconds=st.floats(-100, 2000))
def test_the_machine_is_told_what_is_said_to_be_active(objects: list[DeviceFault], seconds: float) -> None:
    """For any objects at any time: each has a phase, what is active is told and no more; order is nothing."""
    now = T0 + seconds
    outcome = outcome_of(objects, SITE, now)
    verdicts = [judge(obj, SITE, now) for obj in objects]
    assert set(outcome.faults) == {each for verdict in verdicts if verdict.phase == "Active" for each in verdict.faults}
    assert {status.phase for status in outcome.statuses.values()} <= set(PHASES)
    assert len(outcome.statuses) == len(objects)
    assert outcome_of(objects[::-1], SITE, now).faults == outcome.faults


@given(objects=_OBJECTS, seconds=st.floats(-100, 2000), share=st.floats(0, 0.999))
def test_nothing_changes_before_it_is_looked_at_again(objects: list[DeviceFault], seconds: float, share: float) -> None:
    """Between a look and the time at which to look again, the outcome is the same, so no timer is missed."""
    now = T0 + seconds
    first = outcome_of(objects, SITE, now)
    again = now + 5000 if first.look_again is None else first.look_again
    assert again > now
    later = outcome_of(objects, SITE, now + share * (again - now), known=first.statuses)
    assert (later.faults, later.statuses) == (first.faults, first.statuses)


def test_names_follow_from_what_fails() -> None:
    """The same fault has the same name, which the API takes; other faults have others."""
    assert fault_name(spec(kind="xid", code="79")) == "node-a-gpu-1-xid-79"
    assert fault_name(spec(all="nic")) == "node-a-all-nic-lost"
    assert fault_name(spec(device="pci0000:15", kind="down")) == "node-a-pci0000-15-down"
    assert fault_name(spec(device="0000:3b:00.0")) == "node-a-0000-3b-00.0-lost"
    long = [fault_name(spec(node="n" * 253, kind="xid", code=code)) for code in ("79", "48")]
    assert (len(set(long)), {len(name) for name in long}) == (2, {253})


def test_where_is_for_people() -> None:
    """One device by its name, all of a kind in words."""
    assert (where(spec()), where(spec(all="gpu"))) == ("gpu-1", "all gpu")


def test_objects_are_the_apis() -> None:
    """Names of members are those of the CRD, and reading takes what it does not know."""
    status = DeviceFaultStatus(phase="Active", first_seen=CREATED, observed_generation=3)
    obj = saying(fault(kind="xid", code="79", after="5s"), status)
    text = encode(obj).replace(b'"spec":{', b'"spec":{"more":1,')
    assert decode(text, DeviceFault) == obj
    assert b'"firstSeen":' in text
    assert b'"observedGeneration":3' in text
    assert decode(b'{"node":"a","kind":"x"}', DeviceFaultSpec) == DeviceFaultSpec(node="a", kind="x")
