"""Debian packages: what is missing, and what is said where it cannot be installed."""

import pytest

from hack.cluster.errors import UnableError
from hack.cluster.packages import Package, missing, require

THERE, GONE = Package("coreutils", lambda: True), Package("no-such-package", lambda: False)


def test_only_what_is_absent_is_missing() -> None:
    """A package counts by what it brings, so a tool from elsewhere will do."""
    assert missing([THERE, GONE]) == ["no-such-package"]


def test_nothing_is_said_when_nothing_is_missing() -> None:
    """Where everything is there, nothing is installed and nothing is said."""
    said: list[str] = []
    require([THERE], said.append)
    assert said == []


def test_missing_packages_are_named_where_apt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without apt-get the packages are named in one line, for exit code 3."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnableError, match=r"^install these packages first \(.*\): no-such-package$") as refused:
        require([THERE, GONE], print)
    assert refused.value.code == 3
