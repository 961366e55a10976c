"""What is built, and with which flags."""

import re

import pytest

from hack.cluster.errors import ClusterError
from hack.cluster.products import PRODUCTS, flags, version_in

GO_MOD = """module x

require k8s.io/kubernetes v1.37.2
replace k8s.io/api => k8s.io/api v0.37.2

require (
	github.com/containerd/containerd/v2 v2.4.2 // indirect
)
"""


def test_versions_are_read_from_go_mod() -> None:
    """The version of a product is what its go.mod requires, in a line or in a block."""
    assert version_in(GO_MOD, "k8s.io/kubernetes") == "v1.37.2"
    assert version_in(GO_MOD, "github.com/containerd/containerd/v2") == "v2.4.2"


def test_missing_requirement_is_named() -> None:
    """A go.mod without the product's module is an error that names it."""
    with pytest.raises(ClusterError, match=r"helm.sh/helm/v4"):
        version_in(GO_MOD, "helm.sh/helm/v4")


def test_kubernetes_is_stamped_with_its_version() -> None:
    """Without the version in the binary, kubectl and everything that parses it fail."""
    kube = next(product for product in PRODUCTS if product.name == "kube")
    linker = flags(kube)[-1]
    version = version_in((kube.folder / "go.mod").read_text(), "k8s.io/kubernetes")
    assert f"version.gitVersion={version} " in linker
    assert re.search(r"gitMajor=1 .*gitMinor=\d+ ", linker)


def test_staging_modules_follow_kubernetes() -> None:
    """Every staging module that Kubernetes replaces is replaced by the release of the same name."""
    text = (PRODUCTS[0].folder / "go.mod").read_text()
    version = version_in(text, "k8s.io/kubernetes").replace("v1.", "v0.", 1)
    replaced = re.findall(r"^replace (\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(old, now) for old, _, now in replaced} == {(new, version) for _, new, _ in replaced}


def test_go_modules_name_no_place() -> None:
    """go.mod and go.sum hold names, versions and hashes: no address of a registry, no folder of a machine."""
    for product in PRODUCTS:
        text = (product.folder / "go.mod").read_text() + (product.folder / "go.sum").read_text()
        assert not re.search(r"://|=> [./]", text), product.name
