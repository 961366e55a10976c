"""Where the server drops taints (the default of 1.34 and 1.35): a sick device that nothing holds is not published."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.faulting import now, wait_node_event, wait_pod_health
from tests.cluster.ground import EVERY, on_ground
from tests.cluster.objects import claim, devices
from tests.cluster.real import RealCluster, own_cluster
from tests.cluster.watching import pool_of, watching

WRITES = 6  # of the pool from the first fault to the last repair, each of which is a change


@pytest.fixture(scope="module")
def untainted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster of one node whose server does not know taints of devices."""
    with own_cluster("untainted", tmp_path_factory.mktemp("own"), "--feature-gate", "DRADeviceTaints=false") as cluster:
        yield cluster


def test_a_sick_device_is_left_out_unless_it_is_held(untainted: RealCluster, tmp_path: Path) -> None:
    """The free one goes and is told of, the held one stays until its Pod is gone; repaired, both come back."""
    began = now()
    with on_ground(untainted, "plain", tmp_path) as ground:
        space = ground.space
        space.create(claim("held", {ground.gpu: 1}))
        space.started("pod", "held", 1)
        held = devices(space.claim("held"))[0].partition("/")[2]
        free = min(EVERY - {held})
        with watching(untainted) as seen:
            ground.faults.put_all({"held": (held, "lost", ""), "free": (free, "lost", "")})
            ground.wait_gpus(EVERY - {free})
            wait_node_event(untainted, ground.node, began, "DeviceUnpublished", free)
            wait_pod_health(space, "pod", "Unhealthy", "lost")
            assert held in ground.gpus()
            space.delete_pods("pod")
            ground.wait_gpus(EVERY - {free, held})
            ground.faults.repair()
            ground.wait_gpus(EVERY)
        assert len(seen.of(pool_of(1, ground.gpu))) <= WRITES
