"""Entry point of `python -m hack.bench`."""

import sys

from hack.bench.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
