"""Helm as hack/cluster builds it, or the one on PATH, for tests that need no cluster."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster import builder
from hack.cluster.errors import ClusterError
from hack.cluster.products import PRODUCTS

CHART = Path(__file__).resolve().parents[2] / "charts" / "drasim"
Object = dict[str, Any]
Render = Callable[..., list[Object]]
Helm = Callable[..., "subprocess.CompletedProcess[str]"]


def binary() -> str | None:
    """Return the Helm that is built already, else one on PATH, else None; nothing is built for this."""
    product = next(product for product in PRODUCTS if product.name == "helm")
    try:
        built = builder.target(product, builder.Go.found(product.folder)) / "helm"
    except ClusterError:
        return shutil.which("helm")
    return str(built) if built.exists() else shutil.which("helm")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run Helm with an empty home and return what came of it."""
    path = binary()
    if path is None:
        pytest.skip("no Helm: python3 -m hack.cluster build makes it, with Go")
    home = str(tmp_path_factory.mktemp("helm"))

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
        return subprocess.run([path, *words], capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.fixture
def render(helm: Helm) -> Render:
    """Return the objects that the chart makes with some values given as `key=value`."""

    def objects(*values: str) -> list[Object]:
        sets = [word for value in values for word in ("--set-json", value)]
        done = helm("template", "drasim", str(CHART), "--namespace", "drasim-system", "--kube-version", "1.37.2", *sets)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return objects


def of(objects: list[Object], kind: str, name: str | None = None) -> list[Object]:
    """Return the objects of a kind, of one name if given."""
    return [found for found in objects if found["kind"] == kind and name in (None, found["metadata"]["name"])]


def rights(objects: list[Object], kind: str, name: str) -> dict[tuple[str, ...], list[str]]:
    """Return the verbs of a role: by group, resources, and the names that they are limited to."""
    [role] = of(objects, kind, name)
    return {(*r["apiGroups"], *r["resources"], *r.get("resourceNames", ())): r["verbs"] for r in role["rules"]}
