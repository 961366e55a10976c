"""`drasim config`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drasim.cli.config import app, flags_of
from drasim.config import ConfigError, load, schema

RUN = CliRunner()


def test_show_prints_a_file_that_means_the_same(tmp_path: Path) -> None:
    """What is shown can be used as a configuration file."""
    given, shown = tmp_path / "given.yaml", tmp_path / "shown.yaml"
    given.write_text("gpu: {driver: x.y}")
    result = RUN.invoke(app, ["show", "--config", str(given), "--set", "drain=3s", "--set", "nic.hardware=off"])
    assert result.exit_code == 0
    shown.write_text(result.stdout)
    config = load(shown)
    assert (config.gpu.driver, float(config.drain), config.nic.hardware) == ("x.y", 3, "off")


def test_schema_is_json() -> None:
    """The schema is printed as JSON."""
    assert json.loads(RUN.invoke(app, ["schema"]).stdout) == schema()


@pytest.mark.parametrize("text", ["drain", "=3", "gpu.drive=x"])
def test_settings_that_do_not_fit_are_config_errors(text: str) -> None:
    """A setting without a key, without a value or with an unknown key is refused."""
    assert isinstance(RUN.invoke(app, ["show", "--set", text]).exception, ConfigError)


def test_a_setting_may_contain_equals_signs() -> None:
    """Only the first `=` divides."""
    assert flags_of(["a.b=c=d"]) == {"a.b": "c=d"}
