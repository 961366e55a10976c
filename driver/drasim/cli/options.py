"""Options that several commands share, declared once: a struct whose fields are typer's parameters."""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from drasim.cli.config import ConfigFile, Settings, flags_of
from drasim.cli.node import environment
from drasim.config import Config, ConfigError, load
from drasim.config.strict import Seconds

__all__ = ["Api", "Common", "Node", "Nodes", "expanded"]

Node = Annotated[
    str,
    typer.Option("--node", metavar="NAME", help="The Node. Default: $NODE_NAME, else the only one that has devices."),
]
"""The one Node that a command is about."""

Nodes = Annotated[str, typer.Option("--node", metavar="NAME", help="Only of this Node.")]
"""The Node that a command is about, which without it is about all of them."""


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the API server, and what the drivers are called there."""

    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How to reach the API server. Default: $KUBECONFIG, else ~/.kube/config."),
    ] = None
    request_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long the API server may take for an answer, such as 2m.")
    ] = "15s"
    config: ConfigFile = None
    settings: Settings = None

    @property
    def timeout(self) -> float:
        """Seconds until an answer has to be there. Raises ConfigError."""
        try:
            return Seconds.parse(self.request_timeout)
        except ValueError:
            problem = f'"{self.request_timeout}" is not allowed; allowed: 1ms to 24h, such as 30s, 500ms, 2m'
            raise ConfigError("arguments", "--request-timeout", problem) from None

    @property
    def used(self) -> Config:
        """The configuration: the file, then the environment, then flags. Raises ConfigError."""
        path = {"kubeconfig": str(self.kubeconfig.absolute())} if self.kubeconfig else {}
        return load(self.config, {**environment(os.environ), **flags_of(self.settings), **path})


class Common(Api, frozen=True, kw_only=True):
    """Where faults are kept, and by which configuration."""

    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Use this file of manifests (simulation.faults), no cluster."
        ),
    ] = None


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a struct replaced by one parameter for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if _is_struct(hint)}
    own = [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(command).parameters.values()
        if each.name not in groups
    ]
    shared = [each for group in groups.values() for each in _parameters(group)]

    @functools.wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401 - typer's values
        structs = {name: _filled(group, given) for name, group in groups.items()}
        command(**{each.name: given[each.name] for each in own}, **structs)

    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    del run.__wrapped__
    return run


def _is_struct(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _parameters(group: type[msgspec.Struct]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in msgspec.structs.fields(group):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])


def _filled(group: type[msgspec.Struct], given: Mapping[str, Any]) -> msgspec.Struct:
    return group(**{field.name: given[field.name] for field in msgspec.structs.fields(group)})
