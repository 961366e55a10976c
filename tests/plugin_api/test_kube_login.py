"""Credential plugins of a kubeconfig: how they are run, what they print, and how they end."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dra_plugin.errors import SetupError
from dra_plugin.kube import Credentials, from_kubeconfig
from tests.plugin_api.test_kube_credentials import (
    authority,
    inline,
    kubeconfig,
    needs_openssl,
    reaches,
    signed,
    tls_server,
)

API = "client.authentication.k8s.io/v1"
STARTED = 10.0  # seconds


def running(folder: Path, program: str, **more: Any) -> Credentials:  # noqa: ANN401 - keys of a kubeconfig
    """Return credentials that a plugin makes which is this Python program."""
    plugin = {"apiVersion": API, "command": sys.executable, "args": ["-c", program], **more}
    return from_kubeconfig(kubeconfig(folder, {"server": "http://h"}, {"exec": plugin}))


def printing(**status: str) -> str:
    return f"print({json.dumps(json.dumps({'apiVersion': API, 'kind': 'ExecCredential', 'status': status}))})"


async def test_it_is_run_once_for_both(tmp_path: Path) -> None:
    """Where to connect and as whom come from one run, since a plugin may ask the user; then it is asked afresh."""
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); "
    credentials = running(tmp_path, count + printing(token="made"))
    assert await credentials.authorization() == "Bearer made"
    assert (await credentials.endpoint()).url == "http://h"
    assert (tmp_path / "runs").read_text() == "x"
    await credentials.authorization()
    assert (tmp_path / "runs").read_text() == "xx"


async def test_what_it_is_told(tmp_path: Path) -> None:
    """It inherits the environment, with what the kubeconfig adds and what the protocol tells."""
    token = "os.environ['PATH'] + os.environ['MINE'] + json.loads(os.environ['KUBERNETES_EXEC_INFO'])['apiVersion']"
    program = f"import json, os; print(json.dumps({{'status': {{'token': {token}}}}}))"
    credentials = running(tmp_path, program, env=[{"name": "MINE", "value": "-mine-"}])
    assert await credentials.authorization() == f"Bearer {os.environ['PATH']}-mine-{API}"


@needs_openssl
async def test_a_certificate(tmp_path: Path) -> None:
    """What it prints may be a client certificate with its key."""
    ca = authority(tmp_path)
    cert, key = signed(tmp_path, "client")
    program = printing(clientCertificateData=cert.read_text(), clientKeyData=key.read_text())
    plugin = {"apiVersion": API, "command": sys.executable, "args": ["-c", program]}
    async with tls_server(tmp_path) as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": inline(ca)}
        assert await reaches(kubeconfig(tmp_path, cluster, {"exec": plugin}))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("import sys; sys.exit(3)", "it ended with 3"),
        ("print('secret')", "it printed no ExecCredential"),
        (printing(), "neither a token nor a certificate"),
        (printing(clientCertificateData="secret"), "neither a token nor a certificate"),
    ],
)
async def test_one_that_fails(tmp_path: Path, program: str, text: str) -> None:
    """It is no login without a token, which the server would refuse for another reason; nothing printed is repeated."""
    with pytest.raises(SetupError, match=f"kubeconfig {tmp_path}.*credential plugin .*{text}") as caught:
        await running(tmp_path, program).authorization()
    assert "secret" not in str(caught.value)


async def test_one_that_is_not_there(tmp_path: Path) -> None:
    """The error has the hint that the kubeconfig gives."""
    credentials = running(tmp_path, "", command=str(tmp_path / "none"), installHint="get it at http://x")
    with pytest.raises(SetupError, match=r"none: No such file or directory; get it at http://x"):
        await credentials.authorization()
    with pytest.raises(SetupError, match=r"credential plugin: .*command"):
        await running(tmp_path, "", command=1).authorization()


async def test_it_says_much(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What it says beside the login reaches the user, and however much it is nobody waits for ever."""
    program = "import sys; sys.stderr.write('log in at http://x' + ' ' * 1_000_000); " + printing(token="t")
    assert await running(tmp_path, program).authorization() == "Bearer t"
    assert "log in at http://x" in capfd.readouterr().err


async def test_nobody_waits_any_more(tmp_path: Path) -> None:
    """One that is not waited for any more is ended."""
    pid = tmp_path / "pid"
    program = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(running(tmp_path, program).authorization())
        async with asyncio.timeout(STARTED):
            while not (pid.exists() and pid.read_text()):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        task.cancel()
    with suppress(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
        raise AssertionError(f"{pid.read_text()} still runs")
