"""Pools: devices in, a pool out."""

from pathlib import Path

from dra_plugin.slices import Owner, plan
from drasim.devices import gpu_devices
from drasim.pools import build_pool
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
