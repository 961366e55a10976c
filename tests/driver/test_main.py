"""__main__ and the flags of `drasim node`."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drasim.__main__ import execute
from drasim.cli.node import Asked, credentials_for, environment, parse, usage
from drasim.config import Config, ConfigError, load


def test_flags_become_keys() -> None:
    """Common keys have flags of their own, with a value beside it or behind an equals sign; --set takes any key."""
    asked = parse(["--node-name", "a", "--kubeconfig=/k", "--set", "paths.cdi=/x", "--config", "/c.yaml"])
    flags = {"nodeName": "a", "kubeconfig": "/k", "paths.cdi": "/x"}
    assert asked == Asked(file=Path("/c.yaml"), flags=flags)


def test_a_value_may_hold_equals_signs() -> None:
    """Only the first equals sign separates."""
    assert parse(["--set=a.b=c=d"]).flags == {"a.b": "c=d"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodename", "a"], r"--nodename: unknown; allowed: --config, --set, .*--node-name"),
        (["a"], "a: unknown"),
        (["--set", "nonsense"], '"nonsense" is not allowed; allowed: KEY=VALUE'),
        (["--config"], "--config: needs a value: FILE"),
    ],
)
def test_what_is_no_flag_is_named(arguments: list[str], text: str) -> None:
    """The error names the flag and what is allowed."""
    with pytest.raises(ConfigError, match=text):
        parse(arguments)


def test_usage_lists_every_flag() -> None:
    """Each flag that is read is in the help."""
    assert all(flag in usage() for flag in ("--config", "--set", "--node-name", "--probes", "--log-level", "--help"))


def test_the_pod_tells_its_node() -> None:
    """The downward API's variables are flags; empty ones are none."""
    assert environment({"NODE_NAME": "a", "POD_UID": "", "HOME": "/"}) == {"nodeName": "a"}


def test_credentials_are_found(tmp_path: Path) -> None:
    """The configured kubeconfig first, then the Pod's account, then as kubectl does it; else it is said."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    chosen = [
        credentials_for(load(None, {"kubeconfig": str(file)}), pod),
        credentials_for(Config(), pod | {"KUBECONFIG": "/k"}),
        credentials_for(Config(), {"KUBECONFIG": f"{file}:/l"}),
    ]
    assert [type(each).__name__ for each in chosen] == ["_Kubeconfig", "_ServiceAccount", "_Kubeconfig"]
    home = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match="missing outside of a Pod"):
        credentials_for(Config(), home)
    (tmp_path / ".kube").mkdir()
    file.rename(tmp_path / ".kube" / "config")
    assert type(credentials_for(Config(), home)).__name__ == "_Kubeconfig"
    with pytest.raises(ConfigError, match="/k cannot be read"):
        credentials_for(Config(), home | {"KUBECONFIG": "/k"})


@pytest.mark.parametrize(("name", "why"), [("none", "No such file or directory"), ("", "Is a directory")])
def test_a_kubeconfig_that_cannot_be_read_is_bad_input(tmp_path: Path, name: str, why: str) -> None:
    """It is named before anything is served, not when the API server is asked first."""
    path = str(tmp_path / name)
    for config, env in ((load(None, {"kubeconfig": path}), {}), (Config(), {"KUBECONFIG": path})):
        with pytest.raises(ConfigError, match=f"kubeconfig: {path} cannot be read: {why}"):
            credentials_for(config, env)


def test_bad_input_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    """What the user wrote wrongly is one line on stderr and exit code 2."""
    assert execute(["node", "--set", "nonsense"], {}) == 2
    assert capsys.readouterr().err == 'drasim: flags: --set: "nonsense" is not allowed; allowed: KEY=VALUE\n'


def test_failure_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What does not work here is exit code 1: a boot id that cannot be read."""
    (tmp_path / "kubeconfig").write_text("{}")
    paths = ["--set", f"paths.bootID={tmp_path / 'none'}", "--set", f"paths.plugins={tmp_path}"]
    assert execute(["node", "--node-name", "a", "--kubeconfig", f"{tmp_path}/kubeconfig", *paths], {}) == 1
    assert capsys.readouterr().err.startswith(f"drasim: boot id file {tmp_path / 'none'} cannot be read")


def test_a_full_disk_is_one_line() -> None:
    """Output that cannot be written is said in one line, with exit code 1."""
    command = [sys.executable, "-m", "drasim", "config", "show"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "drasim: [Errno 28] No space left on device\n")


def test_what_both_drivers_say_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is missing for both is named once."""
    (tmp_path / "kubeconfig").write_text("{}")
    (tmp_path / "boot_id").write_text("boot-1")
    paths = {"plugins": tmp_path, "registry": tmp_path / "none", "bootID": tmp_path / "boot_id"}
    given = [part for name, path in paths.items() for part in ("--set", f"paths.{name}={path}")]
    assert execute(["node", "--node-name", "a", "--kubeconfig", f"{tmp_path}/kubeconfig", *given], {}) == 1
    missing = f"drasim: the kubelet's registration folder {tmp_path}/none does not exist\n"
    assert capsys.readouterr().err == missing


INTERRUPTED = """
import signal, sys

class Impatient:
    def find_spec(self, name, *_):
        if name == "drasim.cli.commands":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Impatient())
sys.argv = ["drasim", "version"]
from drasim.__main__ import main
main()
"""


def test_an_interrupt_is_no_traceback() -> None:
    """Ctrl-C while the command is still being loaded ends it quietly, with the exit code that shells expect."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Asking for help exits with 0."""
    assert execute(["node", "--help"], {}) == 0
    assert "Usage: drasim node" in capsys.readouterr().out


def drasim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in which what is left to the garbage collector is told."""
    strictly = (sys.executable, "-X", "dev", "-W", "error", "-m", "drasim")
    return subprocess.run([*strictly, *arguments], capture_output=True, text=True, check=False)


def said(text: str) -> list[str]:
    """Return the lines, without asyncio's own about steps that took long."""
    return [line for line in text.splitlines() if not line.startswith("Executing <")]


@pytest.mark.parametrize("command", ["status --output json", "fault list --output json"])
def test_a_server_that_never_answers(tmp_path: Path, command: str) -> None:
    """Who waits is told for whom, then what can be done; nothing of it stands where the output does."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        there = {"name": "a", "cluster": {"server": url}}, {"name": "a", "context": {"cluster": "a"}}
        kubeconfig = {"clusters": there[:1], "contexts": there[1:], "current-context": "a"}
        (tmp_path / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **kubeconfig}))
        known = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--set", "nodeName=a"]
        done = drasim(*command.split(), *known, "--request-timeout", "5s")
    waiting, error = said(done.stderr)
    assert (done.returncode, done.stdout) == (1, "")
    assert waiting == f"drasim: waiting for {url} ..."
    assert f"no answer from {url} in time; is that API server up" in error
    assert "--request-timeout" in error


def test_a_timeout_that_is_none() -> None:
    """It is refused before anything is asked."""
    done = drasim("status", "--request-timeout", "soon", "--kubeconfig", __file__)
    assert done.returncode == 2
    assert done.stderr.startswith('drasim: arguments: --request-timeout: "soon" is not allowed; allowed: 1ms to 24h')
