"""Limits of the API: what is fine stays the same object, what is odd is fitted or left out, and said."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.errors import SetupError
from dra_plugin.naming import Checked, Problem, check_driver_name, checked, device_name, pool_name
from dra_plugin.naming.names import is_label, is_version, version
from dra_plugin.naming.values import fitted_attribute
from dra_plugin.quantity import Quantity
from dra_plugin.resources import (
    Counter,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    Pool,
    encode,
)
from dra_plugin.slices import Owner, plan
from dra_plugin.testing.cluster.rules import slice_problems

DRIVER = "gpu.example.com"
NUMA = "resource.kubernetes.io/numaNode"


def text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string=value)


def only(device: Device, **pool: Any) -> Checked:  # noqa: ANN401 - any field of a pool
    return checked(Pool(name="node-a", devices=(device,), **pool), DRIVER)


def fitted(device: Device, **pool: Any) -> tuple[Device, Problem]:  # noqa: ANN401 - any field of a pool
    result = only(device, **pool)
    (problem,) = result.problems
    assert problem.device == device.name
    (made,) = result.pool.devices
    return made, problem


def left_out(device: Device, **pool: Any) -> Problem:  # noqa: ANN401 - any field of a pool
    result = only(device, **pool)
    (problem,) = result.problems
    assert (result.pool.devices, problem.device) == ((), device.name)
    return problem


def many(count: int, start: str = "a") -> dict[str, DeviceAttribute]:
    return {f"{start}{n}": text("x") for n in range(count)}


def counter_set(name: str, *counters: str) -> CounterSet:
    return CounterSet(name=name, counters={each: Counter(value=Quantity(1)) for each in counters})


def consumption(name: str, *counters: str, groups: tuple[str, ...] = ()) -> CounterConsumption:
    amounts = {each: Counter(value=Quantity(1)) for each in counters}
    return CounterConsumption(counter_set=name, counters=amounts, compatibility_groups=groups)


def test_what_is_fine_is_returned_as_it_is() -> None:
    """A pool within the limits comes back as the same object, without problems."""
    device = Device(
        name="gpu-0",
        attributes={
            "model": text("m" * 64),
            NUMA: DeviceAttribute(integer=1),
            "v": DeviceAttribute(version="1.2.3-a.1"),
        },
        capacity={"memory": DeviceCapacity(value=Quantity("80Gi"))},
        consumes_counters=(consumption("set", "c", groups=("a", "b")),),
        taints=(DeviceTaint(key="example.com/bad", value="x", effect="NoExecute", time_added="2026-01-01T00:00:00Z"),),
        binding_conditions=("Ready",),
        binding_failure_conditions=("example.com/Failed",),
    )
    pool = Pool(name="node-a/gpu", devices=(device,), counters=(counter_set("set", "c", "d"),))
    result = checked(pool, DRIVER)
    assert (result.pool is pool, result.problems) == (True, ())


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("gpu-0", "gpu-0"),
        ("GPU_0", "gpu-0"),
        ("GPU-8f3e/ä.1-", "gpu-8f3e---1"),
        ("x" * 64, "x" * 54 + "-" + "4b7f7e8d"),
    ],
)
def test_device_names_become_dns_labels(name: str, made: str) -> None:
    """Lower case, dashes for what is not allowed, and a checksum where a name is cut."""
    got = device_name(name)
    assert got[:-8] == made[:-8] if len(name) > 63 else got == made
    assert is_label(got)
    assert device_name(got) == got


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    """Cutting does not make two devices one."""
    assert len({device_name("x" * 80 + str(n)) for n in range(10)}) == 10


@pytest.mark.parametrize(
    ("name", "made"),
    [("node-a", "node-a"), ("Node_A/GPU", "node-a/gpu"), ("a..b//c", "a.b/c"), ("10.0.0.1", "10.0.0.1")],
)
def test_pool_names_become_subdomains(name: str, made: str) -> None:
    """Pool names are DNS subdomains joined by slashes, at most 253 characters."""
    assert pool_name(name) == made
    assert len(pool_name("ab." * 100)) <= 253


@pytest.mark.parametrize("empty", ["", "---", "ä", "//"])
def test_names_of_which_nothing_is_left_are_refused(empty: str) -> None:
    """No name is made up."""
    for made in (device_name, pool_name):
        with pytest.raises(ValueError, match="can be made of"):
            made(empty)
    assert only(Device(name="gpu-0")).problems == ()
    assert checked(Pool(name=empty), DRIVER).pool.name == "pool"


@pytest.mark.parametrize("name", ["GPU.example.com", "", "a_b", "x" * 64, "a..b", "-a", "a\n"])
def test_bad_driver_names_are_refused(name: str) -> None:
    """A driver name is a lower-case DNS subdomain of at most 63 characters."""
    check_driver_name(DRIVER)
    with pytest.raises(SetupError, match="driver name"):
        check_driver_name(name)


@pytest.mark.parametrize(
    ("given_", "made"),
    [
        ("550.54.15", "550.54.15"),
        ("570.124.06", "570.124.6"),
        ("v1.2", "1.2.0"),
        ("12", "12.0.0"),
        ("1.2.3.4", "1.2.3+4"),
        ("1.2.3-rc.1+b", "1.2.3-rc.1+b"),
        ("18446744073709551615.0.0", "18446744073709551615.0.0"),
        ("18446744073709551616.0.0", None),
        ("1.0.0-18446744073709551616", None),
        ("1.0.0-01", None),
        ("latest", None),
        ("", None),
        ("1.2.3+" + "a" * 60, None),
        ("\u0661.\u0662.\u0663", None),
    ],
)
def test_versions_are_semantic_and_fit_64_bits(given_: str, made: str | None) -> None:
    """CEL fails on anything else; what people write is brought into shape where the meaning is clear."""
    assert version(given_) == made
    assert is_version(given_) == (made == given_)


@pytest.mark.parametrize(
    ("attribute", "made"),
    [
        (text("ä" * 40), text("ä" * 32)),
        (text("a" * 65), text("a" * 64)),
        (text("a\ud800b"), text("ab")),
        (DeviceAttribute(integer=2**63), None),
        (DeviceAttribute(integer=True), None),
        (DeviceAttribute(string=5), None),  # type: ignore[arg-type]  # what a careless program gives
        (DeviceAttribute(version="v1"), DeviceAttribute(version="1.0.0")),
        (DeviceAttribute(version="new"), None),
        (DeviceAttribute(), None),
        (DeviceAttribute(string="a", integer=1), None),
        (DeviceAttribute(strings=()), None),
        (DeviceAttribute(strings=("a" * 65, "b")), DeviceAttribute(strings=("a" * 64, "b"))),
        (DeviceAttribute(versions=("1.0.0", "new")), None),
    ],
)
def test_attribute_values_are_fitted_or_left_out(attribute: DeviceAttribute, made: DeviceAttribute | None) -> None:
    """Texts are cut at 64 bytes of UTF-8, numbers have 64 bits, exactly one member is set."""
    assert fitted_attribute(attribute)[0] == made
    device, problem = fitted(Device(name="gpu-0", attributes={"a": attribute, "b": text("ok")}))
    assert (device.attributes or {}).get("a") == made
    assert (device.attributes or {})["b"] == text("ok")
    assert problem.field == "attributes[a]"


@pytest.mark.parametrize("name", ["a b", "1a", "a-b", "x" * 33, "a/b/c", "/a", "a/", "A_/a", f"{'x' * 64}/a", "ä"])
def test_bad_attribute_names_are_left_out(name: str) -> None:
    """A name is a C identifier of at most 32 characters after at most one domain of at most 63."""
    device, problem = fitted(Device(name="gpu-0", attributes={name: text("x"), "example.com/ok": text("y")}))
    assert list(device.attributes or ()) == ["example.com/ok"]
    assert problem.field == f"attributes[{name}]"
    device, problem = fitted(Device(name="gpu-0", capacity={name: DeviceCapacity(value=Quantity(1))}))
    assert (not device.capacity, problem.field) == (True, f"capacity[{name}]")


def test_a_name_with_and_without_the_driver_is_published_once() -> None:
    """``x`` and ``<driver>/x`` mean the same to consumers: the plain one stays."""
    attributes = {f"{DRIVER}/x": text("long"), "x": text("short"), f"{DRIVER}/y": text("alone")}
    device, problem = fitted(Device(name="gpu-0", attributes=attributes))
    assert device.attributes == {"x": text("short"), f"{DRIVER}/y": text("alone")}
    assert "means the same" in str(problem)


def test_at_most_32_names_with_the_standard_ones_kept() -> None:
    """Capacities and standard attributes stay; of the others the last are left out."""
    capacity = {"memory": DeviceCapacity(value=Quantity("1Gi"))}
    result = only(Device(name="gpu-0", attributes={**many(32), NUMA: DeviceAttribute(integer=0)}, capacity=capacity))
    (device,) = result.pool.devices
    assert list(device.attributes or ()) == [NUMA, *many(30)]
    assert [problem.field for problem in result.problems] == ["attributes[a30]", "attributes[a31]"]


def test_at_most_48_values() -> None:
    """Each item of a list counts."""
    attributes = {"ints": DeviceAttribute(integers=tuple(range(30))), **many(18), "last": DeviceAttribute(boolean=True)}
    device, problem = fitted(Device(name="gpu-0", attributes=attributes))
    assert len(device.attributes or ()) == 19
    assert problem.field == "attributes[last]"


def test_at_most_16_taints_with_the_heavy_ones_kept() -> None:
    """Beyond 16 taints the ones without effect go first: a bad device must not be offered."""
    taints = tuple(DeviceTaint(key=f"k{n}", effect="None" if n < 10 else "NoSchedule") for n in range(20))
    result = only(Device(name="gpu-0", taints=taints))
    (device,) = result.pool.devices
    assert [each.effect for each in device.taints or ()] == ["NoSchedule"] * 10 + ["None"] * 6
    assert len(result.problems) == 4


@pytest.mark.parametrize(
    ("taint", "made"),
    [
        (
            DeviceTaint(key="Example.com/a b", value="x y!", effect="NoExecute"),
            DeviceTaint(key="example.com/a-b", value="x-y", effect="NoExecute"),
        ),
        (DeviceTaint(key="", effect="NoSchedule"), DeviceTaint(key=f"{DRIVER}/unnamed", effect="NoSchedule")),
        (DeviceTaint(key="k", effect="Odd"), DeviceTaint(key="k", effect="NoSchedule")),
        (
            DeviceTaint(key="k", effect="None", time_added="2026-01-01T00:00:00.5+02:00"),
            DeviceTaint(key="k", effect="None", time_added="2026-01-01T00:00:00+02:00"),
        ),
        (DeviceTaint(key="k", effect="None", time_added="now"), DeviceTaint(key="k", effect="None")),
    ],
)
def test_taints_are_made_valid_rather_than_lost(taint: DeviceTaint, made: DeviceTaint) -> None:
    """A taint that is lost would offer a bad device."""
    device, problem = fitted(Device(name="gpu-0", taints=(taint,)))
    assert (device.taints, problem.field) == ((made,), "taints")


@pytest.mark.parametrize(
    "consumes",
    [
        (consumption("unknown", "c"),),
        (consumption("a", "unknown"),),
        (consumption("a"),),
        (consumption("a", "c"), consumption("a", "c")),
        (consumption("a", "c"), consumption("b", "c"), consumption("d", "c")),
        (consumption("a", "c", groups=("x", "y", "z")),),
        (consumption("a", "c", groups=("x", "x")),),
        (consumption("a", "c", groups=("X",)),),
    ],
)
def test_devices_with_wrong_counters_are_left_out(consumes: tuple[CounterConsumption, ...]) -> None:
    """Without its counters a device could be given away twice, and a wrong reference spoils the whole pool."""
    sets = (counter_set("a", "c"), counter_set("b", "c"), counter_set("d", "c"))
    assert left_out(Device(name="gpu-0", consumes_counters=consumes), counters=sets).field == "consumesCounters"


@pytest.mark.parametrize(
    "sets",
    [
        (counter_set("A", "c"),),
        (counter_set("a"),),
        (counter_set("a", *(f"c{n}" for n in range(33))),),
        (counter_set("a", "C"),),
        (counter_set("a", "c"), counter_set("a", "d")),
    ],
)
def test_wrong_counter_sets_are_left_out_with_their_devices(sets: tuple[CounterSet, ...]) -> None:
    """The pool stays valid, the other devices are published."""
    bad = Device(name="gpu-0", consumes_counters=(consumption(sets[0].name, "c"),))
    result = checked(Pool(name="node-a", devices=(bad, Device(name="gpu-1")), counters=sets), DRIVER)
    assert (result.pool.counters, [each.name for each in result.pool.devices]) == ((), ["gpu-1"])
    assert result.problems[0].device.startswith("counter set ")


@pytest.mark.parametrize(
    ("conditions", "failures"),
    [(("A",), ()), ((), ("A",)), (("A",), ("A",)), (("A", "A"), ("B",)), (("a b",), ("B",)), (tuple("ABCDE"), ("F",))],
)
def test_devices_with_wrong_binding_conditions_are_left_out(
    conditions: tuple[str, ...], failures: tuple[str, ...]
) -> None:
    """Without its conditions a device would be used before it is ready."""
    device = Device(name="gpu-0", binding_conditions=conditions, binding_failure_conditions=failures)
    assert left_out(device).field == "bindingConditions"


def test_names_are_unique_in_the_pool() -> None:
    """The second device of a name is left out, also when only the valid names are equal."""
    devices = (Device(name="gpu-0"), Device(name="GPU_0"), Device(name="gpu-0"), Device(name="gpu-1"))
    result = checked(Pool(name="node-a", devices=devices), DRIVER)
    assert [each.name for each in result.pool.devices] == ["gpu-0", "gpu-1"]
    assert [problem.device for problem in result.problems] == ["GPU_0", "gpu-0"]


def test_node_selection_of_a_device_is_left_out() -> None:
    """The server refuses it in a slice that belongs to a node."""
    device, problem = fitted(Device(name="gpu-0", all_nodes=True))
    assert (device.all_nodes, problem.field) == (None, "allNodes")


def test_a_problem_reads_well() -> None:
    """One line says device, field, value, what became of it, and the rule."""
    (one,) = only(Device(name="gpu-0", attributes={"v": DeviceAttribute(version="v1.2")})).problems
    assert str(one).startswith("gpu-0: attributes[v]: 'v1.2' published as '1.2.0': must be a semantic version")
    (other,) = only(Device(name="gpu-0", attributes={"v": DeviceAttribute(integer=2**70)})).problems
    assert "left out" in str(other)


words = st.sampled_from(["", "a", "A_b", "a/b", "example.com/x", "a b", "x" * 70, "\ud800", "-", "ä"]) | st.text(
    max_size=5
)
attributes = st.builds(
    DeviceAttribute,
    boolean=st.none() | st.booleans(),
    integer=st.none() | st.sampled_from([0, 2**63, -(2**63)]),
    string=st.none() | words,
    version=st.none() | st.sampled_from(["v1", "1.02.3", "1.2.3.4", "x"]),
    integers=st.none() | st.integers(0, 50).map(lambda count: tuple(range(count))),
)
capacities = st.builds(DeviceCapacity, value=st.just(Quantity("80Gi")))
taints = st.builds(
    DeviceTaint, key=words, value=st.none() | words, effect=st.sampled_from(["None", "NoExecute", "Odd"])
)
devices = st.builds(
    Device,
    name=words,
    attributes=st.dictionaries(words, attributes, max_size=4),
    capacity=st.dictionaries(words, capacities, max_size=2),
    taints=st.lists(taints, max_size=2).map(lambda few: tuple(few) * 9),
)


@given(words, st.lists(devices, max_size=3).map(tuple))
def test_whatever_is_wanted_the_server_takes_what_is_published(name: str, given_: tuple[Device, ...]) -> None:
    """The checked pool passes the server's rules, has no more problems, and can be written as JSON."""
    made = checked(Pool(name=name, devices=given_), DRIVER).pool
    again = checked(made, DRIVER)
    assert (again.pool is made, again.problems) == (True, ())
    for each in plan(made, (), Owner(driver=DRIVER, node_name="node-a")).create:
        assert list(slice_problems(msgspec.json.decode(encode(each)), None)) == []


@given(st.lists(devices, max_size=4), st.lists(devices, max_size=3), st.permutations(range(4)), st.booleans())
def test_a_check_that_remembers_finds_the_same(
    first: list[Device], more: list[Device], order: list[int], counted: bool
) -> None:
    """Whatever was checked before, the result is that of a first check: only the work differs."""
    sets = (counter_set("s", "c"),)
    last = checked(Pool(name="p", devices=tuple(first), counters=sets if counted else ()), DRIVER)
    kept = [last.pool.devices[index] for index in order if index < len(last.pool.devices)]
    pool = Pool(name="p", devices=(*kept, *first[:1], *more), counters=sets)
    again = checked(pool, DRIVER, last)
    assert again == checked(pool, DRIVER)


def test_a_remembered_device_is_checked_against_new_counters() -> None:
    """A device that was fine is left out when the counters that it draws from are gone."""
    device = Device(name="d", consumes_counters=(consumption("s", "c"),))
    last = only(device, counters=(counter_set("s", "c"),))
    assert last.problems == ()
    assert checked(Pool(name="node-a", devices=(device,)), DRIVER, last).pool.devices == ()
