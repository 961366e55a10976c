"""Entry point of `python3 -m hack.tour`, which hack/demo starts once the cluster is there."""

import sys

from rich.console import Console

from hack.tour.parts import steps
from hack.tour.runner import run
from hack.tour.settings import from_environment

WIDTH = 120


def main() -> int:
    """Take the tour; 0 when every step passed or was skipped with a reason."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    settings = from_environment()
    return run(steps(settings, console), settings, console)


if __name__ == "__main__":
    sys.exit(main())
