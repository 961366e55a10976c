"""`drasim status`: objects in, rows and lines out."""

from typing import Any

import pytest

from dra_plugin.claims import RESOURCE_CLAIM, ResourceClaim
from dra_plugin.resources import (
    DeviceAttribute,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    Lease,
    LeaseSpec,
    ObjectMeta,
    ResourcePool,
    decode,
    encode,
)
from drasim.cli.status.notes import notes, summary
from drasim.cli.status.objects import Slice, Snapshot, groups_of
from drasim.cli.status.table import HEADING, age, table
from drasim.cli.status.view import DeviceRow, ProblemRow, Scope, TaintRow, UseRow, concerns, view
from drasim.controller.status import BudgetUse, ControllerStatus, DeviceStatus
from drasim.faults import DeviceFault, DeviceFaultSpec, DeviceFaultStatus

GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
POOL = "node-a-gpu"
AT = "2026-01-01T00:00:00Z"
NOW = 1767225600.0 + 192  # three minutes and twelve seconds later
EVERYTHING = Scope(drivers=(GPU, NIC))


def device(name: str, *taints: DeviceTaint, health: str = "Healthy") -> dict[str, Any]:
    """Return a device of a slice."""
    attributes = {"health": DeviceAttribute(string=health), "model": DeviceAttribute(string="X")}
    return {"name": name, "attributes": attributes, "taints": taints}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> DeviceTaint:
    """Return a taint that stands since AT."""
    return DeviceTaint(key=key, value=value or None, effect=effect, time_added=AT)


def published(*devices: dict[str, Any], pool: str = POOL, generation: int = 1, slices: int = 1) -> Slice:
    """Return a slice as it is read."""
    part = ResourcePool(name=pool, generation=generation, resource_slice_count=slices)
    spec = {"driver": GPU, "pool": part, "nodeName": "node-a", "devices": devices}
    return decode(encode({"metadata": {"name": "s"}, "spec": spec}), Slice)


def claimed(name: str, *devices: str, pods: tuple[str, ...] = (), **more: Any) -> ResourceClaim:  # noqa: ANN401 - a result
    """Return a claim that these devices are allocated to, and the Pods that it is reserved for."""
    results = [{"request": "r", "driver": GPU, "pool": POOL, "device": each, **more} for each in devices]
    reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return decode(encode({"metadata": {"namespace": "ns", "name": name, "uid": name}, "status": status}), ResourceClaim)


def rule(name: str, **selector: str) -> DeviceTaintRule:
    """Return a rule that evicts."""
    found = DeviceTaintSelector(**selector)
    spec = DeviceTaintRuleSpec(device_selector=found, taint=taint("example.com/drain", "now", "NoExecute"))
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


def planned(name: str = "gpu-3", state: Any = "budget", **more: Any) -> DeviceStatus:  # noqa: ANN401 - members of DeviceStatus
    """Return what the controller says of a device."""
    return DeviceStatus(driver=GPU, pool=POOL, device=name, node="node-a", problem="xid", state=state, **more)


def rows(*slices: Slice, scope: Scope = EVERYTHING, **more: Any) -> dict[str, DeviceRow]:  # noqa: ANN401 - members of Snapshot
    """Return the rows of a snapshot by the device's name."""
    return {row.device: row for row in view(Snapshot(slices=slices, **more), scope)}


def lines(*of: DeviceRow, width: int = 120) -> list[str]:
    """Return the lines below the heading."""
    return list(table(of, NOW, width))[1:]


# ------------------------------------------------------------------------------------------------------------ the view


def test_the_drivers_own_taints_are_problems() -> None:
    """A taint in the driver's domain is a problem with kind, code, effect and time; any other is a taint."""
    own, foreign = taint(f"{GPU}/xid", "79"), taint("example.com/xid", "79", "None")
    row = rows(published(device("gpu-3", own, foreign, health="Unhealthy")))["gpu-3"]
    assert row.problems == (ProblemRow(kind="xid", code="79", since=AT, effect="NoSchedule"),)
    assert row.taints == (TaintRow(key="example.com/xid", value="79", since=AT, effect="None"),)
    assert (row.node, row.health, row.published) == ("node-a", "Unhealthy", True)


