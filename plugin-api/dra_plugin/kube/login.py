"""Credential plugins: the program that a kubeconfig names is run, and what it prints is taken for the user's login.

The ``kubernetes`` package runs them too. There a plugin that fails is a login without a token, one that is no longer
waited for runs on, and what it says to people is never seen.
"""

import asyncio
import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import msgspec

from dra_plugin.errors import SetupError

__all__ = ["login"]


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Plugin(msgspec.Struct, rename="camel"):
    """``users[].user.exec`` of a kubeconfig."""

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    interactive_mode: str = "IfAvailable"
    install_hint: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _Credential(msgspec.Struct):
    status: _Status


async def login(plugin: Mapping[str, Any]) -> Mapping[str, str]:
    """Run the plugin; return the login as keys of a kubeconfig's user. Raises SetupError; cancelled, it ends it."""
    try:
        asked = msgspec.convert(plugin, _Plugin)
    except msgspec.ValidationError as error:
        raise SetupError(f"credential plugin: {error}") from error
    with TemporaryFile() as output:  # a pipe might be held open by what the plugin starts
        code = await _run(asked, output)
        output.seek(0)
        printed = output.read()
    if code:
        raise SetupError(f"credential plugin {asked.command}: it ended with {code}")
    return _login(asked, printed)


async def _run(plugin: _Plugin, output: BinaryIO) -> int:
    """Return the exit code. What the plugin asks and complains of reaches the user, as with kubectl."""
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
    given = {each.name: each.value for each in plugin.env or ()}
    given["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    env = {**os.environ, **given}  # noqa: TID251 - a child inherits all of it
    stdin = None if interactive else asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *(plugin.args or ()), env=env, stdin=stdin, stdout=output
        )
    except OSError as error:
        hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise SetupError(f"credential plugin {plugin.command}: {error.strerror or error}{hint}") from error
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _login(plugin: _Plugin, printed: bytes) -> Mapping[str, str]:
    try:
        status = msgspec.json.decode(printed, type=_Credential).status
    except msgspec.MsgspecError as error:  # its text has no part of what was printed
        raise SetupError(f"credential plugin {plugin.command}: it printed no ExecCredential ({error})") from error
    if status.token:
        return {"token": status.token}
    if status.client_certificate_data and status.client_key_data:
        pair = {"certificate": status.client_certificate_data, "key": status.client_key_data}
        return {f"client-{name}-data": b64encode(pem.encode()).decode() for name, pem in pair.items()}
    raise SetupError(f"credential plugin {plugin.command}: it printed neither a token nor a certificate with its key")
