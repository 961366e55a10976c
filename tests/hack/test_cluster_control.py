"""Requests to the first process of the box."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.cluster import control, launch
from hack.cluster.box import Box
from hack.cluster.errors import ClusterError
from hack.cluster.folders import State
from hack.cluster.processes import Process


@contextmanager
def serving(path: Path, handle: Callable[[control.Answer], control.Answer]) -> Iterator[None]:
    """Take one request."""
    with control.listen(path) as server:
        thread = threading.Thread(target=control.serve, args=(server, handle))
        thread.start()
        try:
            yield
        finally:
            thread.join()


def ask(path: Path, **fields: object) -> control.Answer:
    """Send one request to a server that takes one."""

    def handle(asked: control.Answer) -> control.Answer:
        if asked["do"] == "fail":
            raise ClusterError("no component x")
        return {"heard": asked}

    with serving(path, handle):
        return control.request(path, **fields)


def test_answer_comes_back(tmp_path: Path) -> None:
    """A request reaches the handler whole, and its answer comes back."""
    assert ask(tmp_path / "s", do="stop", components=["a"]) == {"heard": {"do": "stop", "components": ["a"]}}


def test_errors_are_raised_at_the_caller(tmp_path: Path) -> None:
    """What the box refuses is an error of the caller, with the box's words."""
    with pytest.raises(ClusterError, match="no component x"):
        ask(tmp_path / "s", do="fail")


def test_a_busy_api_server_has_no_ready_nodes(tmp_path: Path) -> None:
    """An API server that does not answer in time is asked again later, and ends no start."""

    def handle(asked: control.Answer) -> control.Answer:
        raise TimeoutError(asked["path"])

    me = Process.of(os.getpid())
    with serving(tmp_path / "control.sock", handle):
        assert launch.ready_nodes(Box(State("x", tmp_path), me, me)) == set()


def test_a_cluster_that_is_ending_is_an_error_in_one_line(tmp_path: Path) -> None:
    """The files of a cluster go before its processes have all been looked at."""
    me = Process.of(os.getpid())
    with pytest.raises(ClusterError, match="cluster x is just being ended by another process"):
        _ = Box(State("x", tmp_path), me, me).plan


def test_only_root_may_write(tmp_path: Path) -> None:
    """The socket is closed to other users."""
    with control.listen(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
