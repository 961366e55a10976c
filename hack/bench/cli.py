"""The command line: `python -m hack.bench`. Builds, starts a cluster of its own, measures, prints, ends the cluster."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hack.bench import figures, plan, programs, report
from hack.bench.contestants import SLICE, full_of
from hack.bench.inside import say
from hack.bench.plan import Plan

NODE = "node1"
QUIET = 0.5
"""Processes that want to run, on average: more, and something else is at work here."""
SAMPLES = programs.BUILD / "samples.json"
DONE, FAILED, BAD_INPUT, UNABLE = 0, 1, 2, 3


def main(argv: Sequence[str]) -> int:
    """Run and return the exit code: 0 measured, 1 failed, 2 asked wrongly, 3 not on this machine."""
    asked = parser().parse_args(argv)
    try:
        wanted = planned(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    if os.geteuid() != 0:
        print("error: a real Kubernetes needs root", file=sys.stderr)
        return UNABLE
    try:
        return _run(asked, wanted)
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd))}: exit code {error.returncode}", file=sys.stderr)
        return FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    top = argparse.ArgumentParser(prog="python -m hack.bench", description=__doc__)
    top.add_argument("--quick", action="store_true", help="little of everything: does it work?")
    top.add_argument("--only", action="append", default=[], metavar="FIGURE", help="a figure or group; repeatable")
    top.add_argument("--rounds", type=int, help="how often everything is measured (default 3)")
    top.add_argument("--json", type=Path, default=programs.BUILD.parent / "bench.json", help="default %(default)s")
    top.add_argument("--cluster", default="bench", metavar="NAME", help="name of the cluster (default %(default)s)")
    top.add_argument("--keep", action="store_true", help="leave the cluster up")
    top.add_argument("--python", type=Path, help="run our driver with this Python (default: the system's)")
    return top


def planned(asked: argparse.Namespace) -> Plan:
    """Return what is to be measured. Raises ValueError."""
    groups = figures.groups_for(asked.only)
    rounds = {} if asked.rounds is None else {"rounds": asked.rounds}
    if asked.rounds is not None and asked.rounds < 1:
        raise ValueError("--rounds: at least 1")
    if asked.quick:
        return plan.changed(plan.quick(groups), **rounds)
    return Plan(groups=groups, **rounds)


def _run(asked: argparse.Namespace, wanted: Plan) -> int:
    minutes = max(1, round(wanted.seconds() / 60))
    print(f"bench: {', '.join(wanted.groups)}; {wanted.rounds} rounds; about {minutes} min, plus building what is not")
    print(
        "built yet (Go driver: 2 min; Kubernetes: 10 min). Anything else that runs here meanwhile shows in the figures."
    )
    load = os.getloadavg()[0]
    if load > QUIET:
        print(f"warning: the machine is busy (load {load:.1f}); ratios may still be read, amounts may not")
    programs.BUILD.mkdir(parents=True, exist_ok=True)
    say("laying out our driver as in its image")
    programs.drasim(asked.python)
    say("building the driver on the Go helper")
    programs.godriver()
    orders = {"node": NODE, "folder": str(programs.BUILD), "plan": plan.as_json(wanted)}
    programs.machine(SLICE, full_of(programs.machine(wanted.machine)))
    with cluster(asked.cluster, keep=asked.keep) as kubeconfig:
        if "faults" in wanted.groups:
            programs.fault_definition(asked.cluster)
        complete = _measure(asked.cluster, {**orders, "kubeconfig": kubeconfig})
    if SAMPLES.is_file():
        _report(asked, wanted, {"complete": complete, "load_before": load})
    return DONE if complete else FAILED


@contextmanager
def cluster(name: str, *, keep: bool) -> Iterator[str]:
    """Run a cluster of one node; yields the path of its kubeconfig. One that was up before stays up."""
    before = subprocess.run(_launcher("status", name), capture_output=True, check=False).returncode == 0
    try:
        subprocess.run(_launcher("up", name), check=True)
        told = subprocess.run(_launcher("kubeconfig", name), check=True, capture_output=True, text=True)
        yield told.stdout.strip()
    finally:
        if not before and not keep:
            subprocess.run(_launcher("down", name), check=True)


def _launcher(command: str, name: str) -> list[str]:
    return [sys.executable, "-m", "hack.cluster", command, "--name", name]


def _measure(name: str, orders: dict[str, Any]) -> bool:
    """Measure in the node, which writes what it knows as it goes; tell whether it came to the end."""
    SAMPLES.unlink(missing_ok=True)
    path = programs.BUILD / "orders.json"
    path.write_text(json.dumps(orders))
    for log in programs.BUILD.glob("*.log"):
        log.unlink()
    command = [*_launcher("exec", name), "--node", "1", "--", sys.executable, "-m", "hack.bench.inside", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(programs.ROOT)}
    return subprocess.run(command, check=False, env=environment).returncode == 0


def _report(asked: argparse.Namespace, wanted: Plan, about: dict[str, Any]) -> None:
    measured = json.loads(SAMPLES.read_text())
    rows = figures.judge(measured["samples"])
    report.show(rows)
    for name, errors in measured["failures"].items():
        for error, count in errors.items():
            print(f"{name}: {count} calls failed: {error}")
    about |= {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": platform.platform()}
    about |= {"cpus": os.cpu_count(), "load_after": os.getloadavg()[0], "plan": plan.as_json(wanted)}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps({**about, "figures": report.plain(rows), **measured}, indent=1))
    print(f"all values: {asked.json}; the drivers' logs: {programs.BUILD}")
    if not about["complete"]:
        print("error: not everything was measured; the reason stands above", file=sys.stderr)
