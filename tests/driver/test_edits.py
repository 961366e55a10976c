"""edits: what containers see of devices."""

import msgspec

from drasim.edits import cdi_id, claim_devices, edits_for, static_devices
from tests.driver.builders import inventory, small_machine

GPU, NIC = small_machine().gpus[1], small_machine().nics[1]


def test_variables_carry_the_name_of_the_device() -> None:
    """The identity, the model and the place of a GPU are variables that no other device has."""
    edits = edits_for(inventory().devices["gpu-1"], {})
    assert edits.env == (
        f"DRASIM_GPU_1={GPU.id}",
        f"DRASIM_GPU_1_MODEL={GPU.model}",
        f"DRASIM_GPU_1_PCI_BUS_ID={GPU.pci.bus_id}",
        f"DRASIM_GPU_1_NUMA_NODE={GPU.pci.numa_node}",
    )


def test_a_nic_is_known_by_its_address() -> None:
    """The identity of a NIC is its MAC address."""
    assert f"DRASIM_NIC_1={NIC.mac}" in edits_for(inventory("nic").devices["nic-1"], {}).env


def test_a_machine_without_numa_says_nothing_of_it() -> None:
    """An unknown NUMA node is left out, not written as None."""
    published = inventory().devices["gpu-1"]
    hardware = msgspec.structs.replace(GPU, pci=msgspec.structs.replace(GPU.pci, numa_node=None))
    edits = edits_for(msgspec.structs.replace(published, hardware=hardware), {})
    assert not [variable for variable in edits.env if "NUMA" in variable]


def test_settings_are_variables() -> None:
    """A container can read what was set for it, under the parameter's name in upper case."""
    edits = edits_for(inventory().devices["gpu-1"], {"powerLimitWatts": 300, "computeMode": "Default", "x": True})
    assert edits.env[-3:] == (
        "DRASIM_GPU_1_POWER_LIMIT_WATTS=300",
        "DRASIM_GPU_1_COMPUTE_MODE=Default",
        "DRASIM_GPU_1_X=true",
    )


def test_the_device_node_is_a_bind_mount() -> None:
    """Each device is a path of its own below /dev/drasim, without a device node to make."""
    edits = edits_for(inventory().devices["gpu-1"], {})
    (mount,) = edits.mounts
    assert (mount.host_path, mount.container_path, mount.options) == ("/dev/null", "/dev/drasim/gpu-1", ("bind",))
    assert edits.device_nodes == ()


def test_each_device_is_in_the_static_spec() -> None:
    """The static spec has one entry for each published device, under its name."""
    assert [entry.name for entry in static_devices(inventory().devices.values())] == [
        "gpu-0",
        "gpu-1",
        "gpu-2",
        "gpu-3",
    ]


def test_what_is_made_for_a_claim_has_a_name_of_its_own() -> None:
    """A claim's entry is named after the claim, and the CDI id leads to it."""
    (entry,) = claim_devices("uid-1", [(inventory().devices["gpu-1"], {"powerLimitWatts": 300})])
    assert entry.name == "uid-1-gpu-1"
    assert cdi_id("gpu.example.com", "gpu-1", "uid-1") == "k8s.gpu.example.com/claim=uid-1-gpu-1"
    assert cdi_id("gpu.example.com", "gpu-1") == "k8s.gpu.example.com/device=gpu-1"
