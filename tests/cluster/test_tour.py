"""The tour of `make demo`, on the real cluster."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from hack.tour.clients import Failed
from hack.tour.parts import steps
from hack.tour.runner import run
from tests.cluster.real import RealCluster


@pytest.mark.parametrize("round_", ["first", "second"])
def test_tour(real_cluster: RealCluster, round_: str) -> None:
    """Every step passes on the chart's defaults, none is skipped; a second tour passes too, after quick recoveries."""
    out, settings = io.StringIO(), real_cluster.settings
    if round_ == "first":
        settings = replace(settings, values=())
    console = Console(file=out, width=150)
    code = run(steps(settings, console), settings, console)
    assert code == 0, f"{round_} tour:\n{out.getvalue()}"
    assert out.getvalue().splitlines()[-1].startswith("demo: 13 steps passed in ")


def test_the_example_with_parameters(real_cluster: RealCluster) -> None:
    """The parameters of a claim reach the container as variables, and go with the Pod."""
    with real_cluster.namespace("parameters") as namespace:
        real_cluster.start("parameters", namespace)
        logs = ["logs", "parameters", "--namespace", namespace]

        def printed() -> bool:
            lines = real_cluster.clients.run(*logs).splitlines()
            values = {line.partition("=")[2] for line in lines if line.startswith("DRASIM_")}
            if missing := {"300", "ExclusiveProcess", "9000", "rdma0"} - values:
                raise Failed(f"not among the variables: {missing}; printed: {lines}")
            return True

        real_cluster.wait_for("variables", printed)
