"""What problems mean: taints, health, words."""

import pytest

from dra_plugin.health import Health
from dra_plugin.naming import checked
from dra_plugin.resources import Device, DeviceTaint, Pool
from drasim.config import ProblemsConfig
from drasim.config.problems import PROBLEM_KINDS
from drasim.problems import Problem
from drasim.taints import health_of, isolates, message_of, taints_for
from tests.driver.looks import POLICY

DRIVER = "gpu.dra.example.com"
OVER = Problem(kind="lost", since=1, gone=2.0, cleared=7.0)


def test_a_taint_says_what_and_since_when() -> None:
    """Key in the driver's domain, the code as value, the time of the problem in whole seconds."""
    (taint,) = taints_for([Problem(kind="xid", code="79", since=1_800_000_000.9)], DRIVER, POLICY)
    assert taint == DeviceTaint(key=f"{DRIVER}/xid", value="79", effect="NoSchedule", time_added="2027-01-15T08:00:00Z")


def test_a_problem_without_a_code_has_no_value() -> None:
    """The API takes an empty value for none, and so do we."""
    (taint,) = taints_for([Problem(kind="lost", since=0)], DRIVER, POLICY)
    assert taint.value is None


def test_each_kind_has_one_taint() -> None:
    """That of the worst code, then of the oldest; effects may differ within a kind."""
    problems = [
        Problem(kind="xid", code="13", since=1),
        Problem(kind="xid", code="79", since=3),
        Problem(kind="xid", code="48", since=2),
        Problem(kind="thermal", since=5),
    ]
    taints = taints_for(problems, DRIVER, POLICY)
    assert [(taint.key, taint.value, taint.effect) for taint in taints] == [
        (f"{DRIVER}/xid", "48", "NoSchedule"),
        (f"{DRIVER}/thermal", None, "None"),
    ]
    assert taints_for(reversed(problems), DRIVER, POLICY) == taints


def test_what_is_over_has_no_taint() -> None:
    """Neither taint nor message nor influence on health."""
    assert taints_for([OVER], DRIVER, POLICY) == ()
    assert (health_of([OVER], POLICY), message_of([OVER], POLICY), isolates([OVER], POLICY)) == (
        Health.HEALTHY,
        "",
        False,
    )


@pytest.mark.parametrize(
    ("kinds", "health"),
    [
        ([], Health.HEALTHY),
        (["thermal"], Health.HEALTHY),
        (["xid"], Health.UNHEALTHY),
        (["thermal", "lost"], Health.UNHEALTHY),
        (["probe-hangs"], Health.UNKNOWN),
        (["probe-hangs", "thermal"], Health.UNKNOWN),
        (["probe-hangs", "lost"], Health.UNHEALTHY),
    ],
)
def test_health(kinds: list[str], health: Health) -> None:
    """Warnings do not change it; a device that does not answer is unknown, unless it was known to be sick."""
    assert health_of([Problem(kind=kind, since=1) for kind in kinds], POLICY) is health


def test_a_probe_that_hangs_is_unknown_whatever_its_effect() -> None:
    """That claims are let on such a device does not make it known."""
    policy = ProblemsConfig(effects={"probe-hangs": "None"})
    assert health_of([Problem(kind="probe-hangs", since=1)], policy) is Health.UNKNOWN


def test_the_message_names_all_problems_worst_first() -> None:
    """Users see everything that stands, warnings too."""
    problems = [
        Problem(kind="thermal", message="too hot", since=1),
        Problem(kind="xid", code="79", message="GPU has fallen off the bus", since=2),
    ]
    assert message_of(problems, POLICY) == "xid 79: GPU has fallen off the bus; thermal: too hot"


def test_the_api_takes_all_taints_at_once() -> None:
    """A device with every kind of problem needs no correction: number, keys, values, effects and times fit."""
    problems = [Problem(kind=kind, code="pci0000-15", since=1) for kind in PROBLEM_KINDS]
    device = Device(name="gpu-0", taints=taints_for(problems, DRIVER, POLICY))
    result = checked(Pool(name="node-a-gpu", devices=(device,)), DRIVER)
    assert (result.problems, result.pool.devices) == ((), (device,))
