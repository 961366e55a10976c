"""``drasim controller``: its flags, and the environment of its Pod. A daemon: no packages of people's commands."""

import asyncio
import secrets
import socket
from collections.abc import Mapping, Sequence

from drasim.cli.node import FLAGS as NODE_FLAGS
from drasim.cli.node import Flag, credentials_for, parse, usage
from drasim.config import for_controller, load

__all__ = ["FLAGS", "SUMMARY", "controller", "identity", "listed"]

SUMMARY = "Evict Pods from sick devices until SIGTERM."

FLAGS: Mapping[str, Flag] = {
    "--namespace": Flag("controller.namespace", "NAME", "of its Lease and ConfigMap (default: $POD_NAMESPACE)"),
    "--dry-run": Flag("controller.dryRun", "true|false", "evict nobody, say who would be"),
    **{name: NODE_FLAGS[name] for name in ("--kubeconfig", "--probes", "--log-level", "--log-format")},
}


def controller(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Control until SIGTERM. Raises ConfigError, SetupError."""
    asked = parse(arguments, FLAGS)
    if asked.help:
        print(usage("controller", SUMMARY, FLAGS))
        return
    loaded = load(asked.file, asked.flags)
    if not loaded.controller.namespace and env.get("POD_NAMESPACE"):
        loaded = load(asked.file, {"controller.namespace": env["POD_NAMESPACE"], **asked.flags})
    config = for_controller(loaded)
    credentials = credentials_for(config, env)
    from drasim.controller import run

    asyncio.run(run(config, credentials, identity(env)))


def listed(_arguments: list[str] | None = None) -> None:
    """Stand in the list of commands; ``__main__`` runs ``controller`` itself."""


def identity(env: Mapping[str, str]) -> str:
    """Return what tells this process from all others that ever stood for election: Pod and its UID, else by chance."""
    name = env.get("POD_NAME") or socket.gethostname()
    return f"{name}_{env.get('POD_UID') or secrets.token_hex(8)}"
