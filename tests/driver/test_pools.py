"""Pools: devices in, a pool out."""

from pathlib import Path

import pytest

from dra_plugin.slices import Owner, plan
from drasim.devices import Published, gpu_devices, nic_devices
from drasim.pools import build_pool, left_out, marked
from drasim.problems import Problem
from tests.driver.looks import POLICY
from tests.driver.machines import NODE, machine, machine_from


def test_a_pool_has_the_nodes_devices_in_their_order() -> None:
    """Name and devices of the pool follow from node and devices."""
    published = gpu_devices(machine().gpus)
    pool = build_pool(NODE, "gpu", published)
    assert pool.name == "node-a-gpu"
    assert pool.devices == tuple(entry.device for entry in published)
    assert pool.counters == ()


def test_no_devices_are_an_empty_pool() -> None:
    """A node without devices of a kind has an empty pool, which tells consumers that the driver is up."""
    pool = build_pool(NODE, "nic", ())
    assert (pool.name, pool.devices) == ("node-a-nic", ())


def test_three_hundred_gpus_fit_in_valid_slices(tmp_path: Path) -> None:
    """A large pool is split so that no slice has more than 64 devices, and nothing is lost."""
    described = machine_from(tmp_path, "roots: [{numaNode: 0, gpus: 4, count: 75}]")
    pool = build_pool(NODE, "gpu", gpu_devices(described.gpus))
    slices = plan(pool, (), Owner(driver="gpu.dra.example.com", node_name=NODE, reference=None)).create
    parts = [part.spec.devices or () for part in slices]
    assert all(len(part) <= 64 for part in parts)
    assert tuple(device for part in parts for device in part) == pool.devices


GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
LOST = Problem(kind="lost", since=1)
OVER = Problem(kind="lost", since=1, gone=2.0, cleared=7.0)


def attribute(published: Published, name: str) -> str | None:
    """Return an attribute that is text."""
    return (published.device.attributes or {})[name].string


def test_a_sick_device_says_so() -> None:
    """It has health and taints; all else is as it was, and it is the same device to Prepare."""
    well = gpu_devices(machine().gpus)[0]
    sick = marked(well, [Problem(kind="xid", code="79", since=1)], GPU, POLICY)
    assert attribute(sick, "health") == "Unhealthy"
    assert [(taint.key, taint.value, taint.effect) for taint in sick.device.taints or ()] == [
        (f"{GPU}/xid", "79", "NoSchedule")
    ]
    assert (sick.name, sick.hardware, sick.device.capacity) == (well.name, well.hardware, well.device.capacity)


def test_a_device_without_problems_is_as_it_was() -> None:
    """Nothing has to be compared or written again."""
    well = gpu_devices(machine().gpus)[0]
    assert marked(well, (), GPU, POLICY) is well
    assert marked(well, [OVER], GPU, POLICY) is well


@pytest.mark.parametrize(
    ("kind", "state"), [("link-down", "down"), ("link-flap", "down"), ("crc-errors", "up"), ("lost", "up")]
)
def test_the_link_of_a_nic(kind: str, state: str) -> None:
    """A link that is down or comes and goes is down; what else is wrong says nothing of the link."""
    sick = marked(nic_devices(machine().nics)[0], [Problem(kind=kind, since=1)], NIC, POLICY)
    assert attribute(sick, "linkState") == state


def test_what_is_left_out_where_taints_are_dropped() -> None:
    """What claims are to be kept away from, unless one holds it; a warning is no reason, nor what is over."""
    gpus = gpu_devices(machine().gpus)
    problems = {
        gpus[0].id: (LOST,),
        gpus[1].id: (LOST,),
        gpus[2].id: (Problem(kind="thermal", since=1),),
        gpus[3].id: (OVER,),
    }
    assert left_out(gpus, problems, {gpus[1].id}, POLICY) == {"gpu-0"}
