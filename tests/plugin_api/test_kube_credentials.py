"""Where the API server is and who we are: Pods and kubeconfigs."""

import base64
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from dra_plugin.errors import Retryable, SetupError
from dra_plugin.kube import KubeCluster, from_kubeconfig, in_cluster
from dra_plugin.resources import NODE

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("c", "other")]
    clusters = [
        {"name": "c", "cluster": cluster},
        {"name": "other", "cluster": {"server": "http://127.0.0.1:9"}},
    ]
    text = {"current-context": "c", "contexts": contexts, "clusters": clusters, "users": [{"name": "u", "user": user}]}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **text}))
    return path


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
@needs_openssl
async def test_the_address_of_a_pod(tmp_path: Path, host: str, url: str) -> None:
    """The environment says where; the CA of the service account is all that is trusted."""
    shutil.copy(authority(tmp_path), tmp_path / "ca.crt")
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    endpoint = await in_cluster(env, tmp_path).endpoint()
    assert endpoint.url == url
    assert endpoint.tls is not None
    assert len(endpoint.tls.get_ca_certs()) == 1


def test_outside_a_pod() -> None:
    """Without the environment of a Pod there is nothing to try."""
    with pytest.raises(SetupError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({})


async def test_tokens_are_trimmed(tmp_path: Path) -> None:
    """A line break at the end of the file is no part of the token."""
    (tmp_path / "token").write_text("abc\n")
    env = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
    assert await in_cluster(env, tmp_path).authorization() == "Bearer abc"


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    """Server and token come from the current context, or from the one that is named."""
    path = kubeconfig(tmp_path, {"server": "http://127.0.0.1:8001/"}, {"token": "abc"})
    assert (await from_kubeconfig(path).endpoint()).url == "http://127.0.0.1:8001"
    assert await from_kubeconfig(path).authorization() == "Bearer abc"
    assert (await from_kubeconfig(path, "other").endpoint()).url == "http://127.0.0.1:9"


async def test_a_kubeconfig_with_a_plugin(tmp_path: Path) -> None:
    """A credential plugin is run for the token."""
    status = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"made"}}'
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    path = kubeconfig(tmp_path, {"server": "http://h"}, {"exec": {**command, "args": ["-c", f"print('{status}')"]}})
    assert await from_kubeconfig(path).authorization() == "Bearer made"


@pytest.mark.parametrize("text", ["", "{", "kind: Config", "[]"])
async def test_a_broken_kubeconfig(tmp_path: Path, text: str) -> None:
    """A file that is none, or a context that is missing, is named."""
    path = tmp_path / "kubeconfig"
    with pytest.raises(SetupError, match="kubeconfig"):
        await from_kubeconfig(path).endpoint()
    path.write_text(text)
    with pytest.raises(SetupError, match="kubeconfig"):
        await from_kubeconfig(path).endpoint()


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """Make a CA; return its certificate."""
    key, cert = folder / "ca.key", folder / "ca.pem"
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=ca", "-days", "9"
    )
    return cert


def signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for ``name`` that the CA in ``folder`` signs; return it and its key."""
    key, request, cert, names = (folder / f"{name}.{end}" for end in ("key", "csr", "pem", "ext"))
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:kubernetes\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    openssl(
        *("x509", "-req", "-in", request, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-out", cert),
        *("-days", "9", "-CAcreateserial", "-extfile", names),
    )
    return cert, key


@asynccontextmanager
async def tls_server(folder: Path) -> AsyncIterator[int]:
    """Serve one Node to clients whose certificate our CA signed; yields the port."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "x"}})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(*signed(folder, "server"))
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@needs_openssl
async def test_client_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates in a kubeconfig open the door, a wrong CA does not, and no key stays on disk."""
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    ca = authority(tmp_path)
    cert, key = signed(tmp_path, "client")
    user = {"client-certificate-data": inline(cert), "client-key-data": inline(key)}
    async with tls_server(tmp_path) as port:
        server = f"https://127.0.0.1:{port}"
        for cluster, works in (
            ({"server": server, "certificate-authority-data": inline(ca)}, True),
            ({"server": server, "certificate-authority": str(ca), "tls-server-name": "kubernetes"}, True),
            ({"server": server, "certificate-authority-data": inline(ca), "tls-server-name": "other"}, False),
            ({"server": server, "insecure-skip-tls-verify": True}, True),
            ({"server": server}, False),
        ):
            assert await reaches(kubeconfig(tmp_path, cluster, user)) is works
        assert list(spool.rglob("*")) == []
        assert not await reaches(kubeconfig(tmp_path, {"server": server, "insecure-skip-tls-verify": True}, {}))


async def reaches(path: Path) -> bool:
    async with KubeCluster(from_kubeconfig(path)) as cluster:
        try:
            return await cluster.get(NODE, "x") is not None
        except Retryable:
            return False
