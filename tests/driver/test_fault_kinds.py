"""The kinds of faults, and what they mean on a machine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drasim.config.problems import PROBLEM_KINDS
from drasim.devices import gpu_devices, nic_devices
from drasim.hardware import Fault, Gpu, Nic, device_name
from drasim.hardware.simulated.faults import (
    FAULT_KINDS,
    FaultRefused,
    checked_code,
    resolve,
    struck,
)
from tests.driver.machines import machine, machine_from

DGX = machine("dgx")
GPU, NIC = DGX.gpus[3], DGX.nics[1]


def refusal(kind: str, code: str = "", **place: str) -> FaultRefused:
    with pytest.raises(FaultRefused) as caught:
        resolve(DGX, kind, code, **place)
    return caught.value


def test_every_problem_can_be_caused() -> None:
    """The faults are the problems of devices, and three that only change how a device behaves."""
    assert set(FAULT_KINDS) - set(PROBLEM_KINDS) == {"prepare-fails", "prepare-slow", "unprepare-slow"}
    assert {name: FAULT_KINDS[name].devices for name in PROBLEM_KINDS} == dict(PROBLEM_KINDS)
    assert [name for name, kind in FAULT_KINDS.items() if kind.root] == ["down"]


def test_names_are_the_published_ones() -> None:
    """A device is called as its slice calls it."""
    published = (*gpu_devices(DGX.gpus), *nic_devices(DGX.nics))
    assert [device_name(each.hardware) for each in published] == [each.name for each in published]


@pytest.mark.parametrize("name", ["gpu-3", GPU.id, GPU.pci.bus_id])
def test_a_device_has_three_names(name: str) -> None:
    """Published name, hardware identity and PCI address mean the same device."""
    assert resolve(DGX, "xid", "79", device=name) == (Fault(device=GPU.id, kind="xid", code="79"),)


def test_a_nic_is_found_by_name_and_address() -> None:
    """The identity of a NIC is its PCI address."""
    found = [resolve(DGX, "link-down", device=name) for name in ("nic-1", NIC.id)]
    assert found == [(Fault(device=NIC.id, kind="link-down"),)] * 2


def test_all_devices_of_a_kind() -> None:
    """One fault for each GPU, in their order."""
    assert [fault.device for fault in resolve(DGX, "lost", every="gpu")] == [gpu.id for gpu in DGX.gpus]


def test_a_root_takes_everything_below_it_down() -> None:
    """The machine is told of the root; the devices that it befalls are the GPU and the NIC on it."""
    faults = resolve(DGX, "down", device=GPU.pci.root)
    everything: tuple[Gpu | Nic, ...] = (*DGX.gpus, *DGX.nics)
    below = [each for each in everything if each.pci.root == GPU.pci.root]
    assert faults == (Fault(device=GPU.pci.root, kind="down"),)
    assert list(struck(DGX, faults)) == below
    assert {type(each) for each in below} == {type(GPU), type(NIC)}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("prepare-slow", "", "5"),
        ("prepare-slow", "500ms", "0.5"),
        ("unprepare-slow", "2m", "120"),
        ("link-flap", "", "2"),
    ],
)
def test_seconds_are_filled_in(kind: str, given: str, expected: str) -> None:
    """Durations become a number of seconds; without one there is a default."""
    assert checked_code(kind, given) == expected


@pytest.mark.parametrize(
    ("kind", "code", "place", "field", "words"),
    [
        ("xdi", "", {"device": "gpu-3"}, "kind", ['"xdi" is no kind of fault (did you mean "xid"?)', "prepare-slow"]),
        ("xid", "", {"device": "gpu-3"}, "code", ["missing", "1 to 999"]),
        ("xid", "0", {"device": "gpu-3"}, "code", ['"0" is not allowed', "1 to 999"]),
        ("xid", "1000", {"device": "gpu-3"}, "code", ['"1000" is not allowed']),
        ("xid", "79\n", {"device": "gpu-3"}, "code", ["is not allowed"]),
        ("lost", "79", {"device": "gpu-3"}, "code", ["lost has no code"]),
        ("prepare-slow", "48h", {"device": "gpu-3"}, "code", ["1ms to 24h"]),
        ("lost", "", {"device": "gpu-8"}, "device", ['"gpu-8" is no device of this machine', "gpu-0, gpu-1", "nic-7"]),
        ("lost", "", {"device": GPU.pci.root}, "device", ["is a PCIe root: lost is done to a device", "gpu-0"]),
        ("down", "", {"device": "gpu-3"}, "device", ["is no PCIe root of this machine", GPU.pci.root]),
        ("down", "", {"every": "gpu"}, "all", ["done to a PCIe root"]),
        ("lost", "", {"every": "tpu"}, "all", ['"tpu" is not allowed; allowed: gpu, nic']),
        ("xid", "79", {"device": "nic-1"}, "kind", ["cannot befall nic-1", "allowed for NICs", "link-flap"]),
        ("link-down", "", {"every": "gpu"}, "kind", ["cannot befall GPUs", "ecc-uncorrectable"]),
        ("lost", "", {}, "device", ["exactly one of device and all"]),
        ("lost", "", {"device": "gpu-1", "every": "gpu"}, "device", ["exactly one of device and all"]),
    ],
)
def test_what_cannot_be_done_is_refused(
    kind: str, code: str, place: dict[str, str], field: str, words: list[str]
) -> None:
    """The refusal names the field of the spec, what is wrong, and what is allowed."""
    found = refusal(kind, code, **place)
    assert (found.field, str(found).startswith(f"spec.{field}: ")) == (field, True)
    assert [word for word in words if word not in found.problem] == []


def test_a_machine_without_such_devices(tmp_path: Path) -> None:
    """All GPUs of a machine that has none is a refusal, not a success that does nothing."""
    with pytest.raises(FaultRefused, match="the machine has no GPUs"):
        resolve(machine_from(tmp_path, "roots: [{nics: 1}]"), "lost", every="gpu")


def test_of_many_devices_some_are_named(tmp_path: Path) -> None:
    """The list of what is allowed stays readable on the largest machine."""
    with pytest.raises(FaultRefused, match=r"gpu-15 and 284 more") as caught:
        resolve(machine_from(tmp_path, "roots: [{gpus: 4, count: 75}]"), "lost", device="gpu-300")
    assert len(str(caught.value)) < 400


@given(kind=st.sampled_from(sorted(FAULT_KINDS)), code=st.text(max_size=12), device=st.text(max_size=12))
def test_any_words_are_a_fault_or_a_refusal(kind: str, code: str, device: str) -> None:
    """Nothing that a user writes ends otherwise; what is accepted has a code that is accepted again, unchanged."""
    for name in (device, "gpu-0", "nic-0", GPU.pci.root):
        try:
            found = resolve(DGX, kind, code, device=name)
        except FaultRefused:
            continue
        assert [checked_code(kind, fault.code) for fault in found] == [fault.code for fault in found]
        assert struck(DGX, found)
