"""One node for the tests of Preparer: its folders, its machine, and any number of instances of the driver."""

from collections.abc import AsyncIterator
from pathlib import Path

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint, Record
from dra_plugin.claims import Claim
from dra_plugin.errors import ClaimError
from dra_plugin.latest import Latest
from dra_plugin.locks import DeviceLocks, FileLock
from drasim.edits import static_devices, static_kind
from drasim.hardware import Fault, Looked, Step
from drasim.hardware.simulated import SimulatedHardware, SimulatedMachine
from drasim.planning import Inventory
from drasim.preparer import Preparer, Stores
from tests.driver.builders import BOOT, DRIVERS, claim, gpu_config, inventory, result, small_machine

__all__ = ["DRIVER", "GPU", "PLAIN", "SET", "STATIC", "World", "succeeds"]

DRIVER = DRIVERS["gpu"]
STATIC = f"k8s.{DRIVER}/device=gpu-0"
PLAIN = claim("a", result("gpu-0"))
SET = claim("a", result("gpu-0"), result("gpu-1", "other"), config=(gpu_config(("request",), powerLimitWatts=300),))
GPU = small_machine().gpus[0].id


class Flaky:
    """Hardware that fails some times, then does what the hardware behind it does."""

    kind = "gpu"

    def __init__(self, real: SimulatedHardware, *errors: Exception) -> None:
        self.real, self.errors = real, list(errors)

    def watch(self) -> AsyncIterator[Looked]:
        return self.real.watch()

    async def admit(self, device: str, claim: str) -> None:
        await self.real.admit(device, claim)

    async def dismiss(self, device: str, claim: str) -> None:
        await self.real.dismiss(device, claim)

    async def apply(self, step: Step, claim: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        await self.real.apply(step, claim)

    async def undo(self, step: Step, claim: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        await self.real.undo(step, claim)


class World:
    """One node: its folders and its machine. Every ``preparer()`` is another instance of the driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boot_id_file = folder / "boot_id"
        self.boot_id_file.write_text(BOOT + "\n")
        self.inventory: Latest[Inventory | None] = Latest(inventory())
        self.cdi.write_static(static_kind(DRIVER), static_devices(inventory().devices.values()))

    @property
    def machine(self) -> SimulatedMachine:
        """The machine as a process that was just started sees it."""
        return SimulatedMachine(small_machine(), self.folder, self.boot_id_file)

    @property
    def cdi(self) -> CdiFolder:
        return CdiFolder(self.folder / "cdi")

    def preparer(self, *errors: Exception, boot_id: str = BOOT, patience: float = 5.0) -> Preparer:
        """Return a new instance of the driver, whose hardware fails first with ``errors``."""
        stores = Stores(
            lock=FileLock(self.folder / "lock"),
            devices=DeviceLocks(self.folder / "devices"),
            checkpoint=Checkpoint(self.folder / "claims"),
            cdi=self.cdi,
        )
        hardware = Flaky(SimulatedHardware(self.machine, "gpu", 5.0), *errors)
        return Preparer(DRIVER, hardware, self.inventory, stores, boot_id, patience)  # type: ignore[arg-type]  # kind is "gpu"

    async def strike(self, *faults: Fault) -> None:
        """Make these faults stand, and no others."""
        await self.machine.set_faults("test", faults)

    def reboot(self) -> str:
        """Begin another boot: settings are gone, and so is what was in the CDI folder."""
        self.boot_id_file.write_text("boot-2\n")
        for path in (self.folder / "cdi").iterdir():
            path.unlink()
        return "boot-2"

    def records(self) -> dict[str, Record]:
        return dict(Checkpoint(self.folder / "claims").load(fresh=False).records)

    def settings(self) -> dict[str, object]:
        """Return what is set in the machine, by hardware identity and claim."""
        return dict(self.machine.state().settings)

    def specs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cdi").glob("*.json"))


async def succeeds(preparer: Preparer, asked: Claim) -> bool:
    """Prepare the claim and tell whether that was done."""
    try:
        return bool(await preparer.prepare(asked))
    except ClaimError:
        return False
