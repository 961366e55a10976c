"""``drasim config``: the configuration that would be used, and its JSON schema."""

import json
from pathlib import Path
from typing import Annotated

import typer

from drasim.cli.node import setting
from drasim.config import dump_yaml, load, schema, show

__all__ = ["ConfigFile", "Settings", "app", "config_schema", "config_show", "flags_of"]

ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="YAML file of the configuration.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override one key, such as gpu.driver=gpu.example.com. Repeatable."
    ),
]

app = typer.Typer(help="Show the configuration or its JSON schema.", no_args_is_help=True)


@app.command("show")
def config_show(config: ConfigFile = None, settings: Settings = None) -> None:
    """Print the whole configuration as YAML, defaults included."""
    typer.echo(dump_yaml([show(load(config, flags_of(settings)))]), nl=False)


@app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of the configuration file."""
    typer.echo(json.dumps(schema(), indent=2))


def flags_of(settings: list[str] | None) -> dict[str, str]:
    """Return the KEY=VALUE texts of ``--set`` as flags. Raises ConfigError."""
    return dict(setting(text) for text in settings or ())
