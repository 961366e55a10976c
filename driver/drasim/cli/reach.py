"""The API server as people's commands reach it: who has to wait is told for whom, and what to do about silence."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import typer

from dra_plugin.errors import Retryable
from dra_plugin.kube import KubeCluster
from drasim.cli.node import credentials_for
from drasim.cli.options import Api

__all__ = ["opened"]

_REMEDY = "is that API server up, and the right one? (--kubeconfig chooses it; an answer may take --request-timeout)"


@asynccontextmanager
async def opened(api: Api) -> AsyncIterator[KubeCluster]:
    """Give the cluster that the options lead to. Raises ConfigError; Retryable with a remedy where nobody answers."""
    credentials = credentials_for(api.used, os.environ)
    try:
        async with KubeCluster(credentials, timeout=api.timeout, slow=_teller()) as cluster:
            yield cluster
    except Retryable as error:
        if error.code is not None:
            raise
        raise Retryable(f"{error}; {_REMEDY}") from error


def _teller() -> Callable[[str], None]:
    """Return what says, once for each server and beside the output, that it is waited for."""
    said: set[str] = set()

    def tell(server: str) -> None:
        if server not in said:
            said.add(server)
            typer.echo(f"drasim: waiting for {server or 'the credentials of the kubeconfig'} ...", err=True)

    return tell
