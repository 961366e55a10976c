"""What the tests below tests/cluster share."""

from collections.abc import Generator

import pytest

from tests.cluster.diagnosis import diagnosis
from tests.cluster.real import RealCluster, real_cluster

__all__ = ["real_cluster"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the cluster has to say."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("real_cluster")
    if report.failed and isinstance(cluster, RealCluster):
        report.sections.append(("the cluster", diagnosis(cluster)))
    return report
