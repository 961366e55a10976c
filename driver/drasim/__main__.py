"""The command ``drasim``: dispatch, and what errors mean for the exit code. Nothing else exits.

0: done. 1: it did not work. 2: what the user wrote cannot be used.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from dra_plugin.errors import PluginError
from drasim.config import ConfigError

__all__ = ["execute", "main"]

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells count


def main() -> None:
    """Run the command line of this process."""
    try:
        code = execute(sys.argv[1:], os.environ)
    except KeyboardInterrupt:  # before the command could look after it itself
        code = INTERRUPTED
    sys.exit(code)


def execute(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one command and return the exit code; what went wrong is written to stderr, one line each."""
    found: list[Exception] = []
    try:
        _dispatch(arguments, env)
        sys.stdout.flush()
    except* (PluginError, OSError) as errors:
        found.extend(_leaves(errors))
    for line in dict.fromkeys(f"drasim: {error}" for error in found):  # both drivers may say the same
        print(line, file=sys.stderr)
    if any(isinstance(error, ConfigError) for error in found):
        return BAD_INPUT
    return FAILED if found else DONE


def _dispatch(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Run the daemons without the packages of people's commands, which cost a third of a second."""
    if arguments[:1] == ["node"]:
        from drasim.cli import node

        node.node(arguments[1:], env)
    elif arguments[:1] == ["controller"]:
        from drasim.cli import controller

        controller.controller(arguments[1:], env)
    else:
        from drasim.cli.commands import app

        app(list(arguments), prog_name="drasim", standalone_mode=True)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


if __name__ == "__main__":
    main()
