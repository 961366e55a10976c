"""Profiles: what a machine of a node is, and what cannot be one."""

import re
from pathlib import Path

import pytest

from drasim import profiles
from drasim.config import ConfigError
from drasim.hardware.simulated import load_profile, machine_of
from tests.driver.machines import machine, machine_from


@pytest.mark.parametrize(("name", "size"), [("small", 4), ("dgx", 8)])
def test_shipped_profiles_have_their_sizes(name: str, size: int) -> None:
    """`small` has 4 GPUs and 4 NICs, `dgx` 8 and 8, spread evenly over two NUMA nodes."""
    described = machine(name)
    assert [gpu.index for gpu in described.gpus] == [nic.index for nic in described.nics] == list(range(size))
    for numa in (0, 1):
        assert sum(gpu.pci.numa_node == numa for gpu in described.gpus) == size // 2
        assert sum(nic.pci.numa_node == numa for nic in described.nics) == size // 2


@pytest.mark.parametrize("name", profiles.shipped())
def test_each_gpu_shares_its_root_with_a_nic(name: str) -> None:
    """In every shipped profile a claim can line up a GPU and a NIC by PCIe root."""
    described = machine(name)
    assert {gpu.pci.root for gpu in described.gpus} == {nic.pci.root for nic in described.nics}


def test_a_node_has_the_same_devices_each_time() -> None:
    """UUIDs, MACs and addresses follow from the node's name alone."""
    assert machine("dgx", "node-a") == machine("dgx", "node-a")


def test_no_two_nodes_share_a_device() -> None:
    """Another node's name gives other UUIDs and MACs."""
    here, there = machine("dgx", "node-a"), machine("dgx", "node-b")
    assert not {gpu.id for gpu in here.gpus} & {gpu.id for gpu in there.gpus}
    assert not {nic.mac for nic in here.nics} & {nic.mac for nic in there.nics}


def test_identities_have_the_form_of_real_ones() -> None:
    """A UUID reads like NVML's; a MAC is unicast and locally administered; addresses are lower-case hex."""
    described = machine("dgx")
    for gpu in described.gpus:
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.id)
    for nic in described.nics:
        assert re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", nic.mac)
        assert int(nic.mac[:2], 16) & 3 == 2
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:00\.0", nic.id)


def test_three_hundred_gpus_are_one_line(tmp_path: Path) -> None:
    """`count` repeats a root; all identities stay unique."""
    described = machine_from(tmp_path, "roots: [{numaNode: 0, gpus: 4, nics: 1, count: 75}]")
    assert len({gpu.id for gpu in described.gpus}) == len({gpu.pci.bus_id for gpu in described.gpus}) == 300
    assert len({nic.pci.root for nic in described.nics}) == 75


def test_roots_without_a_name_avoid_the_domains_that_are_named(tmp_path: Path) -> None:
    """A counted root never gets the PCI domain of a named one."""
    text = 'roots: [{root: "pci0000:10", gpus: 1}, {gpus: 1, count: 2}, {root: "pci0001:10", gpus: 1}]'
    roots = [gpu.pci.root for gpu in machine_from(tmp_path, text).gpus]
    assert roots == ["pci0000:10", "pci0002:00", "pci0003:00", "pci0001:10"]


def test_a_root_can_have_devices_of_its_own_kind(tmp_path: Path) -> None:
    """A machine may mix models; what a root does not say is the default."""
    text = (
        "gpu: {model: A}\nroots: [{gpus: 1}, {gpus: 1, nics: 1, gpu: {model: B, memory: 40Gi}, nic: {linkUp: false}}]"
    )
    described = machine_from(tmp_path, text)
    assert [gpu.model for gpu in described.gpus] == ["A", "B"]
    assert not described.nics[0].link_up
    assert described.nics[0].pci.numa_node is None


def test_an_unknown_profile_names_the_shipped_ones() -> None:
    """A misspelt name is refused with the names that exist."""
    with pytest.raises(ConfigError, match=r'"dgxx" is no profile \(did you mean "dgx"\?\); allowed: dgx, small'):
        load_profile("dgxx")


