"""Where the API server is and who we are: inside a Pod, by kubeconfig, or plain HTTP.

Nothing is read before the first request. Tokens are never part of an error's text.
"""

import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import msgspec

from dra_plugin.errors import Retryable, SetupError

__all__ = ["Credentials", "Endpoint", "from_kubeconfig", "in_cluster", "plain"]

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_LIFETIME = 60.0  # seconds; the kubelet rotates the file, a read is cheap
_LOGIN_LIFETIME = 600.0  # seconds; a plugin may have to be run for it


class Endpoint(msgspec.Struct, frozen=True):
    """How to reach the API server: base URL without a slash at the end, TLS, name in its certificate, proxy."""

    url: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None


class Credentials(Protocol):
    """What a connection needs. ``lifetime`` is how long (seconds) an authorization may be used without asking again."""

    lifetime: float

    async def endpoint(self) -> Endpoint:
        """Return where to connect; asked once."""
        ...

    async def authorization(self) -> str | None:
        """Return the Authorization header, read afresh, or None when the connection needs none."""
        ...


def in_cluster(env: Mapping[str, str], folder: Path = _SERVICE_ACCOUNT) -> Credentials:
    """Return the credentials of a Pod's service account.

    ``env`` is the process's environment (KUBERNETES_SERVICE_HOST and _PORT). Raises SetupError outside a Pod.
    """
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SetupError("not in a Pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    return _ServiceAccount(f"https://{f'[{host}]' if ':' in host else host}:{port}", folder)


def from_kubeconfig(path: str | Path, context: str | None = None) -> Credentials:
    """Return the credentials of a kubeconfig's context (None = the current one): certificates, tokens, exec plugins."""
    return _Kubeconfig(Path(path), context)


def plain(url: str) -> Credentials:
    """Return credentials for an API server that asks for none (a FakeCluster, ``kubectl proxy``)."""
    return _Plain(url.rstrip("/"))


class _Plain:
    lifetime = float("inf")

    def __init__(self, url: str) -> None:
        self._url = url

    async def endpoint(self) -> Endpoint:
        return Endpoint(self._url)

    async def authorization(self) -> str | None:
        return None


class _ServiceAccount:
    lifetime = _TOKEN_LIFETIME

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    async def endpoint(self) -> Endpoint:
        try:
            return Endpoint(self._url, _tls(self._folder / "ca.crt"))
        except OSError as error:  # ssl.SSLError is one
            raise Retryable(f"service account CA: {error}") from error

    async def authorization(self) -> str | None:
        try:
            token = (self._folder / "token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Retryable(f"service account token: {type(error).__name__} at {self._folder / 'token'}") from error
        return f"Bearer {token}"


class _Kubeconfig:
    lifetime = _LOGIN_LIFETIME

    def __init__(self, path: Path, context: str | None) -> None:
        self._path, self._context = path, context
        self._endpoint: Endpoint | None = None

    async def endpoint(self) -> Endpoint:
        return self._endpoint or (await self._read())[0]

    async def authorization(self) -> str | None:
        self._endpoint, token = await self._read()  # both at once: a plugin may ask the user each time
        return token

    async def _read(self) -> tuple[Endpoint, str | None]:
        from kubernetes.aio.config import kube_config  # noqa: F401 - takes long, and no key is on the disk yet

        with _folder() as folder:
            loaded = await self._load(folder)
            return self._endpoint_of(loaded), loaded.api_key.get("BearerToken")

    def _endpoint_of(self, loaded: SimpleNamespace) -> Endpoint:
        try:
            tls = _tls_of(loaded)
        except OSError as error:  # ssl.SSLError is one
            raise SetupError(f"kubeconfig {self._path}: certificates: {error}") from error
        return Endpoint(loaded.host.rstrip("/"), tls, loaded.tls_server_name, loaded.proxy)

    async def _load(self, folder: str) -> SimpleNamespace:
        """Let the ``kubernetes`` package read the file; it stores certificates as files in ``folder``."""
        from kubernetes.aio.config import ConfigException, kube_config

        reading: Any = kube_config  # ships no types
        found = SimpleNamespace(host="", api_key={}, ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True)
        found.tls_server_name = found.proxy = None
        try:
            merged = reading.KubeConfigMerger(str(self._path)).config
            loader = reading.KubeConfigLoader(merged, self._context, config_base_path=None, temp_file_path=folder)
            await _log_in(loader._user)  # noqa: SLF001 - else the package runs plugins in its own way
            await loader.load_and_set(found)
        except (ConfigException, OSError, SetupError) as error:
            raise SetupError(f"kubeconfig {self._path}: {error}") from error
        except Exception as error:
            raise SetupError(f"kubeconfig {self._path}: it is no kubeconfig ({type(error).__name__})") from error
        finally:
            reading._temp_files.clear()  # noqa: SLF001 - else the next load gets files that are gone
        if not found.host:
            raise SetupError(f"kubeconfig {self._path}: the context's cluster has no server")
        return found


async def _log_in(user: Any) -> None:  # noqa: ANN401 - a node of the package's own tree, or None
    """Put what the user's credential plugin prints in its place."""
    if user and "exec" in user:
        from dra_plugin.kube.login import login

        user.value.update(await login(user.value.pop("exec")))


def _folder() -> AbstractContextManager[str]:
    """Return a folder for one load: no key stays on disk."""
    from tempfile import TemporaryDirectory  # with kubeconfigs only, and costs start-up time

    return TemporaryDirectory(prefix="dra-plugin-")


def _tls_of(loaded: SimpleNamespace) -> ssl.SSLContext | None:
    if not loaded.host.startswith("https"):
        return None
    context = _tls(loaded.ssl_ca_cert)
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if loaded.cert_file:
        context.load_cert_chain(loaded.cert_file, loaded.key_file)
    return context


def _tls(ca: Path | str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # since Python 3.13; many clusters' CAs lack what it asks for
    return context
