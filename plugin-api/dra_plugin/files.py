"""Files that are replaced as a whole, the boot id, and sockets that a dead process left behind.

Everything here blocks for a few tenths of a millisecond and is called on the event loop: a hop to a thread costs more
than the fsync that it would hide.
"""

import contextlib
import errno
import os
import secrets
import socket
import time
from pathlib import Path

from dra_plugin.errors import SetupError

__all__ = [
    "SOCKET_PATH_LIMIT",
    "clear_stale_socket",
    "is_listening",
    "is_old",
    "read_boot_id",
    "remove",
    "write_atomically",
]

SOCKET_PATH_LIMIT = 107  # bytes: sockaddr_un.sun_path holds 108 with the closing zero


def write_atomically(
    path: Path, data: bytes, *, sync: bool = True, checked: bool = False, settled: bool = True
) -> None:
    """Replace ``path`` by ``data`` so that a reader sees the old content or the new one, nothing between.

    With ``sync`` the content is on the disk before it gets its name, and the name is on the disk when this returns:
    file fsync, rename, folder fsync. A power loss leaves the old file or the new one, and after the return the new
    one. Without ``sync`` that holds for a killed process only; use it where a reboot voids the file anyway.

    ``checked`` says that readers find out cut content by themselves (a checksum). A new file then gets its name before
    both fsyncs, which is one commit of the file system's journal instead of two: 0.3 ms instead of 0.55 on a quiet
    disk. What holds after the return is the same; a power loss before it may leave the name with cut content.

    Without ``settled`` a power loss soon after the return may bring back the old file, whole: the folder is not synced.

    The temporary file stands in the same folder under a name with a leading dot. Raises OSError.
    """
    name_first = checked and not path.exists()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        _write_all(descriptor, data)
        if sync and not name_first:
            os.fsync(descriptor)
        temporary.replace(path)
        if sync and name_first:
            os.fsync(descriptor)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    if sync and settled:
        _sync_folder(path.parent)


def remove(path: Path, *, sync: bool = False) -> bool:
    """Remove the file; False when there was none. With ``sync`` it stays away after a power loss. Raises OSError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    if sync:
        _sync_folder(path.parent)
    return True


def read_boot_id(path: Path) -> str:
    """Return the kernel's boot id, another one after each boot. Raises SetupError when it cannot be read."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"boot id file {path} cannot be read: {error}") from error
    if not text:
        raise SetupError(f"boot id file {path} is empty")
    return text


def is_old(path: Path, seconds: float = 60.0) -> bool:
    """Tell whether the file was last written so many seconds ago; False when it is gone."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
        return False


def is_listening(path: Path) -> bool:
    """Tell whether somebody may listen on this Unix socket: false only when it refuses a connection; never waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        code = probe.connect_ex(os.fspath(path))
    return code not in (errno.ECONNREFUSED, errno.ENOENT)  # a full backlog, or no permission, is no death


def clear_stale_socket(path: Path) -> bool:
    """Unlink a socket on which nobody listens; False when nothing was there.

    Raises SetupError, and leaves everything as it is, when somebody listens or something else stands there.
    """
    try:
        if not path.is_socket():
            if not path.exists():
                return False
            raise SetupError(f"{path} is in the way: it is not a socket")
        if is_listening(path):
            raise SetupError(f"another live instance listens on {path}")
        return remove(path)
    except OSError as error:
        raise SetupError(f"socket {path} cannot be cleared: {error}") from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # the folder went away: so did everything in it
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