def test_an_unknown_kind_in_the_drivers_domain_is_a_taint() -> None:
    """A later driver's problem is not hidden from those who have an older command."""
    row = rows(published(device("gpu-3", taint(f"{GPU}/new-kind"))))["gpu-3"]
    assert (row.problems, row.taints[0].key) == ((), f"{GPU}/new-kind")


def test_only_the_newest_generation_counts() -> None:
    """Slices of an older generation are not valid any more, as for the scheduler."""
    found = rows(published(device("gpu-0"), generation=1), published(device("gpu-1"), generation=2))
    assert list(found) == ["gpu-1"]


def test_devices_are_in_their_natural_order() -> None:
    """gpu-2 comes before gpu-10."""
    assert list(rows(published(*(device(f"gpu-{index}") for index in (10, 2, 0))))) == ["gpu-0", "gpu-2", "gpu-10"]


@pytest.mark.parametrize(
    ("selector", "hit"),
    [
        ({}, ["gpu-0", "gpu-1"]),
        ({"driver": GPU}, ["gpu-0", "gpu-1"]),
        ({"driver": NIC}, []),
        ({"driver": GPU, "pool": POOL, "device": "gpu-1"}, ["gpu-1"]),
        ({"pool": "node-b-gpu", "device": "gpu-1"}, []),
    ],
)
def test_a_rule_hits_what_its_selector_says(selector: dict[str, str], hit: list[str]) -> None:
    """All given members must match; an empty selector is every device."""
    found = rows(published(device("gpu-0"), device("gpu-1")), rules=(rule("drain", **selector),))
    assert [name for name, row in found.items() if row.rules] == hit


def test_a_rule_without_a_selector_hits_nothing() -> None:
    """Its key alone does not make it a rule about a device."""
    none = DeviceTaintRule(metadata=ObjectMeta(name="none"), spec=DeviceTaintRuleSpec(taint=taint("example.com/x")))
    assert rows(published(device("gpu-0")), rules=(none,))["gpu-0"].rules == ()


def test_who_uses_a_device() -> None:
    """Claims with their Pods; a claim with several requests of a device is one user; admin access is said."""
    both = (claimed("train", "gpu-0", "gpu-0", pods=("p-1", "p-2")), claimed("watch", "gpu-0", adminAccess=True))
    assert rows(published(device("gpu-0")), claims=both)["gpu-0"].used_by == (
        UseRow(namespace="ns", claim="train", pods=("p-1", "p-2")),
        UseRow(namespace="ns", claim="watch", admin_access=True),
    )


def grouped() -> ResourceClaim:
    """Return a claim that is reserved for a PodGroup."""
    plain = claimed("train", "gpu-0")
    reserved = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}]
    raw: dict[str, Any] = {
        "metadata": plain.metadata,
        "status": {"allocation": plain.status and plain.status.allocation},
    }
    raw["status"]["reservedFor"] = reserved
    return decode(encode(raw), RESOURCE_CLAIM.type)


@pytest.mark.parametrize(("members", "pods"), [({("ns", "gang"): ("a", "b")}, ("a", "b")), ({}, ("podgroup/gang",))])
def test_a_pod_group_stands_for_its_pods(
    members: dict[tuple[str, str], tuple[str, ...]], pods: tuple[str, ...]
) -> None:
    """Its Pods are shown where they are known, else the group itself."""
    assert rows(published(device("gpu-0")), claims=(grouped(),), members=members)["gpu-0"].used_by[0].pods == pods
    assert groups_of((grouped(),), (GPU,)) == {("ns", "gang")}
    assert groups_of((grouped(),), (NIC,)) == frozenset()


