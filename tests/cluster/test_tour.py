"""The tour of `make demo`, on the real cluster."""

import io

import pytest
from rich.console import Console

from hack.tour.parts import steps
from hack.tour.runner import run
from tests.cluster.real import RealCluster


@pytest.mark.parametrize("round_", ["first", "second"])
def test_tour(real_cluster: RealCluster, round_: str) -> None:
    """Every step passes, none is skipped, and a second tour on the same cluster passes too."""
    out = io.StringIO()
    console = Console(file=out, width=150)
    code = run(steps(real_cluster.settings, console), real_cluster.settings, console)
    assert code == 0, f"{round_} tour:\n{out.getvalue()}"
    assert out.getvalue().splitlines()[-1].startswith("demo: 13 steps passed in ")


def test_the_example_with_parameters(real_cluster: RealCluster) -> None:
    """The parameters of a claim reach the container as variables, and go with the Pod."""
    with real_cluster.namespace("parameters") as namespace:
        real_cluster.start("parameters", namespace)
        logs = ["logs", "parameters", "--namespace", namespace]
        printed = real_cluster.wait_for("variables", lambda: real_cluster.clients.run(*logs))
        values = {line.partition("=")[2] for line in printed.splitlines() if line.startswith("DRASIM_")}
        assert {"300", "ExclusiveProcess", "9000", "rdma0"} <= values
