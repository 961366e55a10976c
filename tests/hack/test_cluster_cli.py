"""Exit codes of the command line that need no cluster."""

import pytest

from hack.cluster.cli import main


@pytest.mark.parametrize(
    "argv",
    [[], ["nothing"], ["up", "--nodes", "3"], ["up", "--gates", "some"], ["up", "--name", "A/b"], ["stop", "docker"]],
)
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What the command line cannot mean is refused with exit code 2 and the usage."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_malformed_setting_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting of a component that does not exist is refused in one line, before anything is built or started."""
    assert main(["up", "--name", "unused", "--set", "kubelit.x=1"]) == 2
    assert capsys.readouterr().err.startswith("error: --set kubelit.x=1: no component 'kubelit'")
