"""Where the server drops taints (the default of 1.34 and 1.35): a sick device that nothing holds is not published."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.tour.clients import Failed
from tests.cluster.faulting import HASTY, FaultFile, published, wait_node_event, wait_pod_health
from tests.cluster.objects import Space, claim, devices
from tests.cluster.outside import Outside, outside
from tests.cluster.real import RealCluster, own_cluster
from tests.cluster.watching import watching

NODE = "node1"
EVERY = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
WRITES = 6  # of the pool from the first fault to the last repair, each of which is a change


@pytest.fixture(scope="module")
def untainted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of one node whose server does not know taints of devices."""
    with own_cluster("untainted", tmp_path_factory.mktemp("own"), "--feature-gate", "DRADeviceTaints=false") as cluster:
        yield cluster


def names(driver: Outside) -> set[str]:
    """Return the names of the GPUs that are published now."""
    return set(published(driver.slices(driver.gpu.driver)))


def wait_names(driver: Outside, wanted: set[str]) -> None:
    """Wait until these GPUs and no others are published."""

    def there() -> bool:
        if (found := names(driver)) != wanted:
            raise Failed(f"published: {sorted(found)}")
        return True

    driver.cluster.wait_for(f"{sorted(wanted)} are published", there)


def test_a_sick_device_is_left_out_unless_it_is_held(untainted: RealCluster, tmp_path: Path) -> None:
    """The free one goes and is told of, the held one stays until its Pod is gone; repaired, both come back."""
    faults = FaultFile(tmp_path / "faults.yaml", NODE)
    settings = {"simulation.faults": str(faults.path), **HASTY}
    with untainted.namespace("untainted") as name:
        space = Space(untainted, name)
        with outside(untainted, "plain", tmp_path, settings, space) as driver:
            space.create(claim("held", {driver.gpu.driver: 1}))
            space.started("pod", "held", 1)
            held = devices(space.claim("held"))[0].partition("/")[2]
            free = min(EVERY - {held})
            with watching(untainted) as seen:
                faults.put_all({"held": (held, "lost", ""), "free": (free, "lost", "")})
                wait_names(driver, EVERY - {free})
                wait_node_event(untainted, NODE, "DeviceUnpublished", free)
                wait_pod_health(space, "pod", "Unhealthy", "lost")
                assert held in names(driver)
                space.delete_pods("pod")
                wait_names(driver, EVERY - {free, held})
                faults.repair()
                wait_names(driver, EVERY)
            assert len(seen.of((driver.gpu.driver, f"{NODE}-gpu"))) <= WRITES
