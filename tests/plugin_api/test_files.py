"""files: replaced as a whole, boot id, stale sockets."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_plugin.errors import SetupError
from dra_plugin.files import clear_stale_socket, is_listening, read_boot_id, remove, write_atomically


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "live.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield path


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_write_replaces_and_leaves_nothing_else(tmp_path: Path, sync: bool, checked: bool) -> None:
    """A file is created, then replaced; no temporary file stays, and the old inode is another one."""
    path = tmp_path / "state.json"
    write_atomically(path, b"one", sync=sync, checked=checked)
    first = path.stat().st_ino
    write_atomically(path, b"two", sync=sync, checked=checked)
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json"]


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """A write that cannot get its name leaves no temporary file and what stood there."""
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(OSError, match="taken"):
        write_atomically(path, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def test_remove_tells_whether_there_was_a_file(tmp_path: Path) -> None:
    """Removing twice is no error."""
    (tmp_path / "a").touch()
    assert remove(tmp_path / "a", sync=True)
    assert not remove(tmp_path / "a")


def test_boot_id(tmp_path: Path) -> None:
    """The boot id is read without its newline; a missing or empty file is a setup error that names it."""
    path = tmp_path / "boot_id"
    with pytest.raises(SetupError, match="boot_id"):
        read_boot_id(path)
    path.write_text("\n")
    with pytest.raises(SetupError, match="empty"):
        read_boot_id(path)
    path.write_text("0b-1c\n")
    assert read_boot_id(path) == "0b-1c"


def test_live_socket_is_not_touched(listener: Path) -> None:
    """Where somebody listens nothing is cleared."""
    with pytest.raises(SetupError, match="another live instance"):
        clear_stale_socket(listener)
    assert is_listening(listener)


def test_stale_socket_is_cleared(tmp_path: Path) -> None:
    """A socket whose process is gone is unlinked; without one there is nothing to do."""
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert clear_stale_socket(path)
    assert not path.exists()
    assert not clear_stale_socket(path)


def test_regular_file_in_the_way(tmp_path: Path) -> None:
    """What is not a socket is not ours to remove."""
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(SetupError, match="not a socket"):
        clear_stale_socket(path)
    assert path.exists()


def test_full_backlog_is_alive(tmp_path: Path) -> None:
    """A listener that accepts nothing at the moment counts as alive, and the probe does not wait for it."""
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen(0)
        client.connect(str(path))
        assert is_listening(path)


def test_a_socket_of_another_type_is_not_dead(tmp_path: Path) -> None:
    """Only a refused connection proves that nobody is there."""
    path = tmp_path / "datagrams.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        assert is_listening(path)
