"""``drasim version``."""

import json
import platform
from typing import Annotated

import typer

from drasim import __version__
from drasim.cli.output import Output

__all__ = ["version"]


def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT,
) -> None:
    """Print the version."""
    if output is Output.JSON:
        typer.echo(json.dumps({"drasim": __version__, "python": platform.python_version()}))
    else:
        typer.echo(f"drasim {__version__}")