def test_a_held_device_that_nobody_publishes_is_shown() -> None:
    """A claim may hold what vanished from the slices: it is a row, with the Node of its pool."""
    row = rows(published(device("gpu-0")), claims=(claimed("train", "gpu-7"),))["gpu-7"]
    assert (row.published, row.node, row.health) == (False, "node-a", "")


def fault(*devices: str, phase: str = "Active", node: str = "node-a") -> DeviceFault:
    """Return a fault that befalls these devices since AT."""
    status = DeviceFaultStatus(phase=phase, first_seen=AT, devices=devices)
    return DeviceFault(
        metadata=ObjectMeta(name="f"), spec=DeviceFaultSpec(node=node, all="gpu", kind="xid", code="79"), status=status
    )


def test_a_sick_device_that_is_left_out_is_shown() -> None:
    """Where the server drops taints no slice has it: its DeviceFault says what is wrong; a published one says it."""
    known = rows(published(device("gpu-0")), faults=(fault("gpu-0", "gpu-3"), fault("nic-1", node="node-b")))
    problem = ProblemRow(kind="xid", code="79", since=AT)
    assert [(row.node, row.driver, row.published, row.problems) for row in known.values()] == [
        ("node-a", GPU, True, ()),
        ("node-a", GPU, False, (problem,)),
        ("node-b", NIC, False, (problem,)),
    ]
    first, second = lines(known["gpu-3"])
    assert (first.split(), second.split()) == (
        ["node-a", "gpu-3", "-", "not", "published", "-", "-", "-", "-", "-"],
        ["xid", "79", "3m12s", "-"],
    )


@pytest.mark.parametrize("phase", ["Pending", "Cleared", "Refused"])
def test_a_fault_that_does_not_stand_is_not_shown(phase: str) -> None:
    """What is over, or not yet, or never, is nothing that a device has."""
    assert rows(faults=(fault("gpu-3", phase=phase),)) == {}


def test_one_node_shows_its_own_pools_only() -> None:
    """What claims hold elsewhere is not of this Node."""
    scope = Scope(drivers=(GPU, NIC), pools=frozenset({"node-b-gpu"}))
    assert rows(claims=(claimed("train", "gpu-7"),), scope=scope) == {}


def test_other_drivers_are_not_shown() -> None:
    """Devices of drivers that are not asked for are none of our business."""
    assert rows(published(device("gpu-0")), scope=Scope(drivers=("gpu.other", "nic.other"))) == {}


@pytest.mark.parametrize(
    ("sick", "more", "shown"),
    [
        (device("gpu-0"), {}, False),
        (device("gpu-0", health="Unknown"), {}, True),
        (device("gpu-0", taint(f"{GPU}/thermal", effect="None")), {}, True),
        (device("gpu-0", taint("example.com/x")), {}, True),
        (device("gpu-0"), {"rules": (rule("drain", device="gpu-0"),)}, True),
        (device("gpu-0"), {"claims": (claimed("train", "gpu-0"),)}, True),
        (device("gpu-0"), {"controller": ControllerStatus(devices=(planned("gpu-0"),))}, True),
    ],
)
def test_what_concerns_people(sick: dict[str, Any], more: dict[str, Any], shown: bool) -> None:
    """Devices with any problem, taint or rule, and those in use, are shown without being asked for."""
    assert concerns(rows(published(sick), **more)["gpu-0"]) is shown


# ----------------------------------------------------------------------------------------------------------- the table


def full() -> DeviceRow:
    """Return a device about which there is much to say."""
    sick = device("gpu-3", taint(f"{GPU}/xid", "79"), taint(f"{GPU}/thermal", effect="None"), health="Unhealthy")
    own = "drasim-node-a-gpu-3"
    status = ControllerStatus(devices=(planned(state="recovering", until="2026-01-01T00:03:42Z", rule=own),))
    drain = rule(own, driver=GPU, pool=POOL, device="gpu-3")
    train = claimed("train-0", "gpu-3", pods=("train-0", "train-1"))
    return rows(published(sick), rules=(drain,), claims=(train,), controller=status)["gpu-3"]


