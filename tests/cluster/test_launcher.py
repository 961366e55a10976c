"""The real cluster of hack/cluster: it comes up, does what is asked, and leaves nothing behind however it ends.

It has a name of its own, so that it can run beside the cluster of other tests.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_plugin.kube import KubeCluster, from_kubeconfig
from dra_plugin.resources import DEVICE_TAINT_RULES
from hack.cluster import cgroups
from hack.cluster.folders import CHECKOUT, State
from hack.cluster.images import Image, archive
from hack.cluster.node import SYSCTLS
from hack.cluster.ownership import own
from tests.cluster.door import door
from tests.cluster.launching import (
    BUILD_LIMIT,
    LIMIT,
    NAME,
    PATIENCE,
    Pod,
    client,
    command,
    component,
    kubectl,
    launcher,
    processes,
    seconds_to,
    status,
    wait_until,
    wait_until_none,
)
from tests.cluster.machine import Machine, Spaces
from tests.contract.rule_life import check_life

STATE = State.of(NAME)
SETTLES = 20
NEVER_USABLE = ("--set", "kube-controller-manager.controllers=*,-serviceaccount-controller")
"""A cluster without the accounts of pods, which `up` waits for: it can be ended while it starts, not a moment later."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BUILD_LIMIT)]


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """Fail when the machine after the block is not what it was before it, or does not soon become that.

    The state folder goes last but the keeper itself; and others may have a file or a mount of theirs for a moment.
    """
    before = Machine.at_rest(NAME)
    yield
    assert not STATE.root.exists()
    wait_until_none(lambda: Machine.now(NAME).differences(before), SETTLES)


@pytest.fixture(scope="module", autouse=True)
def built() -> Iterator[None]:
    """Build everything first, so that times are those of a warm start, and end what a test may leave."""
    launcher("build")
    launcher("down")
    yield
    launcher("down")


@pytest.fixture
def alone() -> Iterator[None]:
    """End what the test starts, also when it fails."""
    yield
    launcher("down")


@pytest.fixture(scope="class")
def said() -> Iterator[str]:
    """Start a cluster of one node for the tests of a class; return what the launcher said."""
    yield launcher("up")
    launcher("down")


def outside(spaces: Spaces) -> list[int]:
    """Return the processes of a cluster that are in no group of it; one that is just ending shows none."""
    found = []
    for pid in spaces.processes():
        with contextlib.suppress(OSError):
            if f"/kcbox-{NAME}/" not in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return found


# ------------------------------------------------------------------------------------------------- a running cluster


