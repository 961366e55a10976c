"""__main__ and the flags of `drasim node`."""

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


def test_credentials_are_found() -> None:
    """The configured kubeconfig first, then the Pod's account, then $KUBECONFIG; else it is said."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    chosen = [
        credentials_for(load(None, {"kubeconfig": "/k"}), pod),
        credentials_for(Config(), pod | {"KUBECONFIG": "/k"}),
        credentials_for(Config(), {"KUBECONFIG": "/k:/l"}),
    ]
    assert [type(each).__name__ for each in chosen] == ["_Kubeconfig", "_ServiceAccount", "_Kubeconfig"]
    with pytest.raises(ConfigError, match="missing outside of a Pod"):
        credentials_for(Config(), {})


def test_bad_input_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    """What the user wrote wrongly is one line on stderr and exit code 2."""
    assert execute(["node", "--set", "nonsense"], {}) == 2
    assert capsys.readouterr().err == 'drasim: flags: --set: "nonsense" is not allowed; allowed: KEY=VALUE\n'


def test_failure_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What does not work here is exit code 1: a boot id that cannot be read."""
    paths = ["--set", f"paths.bootID={tmp_path / 'none'}", "--set", f"paths.plugins={tmp_path}"]
    assert execute(["node", "--node-name", "a", "--kubeconfig", "/k", *paths], {}) == 1
    assert capsys.readouterr().err.startswith(f"drasim: boot id file {tmp_path / 'none'} cannot be read")


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Asking for help exits with 0."""
    assert execute(["node", "--help"], {}) == 0
    assert "Usage: drasim node" in capsys.readouterr().out
