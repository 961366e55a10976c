"""What the tests below tests/cluster share."""

from collections.abc import Generator, Iterator

import pytest

from tests.cluster.diagnosis import diagnosis
from tests.cluster.ground import Ground, on_ground
from tests.cluster.real import RealCluster, real_cluster

__all__ = ["real_cluster"]


@pytest.fixture(scope="module")
def module_ground(
    real_cluster: RealCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """One driver whose devices fail at will, for all tests of a module; it is called like the module."""
    purpose = request.path.stem.rpartition("_")[2]
    with on_ground(real_cluster, purpose, tmp_path_factory.mktemp(purpose)) as found:
        yield found


@pytest.fixture
def ground(module_ground: Ground) -> Iterator[Ground]:
    """That driver, with nothing wrong and nothing held, before and after."""
    yield module_ground
    module_ground.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the cluster has to say."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("real_cluster")
    if report.failed and isinstance(cluster, RealCluster):
        report.sections.append(("the cluster", diagnosis(cluster)))
    return report
