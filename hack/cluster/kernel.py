"""System calls that Python 3.11 does not offer, with readable errors."""

import ctypes
import os
from pathlib import Path

MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str | None, target: Path | str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """Ask the kernel for a mount; paths stay as given, so a source may be a descriptor below /proc/self/fd."""
    wanted = [source, str(target), kind]
    words = [None if word is None else word.encode() for word in wanted]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or ''} {source or ''}: {os.strerror(number)}", str(target))


def bind(source: Path | str, target: Path | str, *, recursive: bool = False) -> None:
    """Make a file or folder visible at a second place."""
    mount(str(source), target, flags=MS_BIND | (MS_REC if recursive else 0))


def unshare(flags: int) -> None:
    """Give this process (for CLONE_NEWPID: its next children) namespaces of its own."""
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