def test_a_missing_profile_file_is_refused(tmp_path: Path) -> None:
    """A path that does not exist is refused by its name."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_profile(f"{tmp_path}/none.yaml")


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("roots: [{gpu: 4}]", "roots[0].gpu", "allowed: a mapping with the keys model, memory"),
        ("roots: [{numanode: 0}]", "roots[0].numanode", 'did you mean "numaNode"?'),
        ("roots: [{gpus: 1}, {gpus: -1}]", "roots[1].gpus", "-1 is not allowed; allowed: a whole number from 0 to 64"),
        ("gpu: {model: X}", "roots", "missing; needed: a list"),
        ("roots: 3", "roots", "3 is not allowed; allowed: a list"),
        ("gpu: {memory: much}\nroots: []", "gpu.memory", '"much" is not allowed; allowed: an amount of bytes'),
        ("gpu: {memory: 0}\nroots: []", "gpu.memory", "allowed: 1 to 9223372036854775807 bytes"),
        ("gpu: {memory: 1.5}\nroots: []", "gpu.memory", "allowed: 1 to 9223372036854775807 bytes"),
        ("gpu: {memory: 8Ei}\nroots: []", "gpu.memory", "allowed: 1 to 9223372036854775807 bytes"),
        ("roots: [{gpu: {memory: -1Gi}}]", "roots[0].gpu.memory", "allowed: 1 to"),
        ('gpu: {model: "a\\nb"}\nroots: []', "gpu.model", "allowed: text of 1 to 64 printable characters"),
        ('nic: {model: "a\\0"}\nroots: []', "nic.model", "allowed: text of 1 to 64 printable characters"),
        ("roots: [{gpus: 64, nics: 1, count: 64}]", "roots", "4160 devices in all; allowed: at most 4096"),
        ("roots: [{count: 1024}, {count: 1024}, {count: 1024}, {count: 1025}]", "roots[3].count", "from 1 to 1024"),
        ("roots: [{count: 1024}, {count: 1024}, {count: 1024}, {count: 1024}, {}]", "roots", "4097 roots in all"),
        ("nic: {driverVersion: 1.2}\nroots: []", "nic.driverVersion", "allowed: a version of three numbers"),
        ("nic: {speedGbps: 0}\nroots: []", "nic.speedGbps", "allowed: a whole number from 1"),
        ("roots: [{root: 3a}]", "roots[0].root", "allowed: a PCIe root such as pci0000:3a"),
        ("roots: [{numaNode: 1024}]", "roots[0].numaNode", "allowed: a whole number from 0 to 1023"),
        ('roots: [{root: "pci0000:10", count: 2}]', "roots[0].count", "cannot share a name"),
        ('roots: [{root: "pci0000:fe", gpus: 2}]', "roots[0].root", "1 PCI buses only"),
        ('roots: [{root: "pci0000:10"}, {root: "pci0000:10"}]', "roots[1].root", "the bus 10 of roots[0].root"),
        (
            'roots: [{root: "pci0000:10", gpus: 2}, {root: "pci0000:11"}]',
            "roots[1].root",
            "the bus 11 of roots[0].root",
        ),
        ('roots: [{root: "pci0000:11", gpus: 2}, {root: "pci0000:10", nics: 1}]', "roots[1].root", "the bus 11"),
    ],
)
def test_impossible_profiles_name_file_and_key(tmp_path: Path, text: str, key: str, says: str) -> None:
    """What cannot be a machine is refused with the file, the key and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        machine_from(tmp_path, text)
    assert caught.value.key == key
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/profile.yaml: ")


def test_a_step_may_take_its_time(tmp_path: Path) -> None:
    """`stepSeconds` is how long each setting takes."""
    assert machine_from(tmp_path, "stepSeconds: 500ms\nroots: []").step_seconds == 0.5
    assert machine_of(load_profile("small"), "n").step_seconds == 0
