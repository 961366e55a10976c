"""hack/provider and hack/demo, with stand-ins for kind, docker, kubectl, Helm and Python on PATH."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.cluster.folders import CHECKOUT

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$STAND_IN_LOG"
case "$(basename "$0") $*" in
  "kubectl config current-context") echo my-context ;;
  "kind get clusters") echo "$STAND_IN_KIND"; seq ${STAND_IN_MORE:-0} ;;
  "docker image inspect"*) echo sha256:feed ;;
  "python3 -m hack.image"*) echo /somewhere/image-0123/drasim.tar ;;
  "python3 -m hack.tour"*) echo "toured with $KUBECTL and $IMAGE" ;;
esac
"""


@dataclass
class Machine:
    """A PATH with stand-ins in front, and what they were asked."""

    folder: Path

    def run(self, script: str, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        environment = {"PATH": path, "STAND_IN_LOG": str(self.log), "STAND_IN_KIND": "", **variables}
        command: list[str | Path] = [CHECKOUT / "hack" / script, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def provide(self, provider: str, **variables: str) -> dict[str, str]:
        done = self.run("provider", provider, str(self.folder / "out"), **variables)
        assert done.returncode == 0, done.stderr
        lines = (self.folder / "out").read_text().splitlines()
        return {key: shlex.split(value)[0] for key, _, value in (line.partition("=") for line in lines)}

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().splitlines()

    def without(self, name: str) -> "Machine":
        (self.folder / "bin" / name).unlink()
        return self


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which every tool is there and does nothing."""
    (tmp_path / "bin").mkdir()
    for name in ("kind", "docker", "kubectl", "helm", "python3"):
        tool = tmp_path / "bin" / name
        tool.write_text(STAND_IN)
        tool.chmod(0o755)
    return Machine(tmp_path)


def test_local(machine: Machine) -> None:
    """The default brings the launcher's cluster up, builds the image and loads it."""
    given = machine.provide("local")
    assert machine.asked == [
        "python3 -m hack.cluster up",
        "python3 -m hack.image",
        "python3 -m hack.cluster load /somewhere/image-0123/drasim.tar",
    ]
    assert (given["KUBECTL"], given["HELM"], given["STOP"]) == ("hack/kubectl", "hack/helm", "make down")
    assert given["DRASIM"] == "hack/drasim"
    assert given["IMAGE"].startswith("localhost/drasim:")
    assert (given["IMAGE_BUILD"], given["POD_IMAGE"]) == ("image-0123", "localhost/busybox:test")


def test_current(machine: Machine) -> None:
    """A cluster that is there already is only looked at; the image is the user's."""
    given = machine.provide("current", IMAGE="registry.example/drasim:1")
    assert machine.asked == ["kubectl config current-context"]
    assert (given["KUBECTL"], given["HELM"], given["DRASIM"]) == ("kubectl", "helm", "drasim")
    assert (given["IMAGE"], given["POD_IMAGE"]) == ("registry.example/drasim:1", "busybox:1.37")


def test_current_needs_an_image(machine: Machine) -> None:
    """Without an image that the nodes can pull there is nothing to install; the message says how to make one."""
    done = machine.run("provider", "current", str(machine.folder / "out"))
    assert done.returncode == 2
    assert "IMAGE=" in done.stderr
    assert "docker build -f hack/image/Containerfile" in done.stderr


def test_kind_creates_a_cluster(machine: Machine) -> None:
    """A kind cluster is created, the image built with Docker and loaded into it."""
    given = machine.provide("kind", KIND_NODE_IMAGE="node:v1.37.2")
    assert machine.asked[1] == "kind create cluster --name drasim --image node:v1.37.2 --wait 120s"
    assert machine.asked[2] == f"docker build --file hack/image/Containerfile --tag {given['IMAGE']} ."
    assert machine.asked[3] == f"kind load docker-image {given['IMAGE']} --name drasim"
    assert (given["KUBECTL"], given["DRASIM"]) == ("kubectl --context kind-drasim", "drasim")
    assert (given["IMAGE_BUILD"], given["STOP"]) == ("sha256:feed", "kind delete cluster --name drasim")


def test_kind_uses_the_cluster_that_is_there(machine: Machine) -> None:
    """A second demo goes to the same kind cluster."""
    machine.provide("kind", KIND_CLUSTER="mine", STAND_IN_KIND="other\nmine")
    assert machine.asked[1] == "kind export kubeconfig --name mine"
    assert not any("create cluster" in line for line in machine.asked)


def test_kind_with_many_clusters(machine: Machine) -> None:
    """A cluster is found also when kind has not yet printed all of them."""
    machine.provide("kind", KIND_CLUSTER="mine", STAND_IN_KIND="mine", STAND_IN_MORE="200000")
    assert machine.asked[1] == "kind export kubeconfig --name mine"


def test_a_missing_tool_is_named(machine: Machine) -> None:
    """Where kind is missing, one line says so."""
    done = machine.without("kind").run("provider", "kind", str(machine.folder / "out"))
    assert (done.returncode, done.stderr.strip()) == (3, "CLUSTER=kind needs kind, which is not on PATH")


def test_an_unknown_provider_is_refused(machine: Machine) -> None:
    """A misspelt CLUSTER is refused with what is allowed."""
    done = machine.run("provider", "minikube", str(machine.folder / "out"))
    assert done.returncode == 2
    assert "allowed: local, current, kind" in done.stderr


def test_demo_hands_over_to_the_tour(machine: Machine) -> None:
    """The tour gets what the provider found, and the demo ends as the tour does."""
    done = machine.run("demo", CLUSTER="current", IMAGE="registry.example/drasim:1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "toured with kubectl and registry.example/drasim:1"


def test_demo_stops_where_the_provider_does(machine: Machine) -> None:
    """No cluster, no tour."""
    done = machine.run("demo", CLUSTER="current")
    assert done.returncode == 2
    assert "toured" not in done.stdout
