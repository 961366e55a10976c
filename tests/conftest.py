"""Rules for the whole test run: time limits, and no silent skip where the real cluster is expected."""

import asyncio
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

CLUSTER = Path(__file__).parent / "cluster"
CHART = Path(__file__).parent / "chart"  # needs Helm, which is built with the cluster
CLUSTER_TIMEOUT = 600  # seconds; the first test of a run builds and starts the cluster
NO_SKIP = os.environ.get("DRASIM_NO_SKIP") == "1"

settings.register_profile("shared", deadline=None, print_blob=True)  # a deadline fails when the CPU is shared
settings.load_profile("shared")


def pytest_configure() -> None:
    """Start without an event loop: pytest-asyncio leaves the one that it finds unclosed, and warnings are errors."""
    asyncio.set_event_loop(None)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return an empty folder with a short path: a Unix socket's may have 107 bytes, pytest's own takes most of them."""
    with TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def needs_machine(item: pytest.Item) -> bool:
    """Return whether a test needs root or the real cluster."""
    return any(item.get_closest_marker(name) for name in ("cluster", "root"))


def may_not_skip(item: pytest.Item) -> bool:
    """Return whether a skip would mean that something was not built or installed."""
    return needs_machine(item) or item.path.is_relative_to(CHART)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies below tests/cluster, and give it more time."""
    for item in items:
        if item.path.is_relative_to(CLUSTER) and not needs_machine(item):
            item.add_marker("cluster")
        if needs_machine(item) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where DRASIM_NO_SKIP=1 says that nothing may be missing."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail") and may_not_skip(item):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and DRASIM_NO_SKIP=1 forbids it: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a module below tests/cluster that skips itself as a whole."""
    report = yield
    if NO_SKIP and report.skipped and collector.path.is_relative_to(CLUSTER):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and DRASIM_NO_SKIP=1 forbids it: {report.longrepr}"
    return report
