"""What README.md tells people to run and to write is true of this tree."""

import asyncio
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dra_plugin.mirror import Mirror
from dra_plugin.resources import NODE, RESOURCE_SLICE, Node, ObjectMeta
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.kubelet import FakeKubelet
from drasim.config import Config, show
from tests.chart.conftest import CHART

ROOT = CHART.parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "examples/README.md")


def flat(node: object, place: str = "") -> set[str]:
    """Return the dotted keys of a configuration."""
    if not isinstance(node, dict):
        return {place}
    return {key for name, member in node.items() for key in flat(member, f"{place}.{name}".lstrip("."))}


def test_make_targets_exist() -> None:
    """Every `make` command in the documents is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"(?:`|^ {4})make ([a-z]+)", (ROOT / document).read_text(), re.MULTILINE)
    }
    assert (named - targets, "demo" in named) == (set(), True)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """Every relative link in a document leads to a file of the tree."""
    path = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_table_of_the_configuration_is_complete() -> None:
    """Each key of the configuration has its row, and no row is of a key that does not exist."""
    section = README.partition("## Configure it")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w.]+)`", " ".join(rows))) == flat(show(Config()))


async def test_the_driver_of_the_readme_runs(tmp_path: Path) -> None:
    """The example driver is registered by a kubelet, and publishes its device."""
    source = re.search(r"```python\n(.+?)```", README, re.DOTALL)
    assert source is not None
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins_registry").mkdir()
    cluster = FakeCluster()
    await cluster.create(NODE, Node(metadata=ObjectMeta(name="node-a")))
    names: dict[str, Any] = {}
    text = source[1].replace("/var/lib/kubelet/plugins", str(tmp_path / "plugins"))
    exec(compile(text, "toy.py", "exec"), names)  # noqa: S102 - our own README
    names |= {"KubeCluster": lambda _: nullcontext(cluster), "in_cluster": lambda _: None}
    async with FakeKubelet(tmp_path / "plugins_registry") as kubelet, asyncio.TaskGroup() as tasks:
        driver = tasks.create_task(names["main"]("node-a", "pod-1"))
        await kubelet.plugin("toy.example.com")
        mirror = Mirror(cluster, RESOURCE_SLICE)
        watching = tasks.create_task(mirror.run())
        found = tuple((await mirror.objects.wait(bool)).values())
        devices = [device.name for entry in found for device in entry.spec.devices or ()]
        assert (found[0].spec.pool.name, devices) == ("node-a-toys", ["toy-0"])
        driver.cancel()
        watching.cancel()


def test_commands_of_the_readme_are_there() -> None:
    """Scripts and files that the README names exist, and scripts can be run."""
    for name in re.findall(r"\b((?:hack|charts|examples)/[\w./-]+\w)", README):
        assert (ROOT / name).exists(), name
    assert all(shutil.which(name, path=str(ROOT / "hack")) for name in ("kubectl", "helm", "demo", "provider"))
