"""Keys and certificates of a cluster, made by openssl: one authority for all, one for the front proxy."""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.topology import API_ADDRESS, SERVICE_ADDRESS, Node

CA = "ca"
FRONT_CA = "front-proxy-ca"
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True)
class Certificate:
    """A certificate to make; with names it is a server's, without a client's. The groups of a client are its `O`."""

    file: str
    common_name: str
    organization: str = ""
    names: tuple[str, ...] = ()
    authority: str = CA

    @property
    def subject(self) -> str:
        """Return the subject as openssl takes it."""
        group = f"/O={self.organization}" if self.organization else ""
        return f"{group}/CN={self.common_name}"

    @property
    def extensions(self) -> tuple[str, ...]:
        """Return usage and names as openssl takes them."""
        usage = "serverAuth" if self.names else "clientAuth"
        names = (f"subjectAltName={','.join(self.names)}",) if self.names else ()
        return (f"extendedKeyUsage={usage}", "basicConstraints=critical,CA:FALSE", *names)


def certificates(nodes: Sequence[Node]) -> tuple[Certificate, ...]:
    """Return every certificate of a cluster with these nodes."""
    api_names = [f"DNS:{name}" for name in (*SERVICE_NAMES, "localhost")]
    api_addresses = [f"IP:{address}" for address in ("127.0.0.1", API_ADDRESS, SERVICE_ADDRESS)]
    return (
        Certificate("apiserver", "kube-apiserver", names=(*api_names, *api_addresses)),
        Certificate("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
        Certificate("front-proxy", "front-proxy", authority=FRONT_CA),
        Certificate("admin", "admin", "system:masters"),
        Certificate("kube-controller-manager", "system:kube-controller-manager"),
        Certificate("kube-scheduler", "system:kube-scheduler"),
        *(certificate for node in nodes for certificate in _of_node(node)),
    )


def _of_node(node: Node) -> tuple[Certificate, Certificate]:
    user = f"system:node:{node.name}"
    names = (f"DNS:{node.name}", f"IP:{node.address}")
    return (
        Certificate(f"kubelet-{node.index}", user, "system:nodes"),
        Certificate(f"kubelet-{node.index}-serving", user, "system:nodes", names),
    )


def make(folder: Path, nodes: Sequence[Node]) -> None:
    """Make all keys and certificates of a cluster in this folder, which only root can read."""
    folder.mkdir(mode=0o700)
    with ThreadPoolExecutor() as pool:
        keys = [pool.submit(_service_account_keys, folder)]
        authorities = [pool.submit(_authority, folder, name) for name in (CA, FRONT_CA)]
        for authority in authorities:
            authority.result()
        signed = [pool.submit(_signed, folder, certificate) for certificate in certificates(nodes)]
        for done in (*keys, *signed):
            done.result()


def _authority(folder: Path, name: str) -> None:
    extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
    _request(folder, name, f"/CN={name}", extensions)


def _signed(folder: Path, certificate: Certificate) -> None:
    authority = folder / certificate.authority
    signer = ("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")
    _request(folder, certificate.file, certificate.subject, certificate.extensions, signer)


def _request(folder: Path, name: str, subject: str, extensions: Sequence[str], signer: Sequence[str] = ()) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{folder / name}.key")
    # Without a configuration file of the machine, which could add extensions a second time.
    options = ("-config", "/dev/null", "-days", "3650", "-subj", subject, "-out", f"{folder / name}.crt")
    added = [word for extension in extensions for word in ("-addext", extension)]
    _openssl("req", "-x509", *key, *options, *signer, *added)


def _service_account_keys(folder: Path) -> None:
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(folder / "sa.key"))
    _openssl("pkey", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub"))


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"openssl {arguments[0]} failed: {done.stderr.strip()}"
        raise ClusterError(msg)
