"""FaultKeeper between a fake cluster, a file and a real simulated machine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from dra_plugin.errors import Rejected
from dra_plugin.latest import Latest
from dra_plugin.mirror import Mirror
from dra_plugin.resources import Kind
from dra_plugin.testing.cluster import FakeCluster
from drasim.faults import DEVICE_FAULT, DeviceFault, DeviceFaultStatus, FaultKeeper, apply_status, refused
from drasim.faults.manifests import write_manifests
from drasim.faults.status import StatusWriter
from drasim.faults.wanted import key_of
from drasim.hardware import Fault
from drasim.hardware.simulated import SimulatedMachine
from tests.driver.faulting import cluster, fault, fresh, site
from tests.driver.machines import boot, switched_on
from tests.flow.nodes import until

GPU = site().machine.gpus[1]
LOST = Fault(device=GPU.id, kind="lost")

T = TypeVar("T")


class Bench:
    """A keeper at work."""

    def __init__(
        self, folder: Path, api: FakeCluster, file: Path | None = None, machine: SimulatedMachine | None = None
    ) -> None:
        self.api, self.folder, self.file = api, folder, file
        self.machine: SimulatedMachine = machine or switched_on(folder)
        self.newest = Latest(True)
        self.keeper = FaultKeeper(self.machine, site(), file)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Bench"]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.keeper.run(self.api, self.newest))
            yield self
            task.cancel()

    async def put(self, obj: DeviceFault) -> DeviceFault:
        return await self.api.create(DEVICE_FAULT, obj)

    async def stored(self, name: str = "a") -> DeviceFault:
        found = await self.api.get(DEVICE_FAULT, name)
        assert found is not None
        return found

    async def status(self, holds: Callable[[DeviceFaultStatus], bool], name: str = "a") -> DeviceFaultStatus:
        """Return the status of an object once that holds for it."""
        while True:
            status = (await self.stored(name)).status
            if status is not None and holds(status):
                return status
            await asyncio.sleep(0.01)

    async def phase(self, phase: str, name: str = "a") -> DeviceFaultStatus:
        """Return the status of an object once it is in that phase."""
        return await self.status(lambda status: status.phase == phase, name)

    async def told(self, *faults: Fault, source: str = "api") -> None:
        """Return once the machine was told exactly this."""
        await until(lambda: self.machine.faults().get(source, ()) == faults)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, cluster())


async def test_an_object_is_done_and_its_deletion_is_the_repair(bench: Bench) -> None:
    """The machine fails, the status says so with times and devices; deleted, the machine is whole."""
    async with bench.running():
        await bench.put(fresh())
        status = await bench.phase("Active")
        assert bench.machine.faults() == {"api": (LOST,)}
        assert (status.devices, status.reason, status.observed_generation) == (("gpu-1",), None, 1)
        assert status.first_seen == status.last_seen
        assert status.first_seen is not None
        await bench.api.delete(DEVICE_FAULT, await bench.stored())
        await bench.told()


async def test_the_status_is_written_once(bench: Bench) -> None:
    """A status that says what is to be said is left alone, by this process and by the next one."""
    async with bench.running():
        await bench.put(fresh())
        await bench.phase("Active")
        await asyncio.sleep(0.1)
    before = await bench.stored()
    async with Bench(bench.folder, bench.api).running() as again:
        await again.put(fresh("b", device="gpu-2"))
        await again.phase("Active", "b")
        await asyncio.sleep(0.1)
    assert await bench.stored() == before


async def test_only_this_nodes_faults_are_done(bench: Bench) -> None:
    """A fault of another node is neither done nor spoken of."""
    async with bench.running():
        await bench.put(fresh("other", node="node-b"))
        await bench.put(fresh())
        await bench.phase("Active")
        assert bench.machine.faults() == {"api": (LOST,)}
        assert (await bench.stored("other")).status is None


async def test_what_cannot_be_done_is_refused(bench: Bench) -> None:
    """The reason names the field and what is allowed; what can be done is done all the same."""
    async with bench.running():
        await bench.put(fresh("bad", device="gpu-9"))
        await bench.put(fresh())
        status = await bench.phase("Refused", "bad")
        assert status.reason is not None
        assert 'spec.device: "gpu-9" is no device of this machine' in status.reason
        assert "gpu-0, gpu-1, gpu-2, gpu-3, nic-0" in status.reason
        await bench.told(LOST)


async def test_a_changed_object_is_another_fault(bench: Bench) -> None:
    """`kubectl apply` of another device moves the fault there."""
    async with bench.running():
        obj = await bench.put(fresh())
        await bench.phase("Active")
        stored = await bench.stored()
        changed = msgspec.structs.replace(stored, spec=msgspec.structs.replace(obj.spec, device="gpu-2"))
        await bench.api.replace(DEVICE_FAULT, changed)
        await bench.told(Fault(device=site().machine.gpus[2].id, kind="lost"))
        assert (await bench.status(lambda status: status.devices == ("gpu-2",))).observed_generation == 2


async def test_times_pass_without_a_look_at_the_cluster(bench: Bench) -> None:
    """`after` and `duration` begin and end a fault though nothing changes anywhere; each phase is said once."""
    async with bench.running():
        await bench.put(fresh(after="2s", duration="1s"))
        await bench.phase("Pending")
        assert bench.machine.faults() == {}
        status = await bench.phase("Cleared")
        assert (bench.machine.faults(), status.first_seen is not None) == ({}, True)
    stored = [entry.after for entry in bench.api.store.since(0) if entry.after and "status" in entry.after]
    assert [obj["status"]["phase"] for obj in stored] == ["Pending", "Active", "Cleared"]


async def test_a_restart_and_a_cluster_that_is_away_change_nothing(bench: Bench) -> None:
    """Until the objects were read again, what the machine was told holds."""
    async with bench.running():
        await bench.put(fresh())
        await bench.told(LOST)
    assert bench.machine.faults() == {"api": (LOST,)}
    bench.api.faults.fail("list", code=404, times=1000)
    async with Bench(bench.folder, bench.api).running() as again:
        await until(lambda: "reading DeviceFaults" in again.keeper.problems.value)
        assert again.machine.faults() == {"api": (LOST,)}


async def test_what_went_while_nobody_looked_is_repaired(bench: Bench) -> None:
    """An object that was deleted while the driver was away leaves nothing behind."""
    async with bench.running():
        await bench.put(fresh())
        await bench.phase("Active")
    await bench.api.delete(DEVICE_FAULT, await bench.stored())
    async with Bench(bench.folder, bench.api).running() as again:
        await again.told()


async def test_only_the_newest_instance_acts(bench: Bench) -> None:
    """An older one leaves the machine and the statuses alone, and takes over when it becomes the newest."""
    bench.newest.set(False)
    async with bench.running():
        await bench.put(fresh())
        await asyncio.sleep(0.2)
        assert (bench.machine.faults(), (await bench.stored()).status) == ({}, None)
        bench.newest.set(True)
        await bench.phase("Active")
        bench.newest.set(False)
        await asyncio.sleep(0.05)
        await bench.api.delete(DEVICE_FAULT, await bench.stored())
        await asyncio.sleep(0.2)
        assert bench.machine.faults() == {"api": (LOST,)}


async def test_what_the_controller_refused_is_taken_back(bench: Bench) -> None:
    """A fault of a node that came later is done, and no reason stays behind."""
    obj = await bench.put(fresh())
    await apply_status(bench.api, obj, refused(obj, "no such node"))
    async with bench.running():
        status = await bench.phase("Active")
    assert status.reason is None


async def test_a_status_is_not_written_onto_another_object(bench: Bench) -> None:
    """What was decided for an object that is gone by now, or replaced under the same name, is dropped."""
    obj = await bench.put(fresh())
    await bench.api.delete(DEVICE_FAULT, obj)
    assert await apply_status(bench.api, obj, refused(obj, "gone")) is None
    await bench.put(fresh())
    assert await apply_status(bench.api, obj, refused(obj, "replaced")) is None
    assert (await bench.stored()).status is None


async def test_a_write_that_fails_is_said_and_repeated(bench: Bench) -> None:
    """The machine fails all the same; the status follows when the server takes it."""
    bench.api.faults.fail("apply", code=403)
    async with bench.running():
        await bench.put(fresh())
        await bench.told(LOST)
        await until(lambda: "writing DeviceFaults" in bench.keeper.problems.value)
        assert "Forbidden" in bench.keeper.problems.value["writing DeviceFaults"]
        await bench.phase("Active")
        await until(lambda: bench.keeper.problems.value == {})


async def test_a_status_that_is_rejected_holds_up_no_other(bench: Bench) -> None:
    """It is tried again later; the others are written in the same round."""
    await bench.put(fresh())
    await bench.put(fresh("b", device="gpu-2"))
    bench.api.faults.fail("apply", code=422)
    async with bench.running():
        await bench.phase("Active", "b")
        assert (await bench.stored()).status is None
        assert "writing DeviceFaults" in bench.keeper.problems.value
        await bench.phase("Active")
        await until(lambda: bench.keeper.problems.value == {})


class Picky(FakeCluster):
    """A server that does not take the status of the object ``a``, as an admission policy may have it; it counts."""

    refused = 0

    async def apply(self, kind: Kind[T], fields: Mapping[str, Any], manager: str, subresource: str = "") -> T:
        if fields["metadata"]["name"] == "a":
            self.refused += 1
            raise Rejected("denied", code=422)
        return await super().apply(kind, fields, manager, subresource)


@pytest.mark.looptime
async def test_a_new_fault_does_not_wait_for_one_that_is_rejected() -> None:
    """Its status is written at once, however long the other one is put off by now, and that one is not asked again."""
    api = Picky(catalog=cluster().catalog)
    mirror = Mirror(api, DEVICE_FAULT)
    mirror.learn(await api.create(DEVICE_FAULT, fresh()))
    writer = StatusWriter(api, mirror)
    active = DeviceFaultStatus(phase="Active")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        writer.wanted.set({key_of(obj): active for obj in mirror.objects.value.values()})
        await asyncio.sleep(600)
        before = api.refused
        for number in range(20):
            mirror.learn(await api.create(DEVICE_FAULT, fresh(f"b-{number}", device="gpu-2")))
            writer.wanted.set({key_of(obj): active for obj in mirror.objects.value.values()})
            await asyncio.sleep(0.01)
            stored = await api.get(DEVICE_FAULT, f"b-{number}")
            assert stored is not None
            assert stored.status == active
        assert (api.refused - before <= 1, 20 < before < 60) == (True, True)
        told = writer.problem.value
        assert told == "a status cannot be written: denied"
        mirror.forget(next(obj for obj in mirror.objects.value.values() if obj.metadata.name == "a"))
        await asyncio.sleep(0.01)
        assert writer.problem.value is None
        task.cancel()


@pytest.mark.looptime
async def test_a_status_follows_soon_after_the_server_is_back() -> None:
    """However long it was away, and however often the write has failed by then."""
    api = cluster()
    obj = await api.create(DEVICE_FAULT, fresh())
    mirror = Mirror(api, DEVICE_FAULT)
    mirror.learn(obj)
    writer = StatusWriter(api, mirror)
    writer.wanted.set({key_of(obj): DeviceFaultStatus(phase="Active")})
    async with asyncio.TaskGroup() as group:
        with api.away():
            task = group.create_task(writer.run())
            await asyncio.sleep(6010)
        await asyncio.sleep(5.1)
        stored = await api.get(DEVICE_FAULT, "a")
        task.cancel()
    assert stored is not None
    assert stored.status == DeviceFaultStatus(phase="Active")


class Counting(SimulatedMachine):
    """A machine that counts how often it is told what the objects say."""

    told = 0

    async def set_faults(self, source: str, faults: Iterable[Fault]) -> None:
        self.told += source == "api"
        await super().set_faults(source, faults)


class Distant(FakeCluster):
    """A cluster whose answers take a moment, so that everybody has a turn meanwhile."""

    async def apply(self, kind: Kind[T], fields: Mapping[str, Any], manager: str, subresource: str = "") -> T:
        await asyncio.sleep(0.001)
        return await super().apply(kind, fields, manager, subresource)


async def test_own_statuses_are_no_reason_to_judge_again(tmp_path: Path) -> None:
    """A hundred new faults are judged together, and not once more for each status that is written of them."""
    api = Distant(catalog=cluster().catalog)
    for number in range(100):
        await api.create(DEVICE_FAULT, fresh(f"f-{number}", kind="xid", code=str(1 + number)))
    machine = Counting(site().machine, tmp_path, boot(tmp_path))
    async with Bench(tmp_path, api, machine=machine).running() as bench:
        for number in range(100):
            await bench.phase("Active", f"f-{number}")
    assert machine.told <= 2


async def test_a_file_is_a_source_of_its_own(tmp_path: Path) -> None:
    """Both sources are merged; the file is read as it changes, and without it its faults are repaired."""
    file = tmp_path / "faults.yaml"
    write_manifests(file, (fault("x", device="nic-0", kind="link-down"),))
    down = Fault(device=site().machine.nics[0].id, kind="link-down")
    async with Bench(tmp_path, cluster(), file).running() as bench:
        await bench.put(fresh())
        await bench.told(LOST)
        await bench.told(down, source="file")
        file.unlink()
        await bench.told(source="file")
        assert bench.machine.faults() == {"api": (LOST,)}


async def test_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    """What it said last holds, and the problem names file and field until it is mended."""
    file = tmp_path / "faults.yaml"
    write_manifests(file, (fault(),))
    async with Bench(tmp_path, cluster(), file).running() as bench:
        await bench.told(LOST, source="file")
        file.write_text(file.read_text().replace("kind: lost", "kind: lots"))
        await until(lambda: "faults file" in bench.keeper.problems.value)
        assert f'{file}: spec.kind: "lots"' in bench.keeper.problems.value["faults file"]
        assert bench.machine.faults() == {"file": (LOST,)}
        write_manifests(file, (fault(device="gpu-9"),))
        await bench.told(source="file")
        await until(lambda: "faults file" not in bench.keeper.problems.value)
        assert 'a: spec.device: "gpu-9" is no device' in bench.keeper.problems.value["faults of the file"]


async def test_a_process_without_a_file_forgets_the_one_before(tmp_path: Path) -> None:
    """What a file of an earlier configuration said is repaired."""
    machine = switched_on(tmp_path)
    await machine.set_faults("file", (LOST,))
    async with Bench(tmp_path, cluster()).running() as bench:
        await bench.told(source="file")


async def test_a_machine_that_cannot_be_told_is_told_again(bench: Bench) -> None:
    """The status does not claim what the machine does not do."""
    state = bench.folder / "machine.json"
    state.mkdir()
    async with bench.running():
        await bench.put(fresh())
        await until(lambda: "telling the machine (api)" in bench.keeper.problems.value)
        assert (await bench.stored()).status is None
        state.rmdir()
        await bench.phase("Active")
        assert "telling the machine (api)" not in bench.keeper.problems.value


async def test_a_machine_that_lost_its_file_is_told_again(bench: Bench) -> None:
    """What the objects say holds, whoever removed the file: it is looked at every few seconds."""
    async with bench.running():
        await bench.put(fresh())
        await bench.told(LOST)
        (bench.folder / "machine.json").unlink()
        await bench.told(LOST)
