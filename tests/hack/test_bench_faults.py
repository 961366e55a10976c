"""What the figures of faults are made of, as far as it needs no cluster."""

import asyncio
import json
import time
from functools import partial
from pathlib import Path

from drasim.hardware.simulated import SimulatedMachine, load_profile, machine_of, opened
from hack.bench import contestants, faults, faulty, objects, plan, programs
from hack.bench.api import Object
from hack.bench.figures import FIGURES, OURS
from hack.bench.plan import Plan

TAINT = {"key": "gpu.dra.example.com/lost", "effect": "NoSchedule"}


def slice_with(driver: str, **taints: list[Object]) -> Object:
    """Return a slice with devices that have these taints."""
    devices = [{"name": name, **({"taints": found} if found else {})} for name, found in taints.items()]
    pool = {"name": "node1-gpu", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "x", "uid": "u", "resourceVersion": "1"},
        "spec": {"driver": driver, "nodeName": "node1", "pool": pool, "devices": devices},
    }


def test_tainted_devices_are_those_of_one_driver() -> None:
    """Other drivers' devices and devices without a taint do not count."""
    items = {"a": slice_with("d", one=[TAINT], two=[]), "b": slice_with("other", three=[TAINT])}
    assert objects.tainted(items, "d") == {"one"}
    assert objects.has_taint("d", "one", items)
    assert not objects.has_taint("d", "three", items)


def test_many_slices_differ_in_node_and_pool_only() -> None:
    """What is only there to be many is labelled, and nobody's identity is copied."""
    model = slice_with("gpu.dra.example.com", one=[])
    made = objects.slice_of(model, "many-0001")
    assert made["metadata"] == {"generateName": "many-0001-", "labels": objects.many_labels()}
    assert made["spec"]["nodeName"] == "many-0001"
    assert made["spec"]["pool"] == {**model["spec"]["pool"], "name": "many-0001-gpu"}
    assert made["spec"]["devices"] == model["spec"]["devices"]
    assert "=".join(*objects.many_labels().items()) == objects.MANY


def test_a_pod_leaves_once_it_is_being_deleted() -> None:
    """One that is gone has left, too."""
    pod: Object = {"metadata": {"name": "p"}}
    assert not objects.leaves(pod)
    assert objects.leaves({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert objects.leaves(None)


def test_a_deployment_has_a_claim_for_each_pod() -> None:
    """The container uses the claim that is made from the template."""
    spec = objects.deployment("d", "t")["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "it", "resourceClaimTemplateName": "t"}]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "it"}]}


def test_only_the_last_round_has_many_nodes() -> None:
    """Their slices take long to make, and their number does not vary."""
    wanted = Plan(rounds=3)
    assert [plan.amounts(wanted, number, OURS).nodes for number in range(3)] == [0, 0, wanted.nodes]


def test_figures_of_faults_can_be_had_alone() -> None:
    """`--only faults` measures nothing else, and takes some minutes."""
    only = Plan(groups=("faults",))
    assert only.seconds() < 480
    assert {figure.group for figure in FIGURES if figure.key.startswith(("fault-", "flap-"))} == {"faults"}


def test_hardware_is_told_in_the_drivers_own_process(tmp_path: Path) -> None:
    """The same settings as the image's, in another program, on a machine with a full slice if that is wanted."""
    ours = contestants.contestants(tmp_path, "node1", tmp_path / "machine.yaml")[OURS]
    told = faults.told(ours, tmp_path / "s", {"problems.clearAfter": "1ms"})
    command = told.start(contestants.FULL, Path("/r"))
    assert command[1:4] == ["-m", "hack.bench.faulty", str(tmp_path / "s")]
    assert {"--set=nodeName=node1", "--set=problems.clearAfter=1ms"} < set(command)
    assert f"--set=simulation.profile={tmp_path / 'slice.yaml'}" in command
    assert (told.gpus(contestants.FULL), told.gpus(contestants.SMALL)) == (64, 8)


async def test_each_line_is_what_stands(tmp_path: Path) -> None:
    """Faults that the newest line does not have are repaired; the answer is when the machine was told."""
    profile = programs.machine(64, tmp_path / "slice.yaml")
    machine = machine_of(load_profile(str(profile)), "node1")
    (tmp_path / "boot").write_text("b\n")
    async with opened(machine, tmp_path / "state", tmp_path / "boot") as simulated:
        server = await asyncio.start_unix_server(partial(faulty.obey, simulated), tmp_path / "s")
        async with server:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            try:
                for wanted in ([("gpu-63", "xid", "79"), ("nic-0", "link-down", "")], []):
                    before = time.time()
                    writer.write((json.dumps(wanted) + "\n").encode())
                    assert before <= float(await reader.readline()) <= time.time()
                    assert kinds(simulated) == sorted(kind for _, kind, _ in wanted)
                writer.write_eof()
                assert await reader.read() == b"", "it ends with the other side"
            finally:
                writer.close()
                await writer.wait_closed()


def kinds(machine: SimulatedMachine) -> list[str]:
    """Return the kinds of all faults that stand."""
    return sorted(fault.kind for standing in machine.faults().values() for fault in standing)
