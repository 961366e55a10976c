"""Entry point of `python3 -m hack.cluster`."""

import sys

from hack.cluster.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
