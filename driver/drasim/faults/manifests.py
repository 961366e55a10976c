"""DeviceFaults in a YAML file: for a process without a cluster, and what `drasim fault --file` writes.

The same manifests that ``kubectl apply`` takes: several documents, or one List. Read strictly.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dra_plugin.files import write_atomically
from dra_plugin.resources import ObjectMeta
from drasim.config import ConfigError, dump_yaml, load_yaml_documents
from drasim.config.strict import Misfit, decode_strictly
from drasim.faults.objects import API_VERSION, DeviceFault, DeviceFaultSpec
from drasim.faults.wanted import moment, seconds_of, stamp
from drasim.hardware.simulated.faults import FaultRefused, checked_code, checked_kind

__all__ = ["check_spec", "manifest_of", "parse_manifests", "read_manifests", "write_manifests"]


_Code = Annotated[str, msgspec.Meta(description='text, a number in quotes, such as "79"')]


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``spec`` as users write it: nothing unknown in it."""

    node: str
    device: str | None = None
    all: Literal["gpu", "nic"] | None = None
    kind: str
    code: _Code | None = None
    after: str | None = None
    duration: str | None = None


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A whole object; a status, which ``kubectl get`` prints, is not looked at."""

    api_version: Literal["dra.example.com/v1alpha1"]
    kind: Literal["DeviceFault"]
    metadata: ObjectMeta
    spec: _Spec
    status: Any = None


def check_spec(spec: DeviceFaultSpec) -> None:
    """Raise FaultRefused for what no machine could do: as much as can be told without one."""
    checked_code(spec.kind, spec.code or "")
    if bool(spec.device) == bool(spec.all):
        raise FaultRefused("device", "exactly one of device and all must be given")
    if not spec.node:
        raise FaultRefused("node", "missing; needed: the name of a Node")
    if spec.all and checked_kind(spec.kind).root:
        raise FaultRefused(
            "all", f'"{spec.all}" is not allowed: {spec.kind} is done to a PCIe root; give one as device'
        )
    seconds_of("after", spec.after)
    seconds_of("duration", spec.duration)


def read_manifests(path: Path) -> tuple[DeviceFault, ...]:
    """Return the faults of a file; one that is missing has none. Raises ConfigError.

    Where an object does not say when it was created, the file's last change says it.
    """
    try:
        text, changed = path.read_text(), path.stat().st_mtime
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse_manifests(text, str(path), stamp(changed))


def parse_manifests(text: str, file: str, created: str) -> tuple[DeviceFault, ...]:
    """Return the faults that the YAML ``text`` describes; ``created`` is for those that do not say it.

    Raises ConfigError that names the file, the document, the field and what is allowed.
    """
    found: dict[str, DeviceFault] = {}
    for place, document in _documents(load_yaml_documents(text, file), file):
        obj = _decoded(document, file, place, created)
        name = obj.metadata.name or ""
        if name in found:
            raise ConfigError(file, f"{place}metadata.name", f'"{name}" is given twice; allowed: each name once')
        found[name] = obj
    return tuple(found.values())


def write_manifests(path: Path, faults: Iterable[DeviceFault]) -> None:
    """Replace the file by these faults. Raises OSError."""
    write_atomically(path, dump_yaml(map(manifest_of, faults)).encode(), sync=False)


def manifest_of(obj: DeviceFault) -> dict[str, Any]:
    """Return the object as plain values in the order in which people write them; without a status."""
    plain: dict[str, Any] = msgspec.to_builtins(obj)
    members = ("name", "creationTimestamp", "labels", "annotations")
    meta = {name: plain["metadata"][name] for name in members if name in plain["metadata"]}
    return {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": meta, "spec": plain["spec"]}


def _documents(documents: list[dict[str, Any]], file: str) -> Iterator[tuple[str, Any]]:
    """Yield each manifest, and the place of it in messages: empty where there is only one."""
    for number, document in enumerate(documents):
        place = f"[{number}]." if len(documents) > 1 else ""
        if document.get("kind") != "List":
            yield place, document
            continue
        items = document.get("items")
        if not isinstance(items, list):
            raise ConfigError(file, f"{place}items", "missing; needed: a list of DeviceFaults")
        for index, item in enumerate(items):
            yield f"{place}items[{index}].", item


def _decoded(document: object, file: str, place: str, created: str) -> DeviceFault:
    try:
        read = decode_strictly(document, _Manifest)
    except Misfit as misfit:
        raise ConfigError(file, f"{place}{misfit.key}".rstrip("."), misfit.problem) from None
    if not read.metadata.name:
        raise ConfigError(file, f"{place}metadata.name", "missing; needed: a name that no other fault here has")
    spec = DeviceFaultSpec(**msgspec.structs.asdict(read.spec))
    try:
        check_spec(spec)
    except FaultRefused as refusal:
        raise ConfigError(file, f"{place}spec.{refusal.field}", refusal.problem) from None
    return DeviceFault(api_version=API_VERSION, metadata=_dated(read.metadata, created), spec=spec)


def _dated(meta: ObjectMeta, created: str) -> ObjectMeta:
    """Return what is the user's of the metadata, with a time of creation that can be read."""
    known = meta.creation_timestamp if moment(meta.creation_timestamp) is not None else created
    return ObjectMeta(name=meta.name, labels=meta.labels, annotations=meta.annotations, creation_timestamp=known)