def test_a_line_for_each_problem() -> None:
    """Problems stand below each other with age and effect; rule, claim and Pods beside them."""
    first, second, *rest = lines(full(), width=160)
    head = "node-a gpu-3 Unhealthy xid 79 3m12s NoSchedule recovering, 30s left ns/train-0 train-0 train-1"
    assert " ".join(first.split()) == head
    assert " ".join(second.split()) == "thermal 3m12s None"
    assert rest == []


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (120, ["NoExecute 3m12s", "evicting 3m12s"]),
        (None, ["NoExecute 3m12s drain", "evicting 3m12s drasim-node-a-gpu-3"]),
    ],
)
def test_what_becomes_of_each_rule(width: int | None, said: list[str]) -> None:
    """The controller's rule says what it does and since when, another one its effect; names come with the wide form."""
    status = ControllerStatus(devices=(planned(state="evicting", rule="drasim-node-a-gpu-3"),))
    rules = (rule("drain", device="gpu-3"), rule("drasim-node-a-gpu-3", device="gpu-3"))
    head, *found = table(rows(published(device("gpu-3")), rules=rules, controller=status).values(), NOW, width)
    assert [line[head.index("RULE") : head.index("CLAIM")].strip() for line in found] == said


def test_a_rule_that_cannot_be_read_has_no_age() -> None:
    """Without the right to read rules, the controller's status still says what becomes of the device."""
    status = ControllerStatus(devices=(planned(state="evicting", rule="drasim-node-a-gpu-3"),))
    row = rows(published(device("gpu-3")), controller=status)["gpu-3"]
    assert lines(row)[0].split()[6:] == ["evicting", "-", "-"]
    assert row.controller is not None
    assert row.controller.rule == "drasim-node-a-gpu-3"


def test_the_wide_form_folds_nothing() -> None:
    """A name is one word there, however long it is."""
    long = claimed("a" * 200, "gpu-3")
    (_, line) = table(rows(published(device("gpu-3")), claims=(long,)).values(), NOW, None)
    assert f"ns/{'a' * 200}" in line.split()


def test_it_fits_into_120_columns() -> None:
    """Long names are folded onto more lines; nothing of them is lost."""
    long = claimed("a-job-with-quite-a-long-name-0", "gpu-3", pods=("a-job-with-quite-a-long-name-0-x7zq4",))
    sick = device("gpu-3", taint(f"{GPU}/ecc-uncorrectable"), health="Unhealthy")
    drain = rule("drasim-gpu.dra.example.com-node-a-gpu-gpu-3-5f8c9d", device="gpu-3")
    found = list(table(rows(published(sick), claims=(long,), rules=(drain,)).values(), NOW, 120))
    assert max(map(len, found)) <= 120
    start = found[0].index("PODS")
    assert "".join(line[start:].strip() for line in found[1:]) == "a-job-with-quite-a-long-name-0-x7zq4"


def test_a_well_device_is_one_line() -> None:
    """Where there is nothing to say there is a dash."""
    assert [line.split() for line in lines(*rows(published(device("gpu-0"))).values())] == [
        ["node-a", "gpu-0", "Healthy", *["-"] * 6]
    ]


def test_the_heading_names_all_columns() -> None:
    """Also where no device is shown."""
    assert next(table((), NOW, 120)).split() == list(HEADING)


def test_health_has_a_color_on_a_terminal() -> None:
    """The colour does not shift the columns behind it."""
    (_, plain), (_, colored) = (list(table((full(),), NOW, 200, color=color))[:2] for color in (False, True))
    assert "\x1b[31mUnhealthy" in colored
    assert colored.replace("\x1b[31m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (192, "3m12s"), (7260, "2h1m"), (93_600, "1d2h")],
)
def test_ages(seconds: int, text: str) -> None:
    """The two largest units; a clock that is behind makes nothing negative."""
    assert age(AT, NOW - 192 + seconds) == text


# ----------------------------------------------------------------------------------------------------------- the notes


