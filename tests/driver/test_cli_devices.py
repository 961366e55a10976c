"""`drasim devices`: what a profile would publish."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dra_plugin.resources import ResourceSlice, decode
from drasim.cli.devices import devices
from drasim.config import ConfigError, load_yaml
from tests.driver.machines import machine

RUN = CliRunner()


def printed(*args: str) -> str:
    result = RUN.invoke(command(), list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(devices)
    return app


def slices(*args: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(printed("-o", "json", *args))["items"]
    return items


def test_the_table_shows_both_drivers() -> None:
    """Each driver has a heading with its pool, and a line for each device with what tells it apart."""
    text = printed("--profile", "small", "--node", "node-a")
    assert "gpu.dra.example.com: 4 devices, pool node-a-gpu in 1 slice" in text
    assert "nic.dra.example.com: 4 devices, pool node-a-nic in 1 slice" in text
    for gpu in machine("small").gpus:
        assert any(gpu.id in line and gpu.pci.bus_id in line and "48Gi" in line for line in text.splitlines())
    for nic in machine("small").nics:
        assert any(nic.mac in line and "100 Gbit/s" in line for line in text.splitlines())


def test_the_table_is_as_wide_as_its_cells(tmp_path: Path) -> None:
    """Nothing is cut, however narrow the terminal; a cell is text, whatever it looks like; no line ends in blanks."""
    file = tmp_path / "odd.yaml"
    file.write_text(f"gpu: {{model: '[red]{'x' * 50}[/b]'}}\nroots: [{{gpus: 1}}]")
    lines = printed("--profile", str(file), "--driver", "gpu").splitlines()
    heading, titles, row = lines
    assert heading == "gpu.dra.example.com: 1 device, pool node-a-gpu in 1 slice"
    assert titles.split("  ")[0] == "DEVICE"
    assert f"[red]{'x' * 50}[/b]" in row
    assert titles.index("UUID") == row.index("GPU-")
    assert all(line == line.rstrip() for line in lines)


def test_nothing_to_show_is_said() -> None:
    """A driver that is switched off has no devices; to ask for it is a mistake."""
    result = RUN.invoke(command(), ["--driver", "gpu", "--set", "gpu.hardware=off"])
    assert isinstance(result.exception, ConfigError)
    assert "gpu.hardware" in str(result.exception)


def test_the_slices_are_what_would_be_written() -> None:
    """JSON is a list of ResourceSlices of this node, as the API takes them."""
    [part] = slices("--driver", "gpu", "--node", "n1")
    read = decode(json.dumps(part).encode(), ResourceSlice)
    assert (read.spec.driver, read.spec.node_name, read.spec.pool.name) == ("gpu.dra.example.com", "n1", "n1-gpu")
    assert len(read.spec.devices or ()) == 8


def test_yaml_has_the_same_slices() -> None:
    """YAML is one document for each slice, equal to the JSON."""
    documents = printed("--profile", "small", "-o", "yaml").split("---\n")
    assert [load_yaml(document, "stdout") for document in documents] == slices("--profile", "small")


def test_a_profile_of_the_users_own(tmp_path: Path) -> None:
    """A path is a profile, too; a large one is split into slices."""
    file = tmp_path / "big.yaml"
    file.write_text("roots: [{numaNode: 0, gpus: 4, count: 75}]")
    parts = slices("--profile", str(file), "--driver", "gpu")
    assert sum(len(part["spec"]["devices"]) for part in parts) == 300
    assert "300 devices" in printed("--profile", str(file))


def test_an_odd_value_is_corrected_and_told(tmp_path: Path) -> None:
    """What breaks a limit of the API is named on stderr, and the slice stays valid."""
    file = tmp_path / "odd.yaml"
    file.write_text(f"gpu: {{model: {'ü' * 60}}}\nroots: [{{gpus: 1}}]")
    result = RUN.invoke(command(), ["--profile", str(file)])
    assert result.exit_code == 0
    assert "warning: gpu-0: attributes[model]" in result.stderr


def test_names_come_from_the_configuration(tmp_path: Path) -> None:
    """Driver names, profile and node name of a configuration file are used; a driver that is off shows nothing."""
    file = tmp_path / "config.yaml"
    file.write_text("nodeName: n9\ngpu: {driver: g.example.org}\nnic: {hardware: off}\nsimulation: {profile: small}")
    parts = slices("--config", str(file))
    assert [(part["spec"]["driver"], part["spec"]["pool"]["name"]) for part in parts] == [("g.example.org", "n9-gpu")]
    assert slices("--config", str(file), "--set", "gpu.driver=x.y")[0]["spec"]["driver"] == "x.y"


@pytest.mark.parametrize("args", [["--profile", "dgxx"], ["--node", "A_B"], ["--set", "x=y"]])
def test_bad_input_is_a_config_error(args: list[str]) -> None:
    """What does not fit is a ConfigError, which ends in exit code 2."""
    assert isinstance(RUN.invoke(command(), args).exception, ConfigError)
