"""CDI specs: what a container runtime changes in a container that gets a device.

Two layers. A static spec per driver has an entry for each device whose edits need nothing from a claim; it changes only
with the inventory. Everything of a claim is one spec file of its own. Each write into the folder makes containerd read
all of it again, so a file whose content would not change is not written. Source: the CDI specification, 1.1.0.

The folder usually is a tmpfs and its content is void after a reboot, so nothing is synced to a disk; Prepare asks
``resolves`` and writes again what is missing.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dra_plugin import files
from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.resources import Value

__all__ = ["CdiDevice", "CdiFolder", "DeviceNode", "Edits", "Hook", "Mount", "NetDevice", "qualified"]

_KIND = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SUFFIX = ".json"


class DeviceNode(Value, frozen=True, kw_only=True):
    """A device node in the container. Without major and minor the runtime reads them from ``host_path`` or ``path``."""

    path: str
    host_path: str | None = None
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str | None = None
    uid: int | None = None
    gid: int | None = None


class Mount(Value, frozen=True, kw_only=True):
    """A mount in the container; ``options`` as for mount(8), ``bind`` among them for a bind mount."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str | None = None


class Hook(Value, frozen=True, kw_only=True):
    """A program that the runtime runs, at ``createRuntime`` and the like; ``timeout`` in seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(Value, frozen=True, kw_only=True):
    """A network interface that is moved into the container's network namespace (CDI 1.1.0, runc 1.4)."""

    host_interface_name: str
    name: str


class Edits(Value, frozen=True, kw_only=True):
    """What one device changes in a container. ``env`` holds ``NAME=value``."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(name="additionalGids", default=())


class CdiDevice(Value, frozen=True, kw_only=True):
    """One entry of a spec; ``name`` is unique in its kind, and never stands for other content in the same boot."""

    name: str
    edits: Edits = msgspec.field(name="containerEdits", default_factory=Edits)


class _Spec(Value, frozen=True, kw_only=True):
    """A spec file."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]


class _Names(msgspec.Struct, frozen=True):
    """The device names of one file, as long as its stamp (inode, time, size) stays."""

    stamp: tuple[int, int, int]
    kind: str
    names: frozenset[str]


def qualified(kind: str, name: str) -> str:
    """Return the fully qualified name ``vendor/class=name``."""
    return f"{kind}={name}"


