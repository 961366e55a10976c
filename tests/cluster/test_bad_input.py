"""What `drasim node` says on a real node when it cannot serve, and that it takes nothing from a driver that can."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.folders import CHECKOUT, State
from hack.tour.clients import Failed, Object
from tests.cluster.objects import Space, claim, plain
from tests.cluster.outside import Outside, outside
from tests.cluster.real import NAME, PATIENCE, RealCluster

FAILED, BAD_INPUT = 1, 2
PROBES = "127.0.0.1:18089"


@pytest.fixture(scope="module")
def driver(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """A driver that serves node 2 beside that of the chart."""
    with outside(real_cluster, "first", tmp_path_factory.mktemp("first"), {"podUID": "the-same"}) as running:
        yield running


def said(driver: Outside, **settings: str) -> tuple[int, str]:
    """Run one more `drasim node` to its end; return its exit code and what it wrote to stderr."""
    command = [sys.executable, "-m", "hack.cluster", "exec", "--name", NAME, "--node", str(driver.node), "--"]
    done = subprocess.run(
        [*command, *driver.command(**settings)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr


def test_a_missing_folder_of_the_kubelet_is_named(driver: Outside) -> None:
    """Without the registration folder there is no kubelet to serve: one line, and an end."""
    code, text = said(driver, podUID="other", **{"paths.registry": "/var/lib/nowhere/plugins_registry"})
    assert code == FAILED
    assert "the kubelet's registration folder /var/lib/nowhere/plugins_registry does not exist" in text


def test_a_wrong_value_ends_with_the_allowed_ones(driver: Outside) -> None:
    """A wrong value in the flags is exit code 2, with key and allowed values in one line."""
    code, text = said(driver, **{"log.level": "loud"})
    assert code == BAD_INPUT
    assert text.splitlines() == [
        'drasim: flags: log.level: "loud" is not allowed; allowed: debug, error, info, warning'
    ]


def test_a_socket_path_that_is_too_long_is_named(driver: Outside) -> None:
    """A Unix socket has 107 bytes for its path; a folder that leaves no room for any name is refused."""
    folder = f"{driver.state}/{'long' * 25}"
    driver.gpu.run("mkdir", "-p", folder)
    code, text = said(driver, podUID="other", **{"paths.registry": folder})
    assert code == FAILED
    assert "is longer than the 107 bytes a socket may have" in text


def inodes(driver: Outside) -> list[str]:
    """Return the sockets of both drivers, each with its inode."""
    paths = [path for place in (driver.gpu, driver.nic) for found in place.sockets() for path in found]
    return driver.gpu.run("stat", "-c", "%n %i", *paths).splitlines()


def test_a_living_instance_is_not_robbed(driver: Outside) -> None:
    """A second process of the same name gets an error; the first keeps its sockets and stays registered."""
    before = inodes(driver)
    code, text = said(driver)
    assert code == FAILED
    assert "another live instance" in text
    assert (inodes(driver), len(before)) == (before, 4)
    assert driver.published()


def test_a_claim_that_cannot_be_prepared_gets_a_reason(real_cluster: RealCluster, driver: Outside) -> None:
    """Not there, replaced by another of its name, not allocated, another driver's: an answer that says so."""
    with real_cluster.namespace("reasons") as namespace:
        space = Space(real_cluster, namespace)
        space.create(claim("waiting", {driver.gpu.driver: 1}), claim("foreign", {driver.nic.driver: 1}))
        space.started("pod", "foreign", driver.node)
        waiting, foreign = space.claim("waiting"), space.claim("foreign")
        asked = {
            "does not exist": {"metadata": {**waiting["metadata"], "name": "nobody"}},
            "replaced": {"metadata": {**waiting["metadata"], "uid": "another"}},
            "is not allocated": waiting,
            driver.gpu.driver: foreign,
        }
        answers = {reason: driver.gpu.prepare(asking).get("error", "") for reason, asking in asked.items()}
        assert {reason: answer for reason, answer in answers.items() if reason not in answer} == {}
        space.delete_pods()


def test_a_missing_api_server_is_told_by_readyz(real_cluster: RealCluster, tmp_path: Path) -> None:
    """Without an API server the driver serves all the same, keeps trying, and says what is missing in /readyz."""
    broken = tmp_path / "kubeconfig"
    content = plain(State.of(NAME).kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    broken.write_text(json.dumps(content))
    lonely = Outside(
        real_cluster,
        2,
        "lonely",
        tmp_path / "log",
        {"kubeconfig": str(broken), "probes.address": PROBES},
    )
    lonely.boot("first-boot")
    try:
        lonely.launch()
        status = real_cluster.wait_for("/readyz", lambda: readyz(lonely))
        assert not status["ready"]
    finally:
        lonely.end()
        lonely.clear()


FETCH = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    answer = error
print(answer.read().decode())
"""


def readyz(driver: Outside) -> Object:
    """Return what /readyz says, once both drivers are registered and miss the API server. Raises Failed until then."""
    text = driver.cluster.on_node(driver.node, sys.executable, "-c", FETCH, f"http://{PROBES}/readyz", check=False)
    status = plain(text) if text else {"drivers": []}
    told = [entry["registered"] and "127.0.0.1:9" in str(entry["problems"]) for entry in status["drivers"]]
    if told != [True, True]:
        raise Failed(f"/readyz: {status}")
    return status