@pytest.mark.usefixtures("said")
class TestRunning:
    """A running cluster of one node, started once."""

    def test_second_build_compiles_nothing(self) -> None:
        """With everything in the cache, building says nothing of compiling."""
        assert "compile" not in launcher("build")

    def test_progress_is_told(self, said: str) -> None:
        """The launcher says when each component and each node became ready."""
        told = [seconds_to(f"{what} ready", said) for what in ("etcd", "kube-apiserver", "kubelet on node1")]
        assert max(told) <= seconds_to("node1 Ready", said)

    def test_pod_runs_and_is_read(self) -> None:
        """A pod of the busybox image runs, and its output and a command in it come through the API server."""
        pod = Pod("hello", "echo hello from $(hostname); sleep 300")
        pod.run()
        pod.wait("Running")
        wait_until(lambda: kubectl("logs", "hello") == "hello from hello\n")  # it runs before it has printed
        assert kubectl("exec", "hello", "--", "cat", "/etc/hostname") == "hello\n"

    def test_pod_reaches_the_api(self) -> None:
        """The address that a pod's environment gives for the API leads to the API server."""
        line = "nc -w 60 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo connected"
        assert Pod("api", line).output() == "connected\n"

    def test_default_seccomp_profile_works(self) -> None:
        """A container that asks for the runtime's seccomp profile gets one: runc is built with it."""
        more = {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}
        assert Pod("seccomp", "grep Seccomp: /proc/self/status", more=more).output() == "Seccomp:\t2\n"

    def test_server_and_client_have_one_version(self) -> None:
        """API server and kubectl say the version they were built from."""
        versions = json.loads(kubectl("version", "-o", "json"))
        assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"] == "v1.37.2"

    def test_helm_reaches_the_cluster(self) -> None:
        """Helm works from any folder."""
        assert json.loads(client("helm", "list", "-o", "json")) == []
        assert client("helm", "version", "--short").startswith("v4.")

    def test_second_up_finds_the_cluster(self) -> None:
        """`up` on a running cluster changes nothing with the same options, and refuses other ones."""
        before = processes()
        assert "up already" in launcher("up")
        assert "other options" in launcher("up", "--nodes", "2", code=1)
        assert processes() == before

    def test_status_shows_every_component(self) -> None:
        """The table names every component with its process, and the JSON says the same."""
        table = launcher("status")
        for row in status()["components"]:
            assert re.search(rf"^{row['component']} .* ready +{row['pid']} ", table, re.MULTILINE)
        assert re.search(r"^node +node1 +Ready", table, re.MULTILINE)

    def test_exec_is_in_the_node(self) -> None:
        """`exec` sees the node's own name, folders and network; its exit code is the command's."""
        assert launcher("exec", "--", "hostname") == "node1\n"
        assert "config.toml" not in launcher("exec", "--", "ls", "/run/containerd", "/var/lib/kubelet")
        assert "eth0" in launcher("exec", "--", "ip", "-o", "link")
        launcher("exec", "--", "sh", "-c", "echo x >/etc/cdi/x.json; exit 7", code=7)
        assert not Path("/etc/cdi/x.json").exists()

    def test_run_has_the_files_of_the_machine(self) -> None:
        """`run` reaches the API server with the kubeconfig in its environment, and sees this machine's files."""
        program = (
            "import os,socket;socket.create_connection(('10.200.0.1',6443));print(os.environ['KUBECONFIG'],os.getcwd())"
        )
        printed = launcher("run", "--", sys.executable, "-c", program)
        assert printed.split() == [launcher("kubeconfig").strip(), str(CHECKOUT)]

    def test_image_is_loaded(self, tmp_path: Path) -> None:
        """An archive from any folder is imported, and a pod can use it."""
        (tmp_path / "image.tar").write_bytes(archive(Image("localhost/mine:test", {"x": b"x"}, command=("/x",))))
        launcher("load", str(tmp_path / "image.tar"))
        assert "localhost/mine:test" in launcher("exec", "--", "ctr", "-n", "k8s.io", "images", "ls", "-q")
        assert "no file" in launcher("load", str(tmp_path / "other.tar"), code=2)

    @pytest.mark.parametrize(
        "name", ["kubelet", "containerd", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"]
    )
    def test_component_is_stopped_and_started(self, name: str) -> None:
        """A stopped component stays away until it is started; a pod runs on through it all."""
        pod = Pod(f"through-{name}", "sleep 300")
        pod.run()
        pod.wait("Running")
        node = 1 if name in ("kubelet", "containerd") else 0
        launcher("stop", name)
        assert (component(name, node)["state"], component(name, node)["pid"]) == ("stopped", 0)
        launcher("start", name)
        wait_until(lambda: component(name, node)["state"] == "ready")
        wait_until(lambda: status()["ready"])
        uptime = ("get", "pod", pod.name, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")
        assert kubectl(*uptime) == "Running 0"

    def test_killed_component_comes_back(self) -> None:
        """A component that crashes is started again by itself and counted; so is one restarted with force."""
        before = component("kube-scheduler")
        inside = launcher("exec", "--", "sh", "-c", f"kill -KILL {before['pid']}")
        assert inside == ""
        wait_until(lambda: component("kube-scheduler")["restarts"] == before["restarts"] + 1)
        wait_until(lambda: component("kube-scheduler")["state"] == "ready")
        launcher("restart", "kube-scheduler", "--kill")
        assert component("kube-scheduler")["restarts"] == before["restarts"] + 2

    def test_components_have_logs(self) -> None:
        """Every component's own words can be read."""
        assert "Starting" in launcher("logs", "kubelet") or "kubelet" in launcher("logs", "kubelet")
        assert launcher("logs", "kube-apiserver")

    def test_memory_of_the_whole_cluster_is_limited(self) -> None:
        """Components and pods are in one group of control groups, whose limit is 8 GiB."""
        limits = [
            int(file.read_text())
            for hierarchy in cgroups.mounted()
            for file in ((hierarchy / f"kcbox-{NAME}" / name) for name in ("memory.limit_in_bytes", "memory.max"))
            if file.exists()
        ]
        assert limits == [8 * 2**30]
        with Spaces.of(status()["init"]) as spaces:
            assert len(spaces.processes()) > 8
            wait_until_none(lambda: outside(spaces))

    def test_sysctls_of_the_machine_stay(self) -> None:
        """The node shows the values that the kubelet wants; the machine keeps its own."""
        for name, value in SYSCTLS.items():
            assert launcher("exec", "--", "cat", f"/proc/sys/{name}").split() == [str(value)]


# ------------------------------------------------------------------------------------------------- options


@pytest.fixture(scope="class")
def everything() -> Iterator[str]:
    """Start a cluster of two nodes with all that can be switched on; return what the launcher said."""
    with leaving_nothing():
        yield launcher("up", "--nodes", "2", "--gates", "all")
        launcher("down")


class TestEveryGate:
    """A running cluster of two nodes with every gate and API on, started once."""

    def test_what_is_hidden_is_served(self, everything: str) -> None:
        """Two nodes become Ready, and what is off by default is served."""
        assert all(seconds_to(f"node{index} Ready", everything) for index in (1, 2))
        served = kubectl("api-versions").split()
        assert {"resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta2", "scheduling.k8s.io/v1alpha3"} <= set(served)

    @pytest.mark.usefixtures("everything")
    def test_rules_live_in_each_version(self, tmp_path: Path) -> None:
        """What our library writes as a DeviceTaintRule is the same in every version that it knows."""

        async def check() -> None:
            async with KubeCluster(from_kubeconfig(tmp_path / "kubeconfig")) as cluster:
                for kind in DEVICE_TAINT_RULES:
                    assert await cluster.served(kind), kind
                    await check_life(cluster, kind, f"life-{kind.version}")

        with door(NAME, STATE.kubeconfig, tmp_path / "kubeconfig"):
            asyncio.run(check())

    @pytest.mark.usefixtures("everything")
    def test_nodes_reach_each_other(self) -> None:
        """Each node is itself, a pod on one answers a pod on the other, and their components are apart."""
        assert [launcher("exec", "--node", str(index), "--", "hostname") for index in (1, 2)] == ["node1\n", "node2\n"]
        Pod("there", "sleep 300", "node2").run()
        kubectl("wait", "pod/there", "--for=condition=Ready", f"--timeout={PATIENCE}s")
        address = kubectl("get", "pod", "there", "-o", "jsonpath={.status.podIP}")
        assert " 0% packet loss" in Pod("here", f"ping -c 2 -W 60 {address}").output()
        launcher("stop", "kubelet", "--node", "2")
        wait_until(lambda: [component("kubelet", index)["state"] for index in (1, 2)] == ["ready", "stopped"])


@pytest.mark.usefixtures("alone")
def test_settings_and_gates_reach_the_components() -> None:
    """Fields of the kubelet, arguments of a scheduler plugin, flags and single gates arrive where they belong."""
    chosen = (
        "kubelet.syncFrequency=7s",
        "kube-scheduler.plugin.DynamicResources.filterTimeout=3s",
        "kube-apiserver.v=3",
        "kube-scheduler.--v=2",
    )
    words = [word for setting in chosen for word in ("--set", setting)]
    text = launcher("up", *words, "--feature-gate", "DRAPartitionableDevicesType=true")
    assert "DRAResourcePoolStatus switched on too" in text
    kubelet = json.loads(kubectl("get", "--raw", "/api/v1/nodes/node1/proxy/configz"))["kubeletconfig"]
    assert (kubelet["syncFrequency"], kubelet["featureGates"]["DRAResourcePoolStatus"]) == ("7s", True)
    assert "filterTimeout: 3s" in launcher("logs", "kube-scheduler")
    assert '--v="3"' in launcher("logs", "kube-apiserver")
    launcher("down")


# ------------------------------------------------------------------------------------------------- the end


@contextlib.contextmanager
def starting(*words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Begin to start a cluster and go on when it is half up: there is a box, and an API server has been started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
    try:
        process = subprocess.Popen(command("up", *words), cwd=CHECKOUT)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        wait_until(lambda: has_api_server() or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.wait()


def has_api_server() -> bool:
    rows = status().get("components", ()) if STATE.socket.exists() else ()
    return any(row["component"] == "kube-apiserver" and row["pid"] for row in rows)


def half_up(number: int) -> None:
    with starting(*NEVER_USABLE) as process, Spaces.of(status()["init"]) as spaces:
        process.send_signal(number)
        assert process.wait(PATIENCE) != 0
        wait_until(lambda: not STATE.root.exists())
        wait_until_none(spaces.processes)  # who had joined it sees its end a moment later


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_launcher_that_ends_early_leaves_nothing(number: int) -> None:
    """Ctrl-C, a polite and a hard kill of `up` while the cluster starts end the cluster too."""
    with leaving_nothing():
        half_up(number)


@pytest.mark.usefixtures("alone")
def test_two_launchers_do_not_disturb_each_other() -> None:
    """A second `up` while a cluster starts waits for it, and neither takes anything from the other."""
    with starting() as first:
        assert "up already" in launcher("up")
        told = processes()
        assert first.wait(LIMIT) == 0
    assert processes() == told
    wait_until(lambda: status()["ready"])


@pytest.mark.usefixtures("alone")
def test_cluster_that_another_process_prepares_is_left_alone() -> None:
    """In the moment before the box exists, another launcher neither starts nor cleans anything."""
    with own(STATE):
        assert "just being started or ended" in launcher("up", code=1)
        assert "just being started or ended" in launcher("down", code=1)
    launcher("down")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("victim", ["down", "init", "keeper", "keeper by force"])
def test_cluster_that_ends_leaves_nothing(victim: str) -> None:
    """Whether it is ended or one of its two processes is killed, a running cluster with a pod leaves nothing."""
    with leaving_nothing():
        launcher("up")
        Pod("last", "sleep 300").run()
        Pod("last", "sleep 300").wait("Running")
        told = status()
        with Spaces.of(told["init"]) as spaces:
            assert len(spaces.processes()) > 8
            end_it(victim, told)
            wait_until(lambda: not STATE.root.exists())
            wait_until_none(spaces.processes)  # who had joined it sees its end a moment later


def end_it(victim: str, told: dict[str, Any]) -> None:
    if victim == "init":
        os.kill(told["init"], signal.SIGKILL)
    if victim.startswith("keeper"):
        os.kill(told["keeper"], signal.SIGKILL if victim == "keeper by force" else signal.SIGTERM)
    if victim in ("down", "keeper by force"):
        launcher("down")
        assert not STATE.root.exists()
    if victim == "down":
        assert Machine.now(NAME).processes == frozenset()


@pytest.mark.usefixtures("alone")
def test_failed_start_shows_the_log_and_ends() -> None:
    """A component that does not start is named with the end of its log; only the logs stay, until the next command."""
    before = Machine.at_rest(NAME)
    text = launcher("up", "--set", "kube-apiserver.no-such-flag=1", code=1)
    assert "kube-apiserver ended with 1" in text
    assert "unknown flag: --no-such-flag" in text
    assert str(STATE.log("kube-apiserver")) in text
    wait_until_none(lambda: Machine.now(NAME).differences(before), SETTLES)
    assert [path.name for path in STATE.root.iterdir()] == ["log"]
    launcher("down")
    assert not STATE.root.exists()


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("prefix", "env", "says"),
    [
        (["unshare", "--user"], {}, "needs root"),
        ([], {"DRASIM_STATE": "/dev/shm/drasim-test"}, f"/dev/shm/drasim-test/{NAME} lies on tmpfs"),
        ([], {"DRASIM_STATE": f"/var/tmp/{'x' * 90}"}, "longer than a socket's may be"),
        (["unshare", "-m", "sh", "-c", 'umount /sys/fs/cgroup/memory; exec "$@"', "-"], {}, "controllers memory"),
    ],
    ids=["not root", "state in memory", "long path", "no memory controller"],
)
def test_unable_machine_is_code_3(prefix: list[str], env: dict[str, str], says: str) -> None:
    """What this machine or user cannot do is said in one line, with exit code 3, before anything is started."""
    with leaving_nothing():
        done = subprocess.run(
            [*prefix, *command("up")],
            cwd=CHECKOUT,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
        assert says in done.stderr


def test_full_disk_is_code_3_before_anything_is_compiled() -> None:
    """A build that does not fit on the disk is refused at its start, with the room it needs and the room there is."""
    line = 'mount -t tmpfs -o size=200m tmpfs /mnt; DRASIM_CACHE=/mnt/own GOCACHE=/mnt/go exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", line, "-", *command("build")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert re.search(r"GiB are needed for /mnt/go, /mnt/own, 0.2 GiB are free$", done.stderr.strip())
    assert "compile" not in done.stderr


@pytest.mark.usefixtures("alone")
def test_unknown_gate_is_code_2() -> None:
    """A gate that this Kubernetes does not have is refused with close names, before anything is started."""
    with leaving_nothing():
        text = launcher("up", "--feature-gate", "DRADeviceTaint=true", code=2)
        assert "no feature gate DRADeviceTaint" in text
        assert "DRADeviceTaints" in text


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("words", [("stop", "kubelet"), ("exec", "--", "true"), ("kubeconfig",), ("load", __file__)])
def test_commands_say_that_nothing_runs(words: tuple[str, ...]) -> None:
    """Commands for a running cluster fail in one line when there is none."""
    assert f"cluster {NAME} is not up" in launcher(*words, code=1)
