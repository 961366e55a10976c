"""A driver of a test module's own whose devices fail at will, and a namespace for the Pods that use them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.tour.clients import Failed
from tests.cluster.faulting import HASTY, FaultFile, published, wait_taints
from tests.cluster.objects import Space
from tests.cluster.outside import Outside, outside
from tests.cluster.real import RealCluster

EVERY = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
LOST = {"lost": ("", "NoSchedule")}


@dataclass(frozen=True)
class Ground:
    """A driver on the last node, the file of its faults, and a namespace."""

    driver: Outside
    faults: FaultFile
    space: Space
    folder: Path

    @property
    def cluster(self) -> RealCluster:
        """The cluster."""
        return self.driver.cluster

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.faults.node

    @property
    def gpu(self) -> str:
        """The name of the GPU driver."""
        return self.driver.gpu.driver

    def place(self, name: str) -> tuple[str, str, str]:
        """Return where a GPU is published."""
        return self.gpu, self.node, name

    def gpus(self) -> set[str]:
        """Return the names of the GPUs that are published now."""
        return set(published(self.driver.slices(self.gpu)))

    def wait_gpus(self, wanted: set[str]) -> None:
        """Wait until these GPUs and no others are published."""

        def there() -> bool:
            if (found := self.gpus()) != wanted:
                raise Failed(f"published: {sorted(found)}")
            return True

        self.cluster.wait_for(f"{sorted(wanted)} are published", there)

    def lose(self, *names: str) -> None:
        """Let GPUs fail, all at once, and wait until that is published."""
        self.faults.put_all({name: (name, "lost", "") for name in names})
        for name in names:
            wait_taints(self.cluster, self.place(name), LOST)

    def clear(self) -> None:
        """Repair everything, end all Pods, and wait until every GPU is published without a taint.

        A test that failed may have left the driver ended: without it no Pod ends, and each later test would fail, too.
        """
        self.faults.repair()
        if not self.driver.runs:
            self.driver.end()
            self.driver.start()
        self.space.delete_pods()
        for name in sorted(EVERY):
            wait_taints(self.cluster, self.place(name), {})


@contextmanager
def on_ground(cluster: RealCluster, purpose: str, folder: Path) -> Iterator[Ground]:
    """Run a driver with faults that come and go fast; everything is taken back in the end."""
    faults = FaultFile(folder / "faults.yaml", cluster.nodes[-1])
    with cluster.namespace(purpose) as name:
        space, settings = Space(cluster, name), {"simulation.faults": str(faults.path), **HASTY}
        with outside(cluster, purpose, folder, settings, space) as driver:
            yield Ground(driver, faults, space, folder)
