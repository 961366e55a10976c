"""Process 1's view of the components, with real processes."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.cluster.errors import ClusterError
from hack.cluster.plan import Component, Plan
from hack.cluster.probes import answers
from hack.cluster.supervisor import Supervisor

SERVER = "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\ntime.sleep(60)"
Make = Callable[..., Supervisor]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a maker of supervisors whose processes end with the test."""
    made: list[Supervisor] = []

    def supervisor(*components: Component) -> Supervisor:
        made.append(Supervisor(Plan(0, (), components), {}))
        return made[-1]

    yield supervisor
    for each in made:
        each.stop([row["component"] for row in each.rows()], signal.SIGKILL)  # type: ignore[misc]  # all rows have a name


def server(folder: Path, name: str, *after: str) -> Component:
    """Return a component that is ready when its socket listens."""
    path = folder / f"{name}.sock"
    program = f"import os;os.path.exists({str(path)!r}) and os.unlink({str(path)!r})\n{SERVER}"
    argv = (sys.executable, "-c", program, str(path))
    return Component(name, argv, str(folder / f"{name}.log"), f"unix:{path}", after=after)


def failing(folder: Path) -> Component:
    return Component("bad", ("sh", "-c", "echo unknown flag; exit 4"), str(folder / "bad.log"), "unix:/nowhere")


def until(supervisor: Supervisor, **states: str) -> dict[str, dict[str, object]]:
    """Let the supervisor work until components are in these states."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        supervisor.reap()
        supervisor.advance()
        rows = {str(row["component"]): row for row in supervisor.rows()}
        if all(rows[name]["state"] == state for name, state in states.items()):
            return rows
        signal.sigtimedwait([signal.SIGUSR2], 0.02)
    raise AssertionError(supervisor.rows())


def test_component_starts_after_what_it_needs(make: Make, tmp_path: Path) -> None:
    """A component is not started before the one it needs answers."""
    supervisor = make(server(tmp_path, "b", "a"), server(tmp_path, "a"))
    supervisor.advance()
    assert {row["component"]: bool(row["pid"]) for row in supervisor.rows()} == {"b": False, "a": True}
    until(supervisor, a="ready", b="ready")
    assert not supervisor.restless


def test_component_that_never_was_ready_fails(make: Make, tmp_path: Path) -> None:
    """A component that ends before it was ready is not started again; its exit code and output are kept."""
    rows = until(make(failing(tmp_path)), bad="failed")
    assert (rows["bad"]["exit"], rows["bad"]["restarts"]) == (4, 0)
    assert (tmp_path / "bad.log").read_text() == "unknown flag\n"


def test_missing_program_fails_alone(make: Make, tmp_path: Path) -> None:
    """A component whose program does not exist fails with that reason, and the others go on."""
    gone = Component("gone", ("/no/such/program",), str(tmp_path / "gone.log"), "unix:/nowhere")
    until(make(gone, server(tmp_path, "a")), gone="failed", a="ready")
    assert "No such file" in (tmp_path / "gone.log").read_text()


def test_crashed_component_comes_back(make: Make, tmp_path: Path) -> None:
    """A component that dies after it was ready is started again and counted."""
    supervisor = make(server(tmp_path, "a"))
    pid = int(str(until(supervisor, a="ready")["a"]["pid"]))
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    supervisor.reap()
    assert [row["state"] for row in supervisor.rows()] == ["waiting"]
    after = until(supervisor, a="ready")["a"]
    assert after["restarts"] == 1
    assert after["pid"] != pid


def test_stopped_component_stays_stopped(make: Make, tmp_path: Path) -> None:
    """A stopped component is not started by itself, and can be started again, with those that need it untouched."""
    supervisor = make(server(tmp_path, "a"), server(tmp_path, "b", "a"))
    before = until(supervisor, a="ready", b="ready")
    supervisor.stop(["a"], signal.SIGTERM)
    supervisor.advance()
    stopped = {row["component"]: row for row in supervisor.rows()}
    assert (stopped["a"]["state"], stopped["a"]["pid"]) == ("stopped", 0)
    supervisor.start(["a"])
    after = until(supervisor, a="ready", b="ready")
    assert after["b"]["pid"] == before["b"]["pid"]


def test_restart_replaces_the_process(make: Make, tmp_path: Path) -> None:
    """A restart ends in another process and counts."""
    supervisor = make(server(tmp_path, "a"))
    before = until(supervisor, a="ready")["a"]
    supervisor.restart(["a"], signal.SIGTERM)
    after = until(supervisor, a="ready")["a"]
    assert (after["restarts"], after["pid"] != before["pid"]) == (1, True)


def test_unknown_component_is_named(make: Make, tmp_path: Path) -> None:
    """A request for a component that does not exist says which there are."""
    with pytest.raises(ClusterError, match=r"no component c; there are a"):
        make(server(tmp_path, "a")).stop(["c"], signal.SIGTERM)


def test_socket_is_free_for_others(tmp_path: Path) -> None:
    """The probe only connects: it takes no socket away from a server."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "x.sock"))
        other.listen()
        assert answers("unix:/x.sock", str(tmp_path))
        assert not answers("unix:/y.sock", str(tmp_path))