def said(*slices: Slice, **more: Any) -> list[str]:  # noqa: ANN401 - members of Snapshot
    """Return the notes of a snapshot."""
    snapshot = Snapshot(slices=slices, **more)
    return list(notes(snapshot, view(snapshot, EVERYTHING), EVERYTHING, NOW))


def test_what_could_not_be_read_is_said() -> None:
    """Nobody takes a missing right for a quiet cluster."""
    assert said(unread=("ResourceClaims: 403",)) == ["not read: ResourceClaims: 403"]


def test_a_pool_without_all_its_slices_is_said() -> None:
    """Its devices are not allocated, whatever they are like."""
    assert said(published(device("gpu-0"), slices=2)) == [f"pool {POOL} of {GPU}: 1 of 2 slices are published"]


def test_a_sick_device_without_a_taint_is_said() -> None:
    """Where the server drops taints nothing keeps claims away from a device in use."""
    (line,) = said(published(device("gpu-3", health="Unhealthy")))
    assert line.startswith("node-a gpu-3: Unhealthy without a taint; the server drops taints")


def test_what_the_controller_says() -> None:
    """What keeps it from its work, its budgets that hold devices back, and the reason for each device."""
    budgets = (
        BudgetUse(scope="node", name="node-a", limit=1, used=1, held=2),
        BudgetUse(scope="cluster", limit=4, used=1),
    )
    devices = (planned(reason="the budget of node node-a is used up"),)
    status = ControllerStatus(problems=("no leader",), budgets=budgets, devices=devices, dry_run=True, omitted=3)
    assert said(published(device("gpu-3", taint(f"{GPU}/xid", "79"))), controller=status) == [
        "controller: no leader",
        "controller: the server serves no DeviceTaintRules, so no Pod is evicted; sick devices are isolated",
        "controller: dry run, no rule is made",
        "budget of node node-a: 1 of 1 devices under eviction, 2 held back",
        "controller: 3 more devices that its status does not list",
        "node-a gpu-3: the budget of node node-a is used up",
    ]


def test_a_controller_that_is_not_found_is_said() -> None:
    """A sick device whose Pods nobody evicts: by whose fault, and how to look for one of another name."""
    sick = published(device("gpu-3", taint(f"{GPU}/xid", "79")))
    (line,) = said(sick)
    assert line.startswith("controller: none is found, so no Pod is evicted; if its name is another: --set controller.")
    assert said(published(device("gpu-3"))) == said(sick, controller=ControllerStatus(rules_api="v1")) == []
    assert len(said(sick, unread=("Lease of the controller: 403",))) == 1


def test_a_controller_that_never_led_is_said() -> None:
    """The chart makes the Lease; what does not start never renews it."""
    lease = Lease(metadata=ObjectMeta(name="c"), spec=LeaseSpec())
    assert said(lease=lease) == ["controller: none has led yet; no rule is made or lifted"]


@pytest.mark.parametrize(("duration", "away"), [(15, True), (185, False)])
def test_a_controller_that_is_away_is_said(duration: int, away: bool) -> None:
    """What its status says may be old then; a Lease that was just missed is no reason yet, clocks differ."""
    lease = Lease(metadata=ObjectMeta(name="c"), spec=LeaseSpec(renew_time=AT, lease_duration_seconds=duration))
    text = f"controller: none leads since {AT}; no rule is made or lifted"
    assert said(published(device("gpu-0")), lease=lease) == [text] * away


@pytest.mark.parametrize(
    ("shown", "known", "text"),
    [
        (0, 0, "No device is published, and no claim holds one."),
        (1, 1, "1 device."),
        (2, 16, "2 of 16 devices shown: those with problems or in use (all of them: --all)."),
    ],
)
def test_the_summary_counts(shown: int, known: int, text: str) -> None:
    """An empty table is explained."""
    assert summary(shown, known) == text


def test_what_is_not_known_is_not_denied() -> None:
    """Without the right to read slices nobody can say that there are no devices."""
    assert summary(0, 0, unread=True) == "No device is known; not everything could be read."
    assert summary(1, 1, unread=True) == "1 device."
