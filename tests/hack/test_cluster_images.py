"""The images that are packed without a tool."""

import io
import json
import tarfile

from hack.cluster.images import Image, archive

IMAGE = Image("localhost/x:test", {"bin/x": b"#!"}, {"bin/y": "x"}, ("tmp",), ("/bin/x",))


def test_same_image_gives_same_bytes() -> None:
    """No clock and no user goes into an image."""
    assert archive(IMAGE) == archive(IMAGE)


def test_archive_is_consistent() -> None:
    """Every digest and size in index and manifest is that of a blob in the archive, and the name is there."""
    with tarfile.open(fileobj=io.BytesIO(archive(IMAGE))) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]  # no folders in it
    [entry] = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": "localhost/x:test"}
    manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
    for part in (entry, manifest["config"], *manifest["layers"]):
        assert len(files["blobs/" + part["digest"].replace(":", "/")]) == part["size"]
