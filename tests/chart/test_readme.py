"""What README.md tells people to run and to write is true of this tree."""

import asyncio
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dra_plugin.mirror import Mirror
from dra_plugin.resources import NODE, RESOURCE_SLICE, Node, ObjectMeta
from dra_plugin.testing import FakeCluster
from dra_plugin.testing.kubelet import FakeKubelet
from drasim.cli.commands import app
from drasim.config import Config, for_controller, for_node, load, show
from drasim.faults.manifests import read_manifests
from tests.chart.conftest import CHART, Helm, Object

ROOT = CHART.parents[1]
README = (ROOT / "README.md").read_text()
TABLES = ("problems.effects",)
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "examples/README.md")


def flat(node: object, place: str = "") -> set[str]:
    """Return the dotted keys of a configuration; a table whose keys are the user's is one of them."""
    if not isinstance(node, dict) or place in TABLES:
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


BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.+?)```", README, re.DOTALL)]


@pytest.mark.parametrize("values", BLOCKS, ids=lambda values: ",".join(values["config"]))
def test_the_values_of_the_readme_are_accepted(helm: Helm, tmp_path: Path, values: Object) -> None:
    """The chart takes them, and what it makes of them is a configuration that node and controller can run with."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", "drasim", str(CHART), "--namespace", "n", "--values", str(file), "--kube-version", "1.37.2")
    assert done.returncode == 0, done.stderr
    [config_map] = [
        found for found in yaml.safe_load_all(done.stdout) if found and found["kind"] == "ConfigMap" and "data" in found
    ]
    file.write_text(config_map["data"]["config.yaml"])
    config = for_controller(load(file, {"nodeName": "node-a"}))
    assert for_node(config).controller.name == "drasim-controller"
    given = values["config"].get("controller", {}).get("evict", [])
    assert [entry["problem"] for entry in given] in ([], [entry.problem for entry in config.controller.evict])


def test_the_fault_commands_of_the_readme_run(tmp_path: Path) -> None:
    """Each `drasim fault` line does what it is there for, here on a file instead of a cluster."""
    lines = re.findall(r"^ {4}(?:hack/)?drasim (fault .+)$", README, re.MULTILINE)
    assert {line.split()[1] for line in lines} == {"inject", "list", "clear", "run"}
    for line in lines:
        words = [*line.split(), "--file", str(tmp_path / "faults.yaml"), *(["--dry-run"] if " run " in line else [])]
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}{done.exception}"
        assert done.output.strip(), line
    assert [fault.spec.kind for fault in read_manifests(tmp_path / "faults.yaml")] == ["link-flap"]


def test_commands_of_the_readme_are_there() -> None:
    """Scripts and files that the README names exist, and scripts can be run."""
    for name in re.findall(r"\b((?:hack|charts|examples)/[\w./-]+\w)", README):
        assert (ROOT / name).exists(), name
    assert all(
        shutil.which(name, path=str(ROOT / "hack")) for name in ("kubectl", "helm", "drasim", "demo", "provider")
    )
