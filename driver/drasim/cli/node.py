"""``drasim node``, and what daemons share: flags, read without the packages of people's commands, and a Pod's env."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from drasim.config import Config, ConfigError, for_node, load

if TYPE_CHECKING:
    from dra_plugin.kube import Credentials

__all__ = [
    "FLAGS",
    "SUMMARY",
    "Asked",
    "Flag",
    "credentials_for",
    "environment",
    "listed",
    "node",
    "parse",
    "setting",
    "usage",
]

SUMMARY = "Serve the DRA drivers of this node until SIGTERM."


class Flag(msgspec.Struct, frozen=True):
    """A flag that stands for a key of the configuration."""

    key: str
    value: str
    help: str


FLAGS: Mapping[str, Flag] = {
    "--node-name": Flag("nodeName", "NAME", "name of this Node (default: $NODE_NAME)"),
    "--pod-uid": Flag("podUID", "UID", "what tells this instance from others (default: $POD_UID)"),
    "--kubeconfig": Flag("kubeconfig", "FILE", "the API server's (default: the Pod's, $KUBECONFIG, ~/.kube/config)"),
    "--profile": Flag("simulation.profile", "NAME", "the simulated machine: a shipped profile, or a file's path"),
    "--probes": Flag("probes.address", "HOST:PORT", "where /healthz, /readyz and /metrics are served; empty for none"),
    "--log-level": Flag("log.level", "LEVEL", "debug, info, warning or error"),
    "--log-format": Flag("log.format", "FORMAT", "json, console or auto"),
}
OTHERS: Mapping[str, Flag] = {
    "--config": Flag("", "FILE", "YAML file of the configuration; flags and environment override it"),
    "--set": Flag("", "KEY=VALUE", "override one key, such as paths.cdi=/var/run/cdi; repeatable"),
}
VARIABLES = {"NODE_NAME": "nodeName", "POD_UID": "podUID"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says."""

    help: bool = False
    file: Path | None = None
    flags: Mapping[str, str] = {}


def node(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Serve this node until SIGTERM. Raises ConfigError, SetupError."""
    asked = parse(arguments)
    if asked.help:
        print(usage())
        return
    config = for_node(load(asked.file, {**environment(env), **asked.flags}))
    credentials = credentials_for(config, env)
    from drasim.node import run

    asyncio.run(run(config, credentials))


def listed(_arguments: list[str] | None = None) -> None:
    """Stand in the list of commands; ``__main__`` runs ``node`` itself."""


def parse(arguments: Sequence[str], flags: Mapping[str, Flag] = FLAGS) -> Asked:
    """Read ``--flag value`` and ``--flag=value``. Raises ConfigError that names the flag and the allowed ones."""
    known = {**OTHERS, **flags}
    asked = Asked()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in ("--help", "-h"):
            return Asked(help=True)
        if name not in known:
            raise ConfigError("flags", name, f"unknown; allowed: {', '.join(known)}")
        asked = _with(asked, name, known[name], value if equals else _next(name, known[name], rest))
    return asked


def usage(command: str = "node", summary: str = SUMMARY, flags: Mapping[str, Flag] = FLAGS) -> str:
    """Return the help text."""
    lines = [f"  {name + ' ' + flag.value:<24}{flag.help}" for name, flag in {**OTHERS, **flags}.items()]
    return "\n".join([f"Usage: drasim {command} [FLAGS]", "", summary, "", *lines, f"  {'--help':<24}show this"])


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of the Pod says, as flags."""
    return {key: env[name] for name, key in VARIABLES.items() if env.get(name)}


def credentials_for(config: Config, env: Mapping[str, str]) -> "Credentials":
    """Return how to reach the API server: by the configured kubeconfig, as the Pod's account, or as kubectl does.

    That is by $KUBECONFIG, the first of several, else by ~/.kube/config. Raises ConfigError when there is none of them,
    or the kubeconfig cannot be read.
    """
    from dra_plugin.kube import from_kubeconfig, in_cluster

    if not config.kubeconfig and env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env)
    kubeconfig = config.kubeconfig or env.get("KUBECONFIG", "").split(":")[0] or _of_kubectl(env)
    if not kubeconfig:
        problem = "missing outside of a Pod; needed: the path of a kubeconfig, as --kubeconfig or $KUBECONFIG"
        raise ConfigError("flags", "kubeconfig", problem)
    try:
        Path(kubeconfig).read_bytes()
    except OSError as error:
        raise ConfigError("flags", "kubeconfig", f"{kubeconfig} cannot be read: {error.strerror}") from error
    return from_kubeconfig(kubeconfig)


def _of_kubectl(env: Mapping[str, str]) -> str:
    """Return the kubeconfig that kubectl takes by itself; empty where there is none."""
    file = Path(env.get("HOME") or "/", ".kube", "config")
    return str(file) if file.is_file() else ""


def setting(text: str) -> tuple[str, str]:
    """Return key and value of a ``--set``. Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError("flags", "--set", f'"{text}" is not allowed; allowed: KEY=VALUE')
    return key, value


def _with(asked: Asked, name: str, flag: Flag, value: str) -> Asked:
    if name == "--config":
        return msgspec.structs.replace(asked, file=Path(value))
    key, text = (flag.key, value) if flag.key else setting(value)
    return msgspec.structs.replace(asked, flags={**asked.flags, key: text})


def _next(name: str, flag: Flag, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise ConfigError("flags", name, f"needs a value: {flag.value}")
    return value