class CdiFolder:
    """The folder that the container runtime watches, ``/var/run/cdi`` by default."""

    def __init__(self, path: Path) -> None:
        """Keep specs in ``path``, created at the first write."""
        self._path = path
        self._known: dict[Path, _Names] = {}

    def write_static(self, kind: str, devices: tuple[CdiDevice, ...]) -> bool:
        """Make the static spec of the kind hold exactly these devices; False when it did already.

        Without devices there is no file, since an empty spec is invalid. Raises SetupError.
        """
        path = self._file(kind)
        try:
            return self._replace(path, _spec(kind, devices)) if devices else files.remove(path)
        except OSError as error:
            raise SetupError(f"CDI spec {path} cannot be written: {error.strerror or error}") from error

    def write_claim(self, kind: str, uid: str, devices: tuple[CdiDevice, ...]) -> None:
        """Make the spec of one claim hold exactly these devices, named ``<uid>-<device>``. Raises ClaimError."""
        path = self._file(kind, uid)
        try:
            self._replace(path, _spec(kind, devices))
        except OSError as error:
            raise ClaimError(f"CDI spec {path} cannot be written: {error.strerror or error}") from error

    def remove_claim(self, kind: str, uid: str) -> bool:
        """Remove the spec of the claim; False when there was none. Raises ClaimError."""
        path = self._file(kind, uid)
        self._known.pop(path, None)
        try:
            return files.remove(path)
        except OSError as error:
            raise ClaimError(f"CDI spec {path} cannot be removed: {error.strerror or error}") from error

    def claims(self, kind: str) -> frozenset[str]:
        """Return the UIDs of the claims that have a spec of this kind. Raises SetupError."""
        prefix = _stem(kind) + "_"
        try:
            names = [path.name for path in self._path.iterdir()]
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise SetupError(f"CDI folder {self._path} cannot be read: {error.strerror or error}") from error
        return frozenset(n[len(prefix) : -len(_SUFFIX)] for n in names if n.startswith(prefix) and n.endswith(_SUFFIX))

    def paths(self, kind: str) -> list[Path]:
        """Return every file of this kind: the static spec, those of claims, and what killed processes were writing."""
        forms = (f"{_stem(kind)}{_SUFFIX}", f"{_stem(kind)}_*{_SUFFIX}")
        return [*(path for form in forms for path in sorted(self._path.glob(form))), *self._scraps(kind)]

    def clear_scraps(self, kind: str) -> None:
        """Remove what killed processes were writing of this kind, a minute ago or longer. Raises SetupError."""
        for path in filter(files.is_old, self._scraps(kind)):
            try:
                files.remove(path)
            except OSError as error:
                raise SetupError(f"{path} cannot be removed: {error.strerror or error}") from error

    def _scraps(self, kind: str) -> list[Path]:
        return sorted(self._path.glob(f".{_stem(kind)}*.tmp"))

    def resolves(self, ids: Iterable[str]) -> bool:
        """Tell whether each id is in a file of ours that stands in the folder now. One stat for a static id."""
        return all(any(self._holds(path, *_split(each)) for path in self._candidates(each)) for each in ids)

    def _candidates(self, device_id: str) -> Iterator[Path]:
        """Yield the files that may define the id: the static one, then a claim's, whose UID begins the device name."""
        kind, name = _split(device_id)
        yield self._file(kind)
        for end, character in enumerate(name):
            if character == "-":
                yield self._file(kind, name[:end])

    def _holds(self, path: Path, kind: str, name: str) -> bool:
        try:
            info = path.stat()
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            known = self._known.get(path)
            if known is None or known.stamp != stamp:
                known = _names(path.read_bytes(), stamp)
                self._known[path] = known
        except (OSError, msgspec.MsgspecError):
            self._known.pop(path, None)
            return False
        return known.kind == kind and name in known.names

    def _replace(self, path: Path, data: bytes) -> bool:
        try:
            if path.read_bytes() == data:
                return False
        except FileNotFoundError:
            self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        files.write_atomically(path, data, sync=False)
        return True

    def _file(self, kind: str, uid: str = "") -> Path:
        return self._path / f"{_stem(kind)}{'_' + uid.replace('/', '_') if uid else ''}{_SUFFIX}"


def _stem(kind: str) -> str:
    return kind.replace("/", "-")


def _split(device_id: str) -> tuple[str, str]:
    kind, _, name = device_id.partition("=")
    return kind, name


def _names(data: bytes, stamp: tuple[int, int, int]) -> _Names:
    spec = msgspec.json.decode(data, type=_Spec)
    return _Names(stamp, spec.kind, frozenset(device.name for device in spec.devices))


def _spec(kind: str, devices: tuple[CdiDevice, ...]) -> bytes:
    """Return the spec's JSON; ValueError for a name that CDI does not allow, since it would void the whole file."""
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{kind!r} is no CDI kind (vendor/class)")
    for device in devices:
        if not _DEVICE.fullmatch(device.name):
            raise ValueError(f"{device.name!r} is no CDI device name")
    return msgspec.json.encode(_Spec(cdi_version=_version(kind, devices), kind=kind, devices=devices)) + b"\n"


def _version(kind: str, devices: tuple[CdiDevice, ...]) -> str:
    """Return the lowest cdiVersion that covers what is used: runtimes refuse files that declare less, or too much."""
    edits = [device.edits for device in devices]
    needs = {
        "1.1.0": any(each.net_devices for each in edits),
        "0.7.0": any(each.additional_gids for each in edits),
        "0.6.0": "." in kind.partition("/")[2],
        "0.5.0": any(device.name[0].isdigit() for device in devices)
        or any(node.host_path for each in edits for node in each.device_nodes),
        "0.4.0": any(mount.type for each in edits for mount in each.mounts),
    }
    return next((version for version, needed in needs.items() if needed), "0.3.0")
