"""What a driver has on a node: sockets, records, CDI specs; and a call to it as the kubelet would make it."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.tour.clients import Object
from tests.cluster.objects import reference
from tests.cluster.real import RealCluster

PLUGINS = "/var/lib/kubelet/plugins"
REGISTRY = "/var/lib/kubelet/plugins_registry"
CDI = "/var/run/cdi"
CALLER = Path(__file__).with_name("caller.py")


@dataclass(frozen=True)
class OnNode:
    """One driver on one node."""

    cluster: RealCluster
    node: int
    driver: str

    @property
    def folder(self) -> str:
        """The driver's own folder."""
        return f"{PLUGINS}/{self.driver}"

    def run(self, *words: str) -> str:
        """Run a command on the node."""
        return self.cluster.on_node(self.node, *words)

    def listed(self, *patterns: str) -> list[str]:
        """Return the paths on the node that fit, sorted."""
        return sorted(self.run("sh", "-c", f"ls -d {' '.join(patterns)} 2>/dev/null || true").splitlines())

    def sockets(self) -> tuple[list[str], list[str]]:
        """Return the paths of the DRA sockets and of the registration sockets."""
        return self.listed(f"{self.folder}/*.sock"), self.listed(f"{REGISTRY}/{self.driver}-*.sock")

    def of_claim(self, uid: str) -> list[str]:
        """Return every file that the driver has for a claim: its record, its CDI spec, whatever else."""
        return self.listed(f"{self.folder}/claims/*{uid}*", f"{CDI}/k8s.{self.driver}-*{uid}*")

    def record(self, uid: str) -> Object:
        """Return the record of a claim."""
        read: dict[str, Any] = json.loads(self.run("cat", f"{self.folder}/claims/{uid}.json"))["record"]
        return read

    def specs(self) -> list[str]:
        """Return the paths of the driver's CDI specs."""
        return self.listed(f"{CDI}/k8s.{self.driver}-*.json")

    def prepare(self, claim: Object) -> Object:
        """Ask the driver to prepare a claim, as the kubelet does, and return its answer."""
        return self._call("Prepare", claim)

    def unprepare(self, claim: Object) -> Object:
        """Ask the driver to unprepare a claim, as the kubelet does, and return its answer."""
        return self._call("Unprepare", claim)

    def _call(self, verb: str, claim: Object) -> Object:
        (socket,), _ = self.sockets()
        answer = self.run(sys.executable, str(CALLER), verb, socket, *reference(claim))
        read: dict[str, Any] = json.loads(answer)["claims"][claim["metadata"]["uid"]]
        return read


def cdi_ids(answer: Object) -> list[str]:
    """Return the CDI ids of an answer to Prepare."""
    return [name for device in answer["devices"] for name in device["cdiDeviceIds"]]


def left(places: Iterable[OnNode], claim: Object) -> list[str]:
    """Return what drivers still have for a claim."""
    return [path for place in places for path in place.of_claim(claim["metadata"]["uid"])]
