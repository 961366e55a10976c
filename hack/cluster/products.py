"""What is built: one product for each Go module below `go/`."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.folders import SOURCE

MODULES = SOURCE / "go"
CONTAINERD = "github.com/containerd/containerd/v2"
PLUGINS = "github.com/containernetworking/plugins/plugins"
KUBE_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "kube-catalog")
KUBE_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Product:
    """One `go build`: packages of one module, the flags they need, and the names their binaries get."""

    name: str
    source: str
    """The module whose version, as in go.mod, is the version of the product."""
    packages: tuple[str, ...]
    cgo: bool = False
    tags: str = ""
    stamps: tuple[str, ...] = ()
    """Variables set by the linker; {version}, {major} and {minor} are filled in."""
    renamed: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Further names of a binary, as symbolic links."""

    @property
    def folder(self) -> Path:
        """Return the folder of the module."""
        return MODULES / self.name


PRODUCTS = (
    Product(
        "kube",
        "k8s.io/kubernetes",
        (".",),
        stamps=(
            f"{KUBE_VERSION}.gitVersion={{version}}",
            f"{KUBE_VERSION}.gitMajor={{major}}",
            f"{KUBE_VERSION}.gitMinor={{minor}}",
            f"{KUBE_VERSION}.gitTreeState=clean",
            f"{KUBE_VERSION}.gitCommit=0000000",
            f"{KUBE_VERSION}.buildDate=2026-11-30T00:00:00Z",
        ),
        links=dict.fromkeys(KUBE_NAMES, "kube"),
    ),
    Product("etcd", "go.etcd.io/etcd/server/v3", ("go.etcd.io/etcd/server/v3",), renamed={"server": "etcd"}),
    Product(
        "containerd",
        CONTAINERD,
        tuple(f"{CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
        tags="no_btrfs",
        stamps=(f"{CONTAINERD}/version.Version={{version}}",),
    ),
    Product("runc", "github.com/opencontainers/runc", ("github.com/opencontainers/runc",), cgo=True, tags="seccomp"),
    Product(
        "cni",
        "github.com/containernetworking/plugins",
        tuple(f"{PLUGINS}/{name}" for name in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")),
    ),
    Product(
        "helm",
        "helm.sh/helm/v4",
        ("helm.sh/helm/v4/cmd/helm",),
        stamps=("helm.sh/helm/v4/internal/version.version={version}",),
    ),
)


def version_in(go_mod: str, module: str) -> str:
    """Return the version that the text of a go.mod requires of a module, for example `v1.37.2`."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if found is None:
        msg = f"go.mod does not require {module}"
        raise ClusterError(msg)
    return found[1]


def flags(product: Product) -> tuple[str, ...]:
    """Return the flags of `go build` and `go list` for a product: stripped, without paths of this machine."""
    version = version_in((product.folder / "go.mod").read_text(), product.source)
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = [stamp.format(version=version, major=major, minor=minor) for stamp in product.stamps]
    linker = " ".join(["-s -w", *(f"-X {stamp}" for stamp in stamps)])
    tags = ("-tags", product.tags) if product.tags else ()
    return ("-trimpath", "-buildvcs=false", *tags, "-ldflags", linker)


def environment(product: Product) -> dict[str, str]:
    """Return the environment of the go command; GOFLAGS of the user would change what the cache key stands for."""
    return {**os.environ, "CGO_ENABLED": "1" if product.cgo else "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
