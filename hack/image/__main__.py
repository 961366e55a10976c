"""Entry point of `hack/image/build`, which is `python3 -m hack.image`."""

import argparse
import sys
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.progress import Progress
from hack.image.build import build


def main(arguments: list[str]) -> int:
    """Build the image, say where it is and what takes its room; the path alone goes to stdout."""
    parser = argparse.ArgumentParser(prog="hack/image/build", description="Build the driver's image as an OCI archive.")
    parser.add_argument("--output", type=Path, help="also copy the archive to this file")
    output: Path | None = parser.parse_args(arguments).output
    progress = Progress(sys.stderr)
    try:
        image = build(progress)
    except ClusterError as error:
        progress.say(f"hack/image/build: {error}")
        return error.code
    if output:
        output.write_bytes(image.archive.read_bytes())
    progress.say(f"image {image.reference}\n{image.report}")
    print(output or image.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
