"""What is published of a device."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.naming import check_driver_name, checked
from dra_plugin.naming import pool_name as api_pool_name
from dra_plugin.quantity import Quantity
from dra_plugin.resources import DeviceAttribute
from drasim import profiles
from drasim.devices import STANDARD, Published, gpu_devices, nic_devices, pool_name, published_devices
from drasim.pools import build_pool
from tests.driver.looks import after, look
from tests.driver.machines import NODE, machine


def attributes(published: Published) -> dict[str, object]:
    """Return the attributes as plain values."""
    plain: dict[str, dict[str, object]] = msgspec.to_builtins(published.device.attributes)
    return {name: next(iter(value.values())) for name, value in plain.items()}


def test_a_gpu_says_what_it_is_and_where() -> None:
    """A GPU has model, memory, driver version, UUID, index, health, and the three standard attributes."""
    gpu = machine().gpus[0]
    [published, *_] = gpu_devices(machine().gpus)
    assert attributes(published) == {
        "model": "SIM-L40-48G",
        "driverVersion": "570.86.15",
        "uuid": gpu.id,
        "index": 0,
        "health": "Healthy",
        f"{STANDARD}/pcieRoot": "pci0000:15",
        f"{STANDARD}/pciBusID": "0000:16:00.0",
        f"{STANDARD}/numaNode": 0,
    }
    assert {name: entry.value for name, entry in (published.device.capacity or {}).items()} == {
        "memory": Quantity("48Gi")
    }
    assert (published.name, published.id, published.hardware) == ("gpu-0", gpu.id, gpu)


def test_a_nic_says_what_it_is_and_where() -> None:
    """A NIC has model, driver version, MAC, link state and speed, RDMA, health, and the standard attributes."""
    nic = machine().nics[3]
    published = nic_devices(machine().nics)[3]
    assert attributes(published) == {
        "model": "SIM-CX6-100G",
        "driverVersion": "24.10.1",
        "mac": nic.mac,
        "index": 3,
        "linkState": "up",
        "linkSpeedGbps": 100,
        "rdma": True,
        "health": "Healthy",
        f"{STANDARD}/pcieRoot": "pci0000:b7",
        f"{STANDARD}/pciBusID": nic.id,
        f"{STANDARD}/numaNode": 1,
    }
    assert published.name == "nic-3"


def test_a_link_that_is_down_says_so() -> None:
    """A NIC without a link is published with `linkState` down."""
    nic = msgspec.structs.replace(machine().nics[0], link_up=False)
    assert attributes(nic_devices([nic])[0])["linkState"] == "down"


def test_an_unknown_numa_node_is_left_out() -> None:
    """A device whose NUMA node nobody knows has no such attribute."""
    gpu = machine().gpus[0]
    gpu = msgspec.structs.replace(gpu, pci=msgspec.structs.replace(gpu.pci, numa_node=None))
    assert f"{STANDARD}/numaNode" not in attributes(gpu_devices([gpu])[0])


def test_devices_come_by_index_whatever_the_order_seen() -> None:
    """The order of preference is that of the indices."""
    assert gpu_devices(reversed(machine("dgx").gpus)) == gpu_devices(machine("dgx").gpus)


def test_a_state_is_published_as_a_whole() -> None:
    """All devices of an inventory are published, by name."""
    assert published_devices(after(look(1.0, devices=machine().nics))) == nic_devices(machine().nics)


def test_a_device_that_is_gone_is_published_while_it_is_held() -> None:
    """As it was last known, in its place in the order; one that nobody holds is not."""
    gpus = machine().gpus
    state = after(look(1.0), look(2.0, devices=gpus[2:]))
    assert published_devices(state, {gpus[1].id}) == gpu_devices(gpus[1:])
    assert published_devices(state) == gpu_devices(gpus[2:])


def test_a_device_in_the_place_of_one_that_is_gone() -> None:
    """A name is published once: it is that of the device that is there."""
    gpus = machine().gpus
    other = msgspec.structs.replace(gpus[0], id="GPU-other")
    state = after(look(1.0), look(2.0, devices=(other, *gpus[1:])))
    assert published_devices(state, {gpus[0].id}) == gpu_devices((other, *gpus[1:]))


def test_two_that_are_gone_from_one_place() -> None:
    """They cannot share a name: it is that of the one that was there last."""
    gpus = machine().gpus
    other = msgspec.structs.replace(gpus[0], id="GPU-other")
    state = after(look(1.0), look(2.0, devices=(other, *gpus[1:])), look(3.0, devices=gpus[1:]))
    assert published_devices(state, {gpus[0].id, other.id}) == gpu_devices((other, *gpus[1:]))


def test_a_device_keeps_its_name_when_another_goes() -> None:
    """The name follows from the device's own index, not from its place in the list."""
    assert [device.name for device in gpu_devices(machine().gpus[2:])] == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize("name", profiles.shipped())
def test_shipped_profiles_need_no_correction(name: str) -> None:
    """Nothing of a shipped profile breaks a limit of the API."""
    described = machine(name)
    for pool in (
        build_pool(NODE, "gpu", gpu_devices(described.gpus)),
        build_pool(NODE, "nic", nic_devices(described.nics)),
    ):
        result = checked(pool, "gpu.dra.example.com")
        assert not result.problems
        assert result.pool == pool


def test_attributes_have_one_type_on_all_devices() -> None:
    """The type of an attribute is part of its contract."""
    types: dict[str, set[str]] = {}
    for published in gpu_devices(machine("dgx").gpus) + nic_devices(machine("dgx").nics):
        for name, value in (published.device.attributes or {}).items():
            assert isinstance(value, DeviceAttribute)
            types.setdefault(name, set()).update(msgspec.to_builtins(value))
    assert all(len(members) == 1 for members in types.values())


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


@given(st.lists(LABEL, min_size=1, max_size=8).map(".".join).filter(lambda name: len(name) <= 253))
def test_every_node_has_pools_with_valid_names(node: str) -> None:
    """A node's pool names are valid however long its name is, and differ per driver."""
    names = {pool_name(node, "gpu"), pool_name(node, "nic")}
    assert len(names) == 2
    assert all(api_pool_name(name) == name for name in names)


def test_long_node_names_keep_their_pools_apart() -> None:
    """Two long names that differ at the end only have different pools."""
    long = ".".join(["a" * 60] * 4)
    assert pool_name(f"{long}.aaaaaaa", "gpu") != pool_name(f"{long}.aaaaaab", "gpu")
    assert pool_name("node-a", "gpu") == "node-a-gpu"
    check_driver_name("gpu.dra.example.com")
