"""Requests to the first process of the box."""

import threading
from pathlib import Path

import pytest

from hack.cluster import control
from hack.cluster.errors import ClusterError


def ask(path: Path, **fields: object) -> control.Answer:
    """Send one request to a server that takes one."""

    def handle(asked: control.Answer) -> control.Answer:
        if asked["do"] == "fail":
            raise ClusterError("no component x")
        return {"heard": asked}

    server = control.listen(path)
    with server:
        thread = threading.Thread(target=control.serve, args=(server, handle))
        thread.start()
        try:
            return control.request(path, **fields)
        finally:
            thread.join()


def test_answer_comes_back(tmp_path: Path) -> None:
    """A request reaches the handler whole, and its answer comes back."""
    assert ask(tmp_path / "s", do="stop", components=["a"]) == {"heard": {"do": "stop", "components": ["a"]}}


def test_errors_are_raised_at_the_caller(tmp_path: Path) -> None:
    """What the box refuses is an error of the caller, with the box's words."""
    with pytest.raises(ClusterError, match="no component x"):
        ask(tmp_path / "s", do="fail")


def test_only_root_may_write(tmp_path: Path) -> None:
    """The socket is closed to other users."""
    with control.listen(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
