"""Using the launcher and the clients of a cluster as a person would, for the launcher's own tests."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hack.cluster.folders import CHECKOUT

NAME = f"{os.environ.get('DRASIM_TEST_CLUSTER', 'test')}-launcher"
"""A name of its own, so that these tests can run beside the cluster of others, and two runs beside each other."""
LIMIT = 200  # seconds for a command that starts a cluster
PATIENCE = 120  # seconds for what takes a few on an idle machine
BUILD_LIMIT = 2400  # seconds for the first build, beside other work on two cores


def command(*words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "hack.cluster",
        words[0],
        *(() if words[0] == "build" else ("--name", NAME)),
        *words[1:],
    ]


def launcher(*words: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Run a command of the launcher, check its exit code, return what it said on both streams."""
    done = subprocess.run(
        command(*words),
        cwd=CHECKOUT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_LIMIT if words[0] == "build" else LIMIT,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def client(name: str, *words: str, given: str | None = None) -> str:
    """Run hack/kubectl or hack/helm from another folder and return its output."""
    done = subprocess.run(
        [CHECKOUT / "hack" / name, *words],
        cwd="/",
        env={**os.environ, "DRASIM_CLUSTER": NAME},
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE + 30,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kubectl(*words: str, given: str | None = None) -> str:
    return client("kubectl", *words, given=given)


def status() -> dict[str, Any]:
    told = subprocess.run(command("status", "--json"), cwd=CHECKOUT, capture_output=True, text=True, check=False)
    read: dict[str, Any] = json.loads(told.stdout)
    return read


def component(name: str, node: int = 0) -> dict[str, Any]:
    return next(row for row in status()["components"] if (row["component"], row["node"]) == (name, node))


def processes() -> list[tuple[object, ...]]:
    """Return what a cluster consists of: unlike states, which an answer that comes late changes, this stays."""
    told = status()
    rows = [(row["component"], row["node"], row["pid"], row["restarts"]) for row in told["components"]]
    return [(told["init"], told["keeper"]), *rows]


@dataclass(frozen=True)
class Pod:
    """A pod that runs one shell line in the busybox image."""

    name: str
    line: str
    node: str = "node1"
    more: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        container = {
            "name": "c",
            "image": "localhost/busybox:test",
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", self.line],
            **self.more,
        }
        spec = {
            "nodeName": self.node,
            "restartPolicy": "Never",
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}, "spec": spec}
        kubectl("apply", "-f", "-", given=json.dumps(pod))

    def wait(self, phase: str) -> None:
        kubectl("wait", f"pod/{self.name}", f"--for=jsonpath={{.status.phase}}={phase}", f"--timeout={PATIENCE}s")

    def output(self) -> str:
        """Run the pod to its end and return what it printed."""
        self.run()
        self.wait("Succeeded")
        return kubectl("logs", self.name)


def seconds_to(what: str, said: str) -> float:
    """Return the time that the launcher printed before something that became ready."""
    found = re.search(rf"([\d.]+) s  {what}$", said, re.MULTILINE)
    assert found, said
    return float(found[1])


def wait_until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not (seen := true()):
        assert time.monotonic() < end, f"did not come true within {seconds} s; seen last: {seen}"
        time.sleep(0.2)


def wait_until_none(found: Callable[[], Sequence[object]], seconds: float = PATIENCE) -> None:
    """Wait until nothing is found any more; what still is stands in the error."""
    end = time.monotonic() + seconds
    while left := found():
        assert time.monotonic() < end, left
        time.sleep(0.2)
