"""Debian packages: found by what they bring, installed when that is possible, else named in one line."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import UnableError

BUSYBOX = Path("/bin/busybox")


@dataclass(frozen=True)
class Package:
    """A Debian package and how to see that what it brings is there, however it came there."""

    name: str
    present: Callable[[], bool]


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _file(path: str) -> Callable[[], bool]:
    return lambda: Path(path).exists()


def _library(name: str) -> Callable[[], bool]:
    return lambda: shutil.which("pkg-config") is not None and _succeeds("pkg-config", "--exists", name)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def static_busybox() -> bool:
    """Tell whether busybox is there and needs no shared library: it has to run in an image that has none."""
    if not BUSYBOX.exists():
        return False
    with BUSYBOX.open("rb") as file:
        return b"/ld-linux" not in file.read(4096)


BUILD = (
    Package("gcc", _command("gcc")),
    Package("libc6-dev", _file("/usr/include/stdio.h")),
    Package("pkg-config", _command("pkg-config")),
    Package("libseccomp-dev", _library("libseccomp")),
    Package("busybox-static", static_busybox),
)
RUN = (
    Package("iproute2", _command("ip")),
    Package("iptables", _command("iptables-restore")),
    Package("util-linux", _command("nsenter")),
    Package("openssl", _command("openssl")),
)


def missing(wanted: Sequence[Package]) -> list[str]:
    """Return the names of the packages that have to be installed."""
    return [package.name for package in wanted if not package.present()]


def require(wanted: Sequence[Package], say: Callable[[str], None]) -> None:
    """Install what is missing, as root on Debian and its children; elsewhere say what to install."""
    names = missing(wanted)
    if not names:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        msg = f"install these packages first (or run as root on Debian or Ubuntu): {' '.join(names)}"
        raise UnableError(msg)
    say(f"installing Debian packages: {' '.join(names)}")
    _install(names)
    if left := missing(wanted):
        msg = f"installed, but still not usable: {' '.join(left)}"
        raise UnableError(msg)


def _install(names: Sequence[str]) -> None:
    install = ["apt-get", "install", "-y", "--no-install-recommends", *names]
    for command in (["apt-get", "update"], install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
            msg = f"apt-get could not install {' '.join(names)}: {''.join(tail)}"
            raise UnableError(msg)
