"""The two images a cluster needs before it has a registry: pause for every pod, busybox for pods of tests."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hack.cluster import cache
from hack.cluster.errors import ClusterError
from hack.cluster.folders import SOURCE
from hack.cluster.packages import BUSYBOX

PAUSE_SOURCE = SOURCE / "pause.c"
PAUSE = "localhost/pause:test"
BUSYBOX_IMAGE = "localhost/busybox:test"
COMPILE = ("gcc", "-static", "-O2", "-s", "-Wall", "-Werror")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True)
class Image:
    """A one-layer image of static binaries."""

    name: str
    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""


def target() -> Path:
    """Return where the images lie in the cache; a new busybox of the distribution makes new images."""
    sources = [PAUSE_SOURCE, Path(__file__), *([BUSYBOX] if BUSYBOX.exists() else [])]
    return cache.place("images", cache.key_of([*COMPILE, os.uname().machine], sources))


def pack(folder: Path) -> None:
    """Write `pause.tar` and `busybox.tar`, OCI archives."""
    (folder / "pause.tar").write_bytes(
        archive(Image(PAUSE, {"pause": _pause(folder)}, command=("/pause",), user="65535:65535"))
    )
    (folder / "busybox.tar").write_bytes(archive(_busybox()))


def _pause(folder: Path) -> bytes:
    binary = folder / "pause"
    done = subprocess.run([*COMPILE, "-o", binary, PAUSE_SOURCE], capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"cannot compile {PAUSE_SOURCE.name}: {done.stderr.strip()}"
        raise ClusterError(msg)
    content = binary.read_bytes()
    binary.unlink()
    return content


def _busybox() -> Image:
    listed = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    links = {f"bin/{applet}": "busybox" for applet in listed.stdout.split() if applet != "busybox"}
    passwd = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    files = {"bin/busybox": BUSYBOX.read_bytes(), "etc/passwd": passwd, "etc/group": b"root:x:0:\nnogroup:x:65534:\n"}
    return Image(BUSYBOX_IMAGE, files, links, ("root", "tmp", "var", "dev", "proc", "sys"), ("/bin/sh",))


def archive(image: Image) -> bytes:
    """Return an OCI archive; the same image gives the same bytes, since no clock and no user goes in."""
    layer = _layer(image)
    config = _config(image, layer)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": _descriptor(config, "config.v1+json"),
            "layers": [_descriptor(layer, "layer.v1.tar")],
        }
    )
    entry = {**_descriptor(manifest, "manifest.v1+json"), "annotations": {"io.containerd.image.name": image.name}}
    index = _json({"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [entry]})
    blobs = {f"blobs/sha256/{_hash(blob)}": blob for blob in (config, manifest, layer)}
    return _tar({"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs})


def _config(image: Image, layer: bytes) -> bytes:
    run = {"Env": ["PATH=/bin"], "Cmd": list(image.command), "User": image.user}
    machine = os.uname().machine
    return _json(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_hash(layer)}"]},
        }
    )


def _descriptor(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{_hash(blob)}", "size": len(blob)}


def _hash(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            _add_file(tar, name, content)
    return out.getvalue()


def _layer(image: Image) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in image.folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, content in image.files.items():
            _add_file(tar, name, content)
        for name, to in image.links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            tar.addfile(entry)
    return out.getvalue()


def _add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    tar.addfile(entry, io.BytesIO(content))
