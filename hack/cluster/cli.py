"""The command line: `python3 -m hack.cluster COMMAND`."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence

from hack.cluster import commands
from hack.cluster.errors import ClusterError
from hack.cluster.gates import ALL, STOCK
from hack.cluster.settings import COMPONENTS

INTERRUPTED = 130
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def main(argv: Sequence[str]) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 asked wrongly, 3 this machine cannot."""
    try:
        asked = parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = asked.run
        return run(asked)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(prog="python3 -m hack.cluster", description="A real Kubernetes on this machine.")
    adding = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        sub = adding.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        if name != "build":
            default = os.environ.get("DRASIM_CLUSTER", "drasim")
            sub.add_argument("--name", type=_name, default=default, help="the cluster's name (default %(default)s)")
        return sub

    add("build", commands.build, "build what a cluster is made of, into the cache")
    _add_up(add("up", commands.up, "build what is missing, start a cluster, wait until it can be used"))
    add("down", commands.down, "end the cluster; nothing of it is left")
    shown = add("status", commands.status, "show the components and nodes; exit code 1 unless all are ready")
    shown.add_argument("--json", action="store_true", help="for programs")
    for word in ("stop", "start", "restart"):
        _add_component(add(word, commands.change, f"{word} a component"), word)
    _add_load(add("load", commands.load, "import an image archive on every node"))
    inside = add("exec", commands.inside, "run a command in a node, with everything the node has of its own")
    inside.add_argument("--node", type=int, default=1, help="which node (default 1)")
    for sub in (
        inside,
        add("run", commands.beside, "run a command in the cluster's network, with this machine's files"),
    ):
        sub.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")
    add("kubeconfig", commands.kubeconfig, "print the path of the kubeconfig; it works where `run` and `exec` lead")
    _add_logs(add("logs", commands.logs, "print the log of a component"))
    return top


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        msg = f"{text!r}: a cluster's name has small letters, digits and dashes, 31 at most"
        raise argparse.ArgumentTypeError(msg)
    return text


def _add_up(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="how many nodes (default 1)")
    sub.add_argument(
        "--gates",
        choices=(STOCK, ALL),
        default=STOCK,
        help="stock: as Kubernetes comes; all: every alpha and beta gate and API of devices, workloads, autoscaling",
    )
    sub.add_argument(
        "--feature-gate", action="append", default=[], metavar="X=true", help="one more gate; what it needs comes too"
    )
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="COMPONENT.key=value",
        help="a field of a configuration file (kubelet.syncFrequency=5s, kube-scheduler.plugin.NAME.FIELD=V), "
        "or a flag (kube-apiserver.v=4, kubelet.--v=4)",
    )
    sub.add_argument("--memory", type=_size, default=8 * 2**30, help="limit for everything together (default 8G)")


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([MG])", text)
    if not found:
        msg = f"{text!r}: expected a number with M or G, for example 8G"
        raise argparse.ArgumentTypeError(msg)
    return int(found[1]) * {"M": 2**20, "G": 2**30}[found[2]]


def _add_component(sub: argparse.ArgumentParser, word: str) -> None:
    sub.add_argument("component", choices=COMPONENTS)
    sub.add_argument("--node", type=int, help="on this node only")
    sub.set_defaults(word=word, kill=False)
    if word != "start":
        sub.add_argument("--kill", action="store_true", help="with SIGKILL, as in a crash")


def _add_load(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("archive", metavar="IMAGE.tar", help="an OCI or docker archive")


def _add_logs(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("component", choices=(*COMPONENTS, "keeper"))
    sub.add_argument("--node", type=int, help="of this node (default: the first)")
    sub.add_argument("--follow", "-f", action="store_true", help="go on printing")
