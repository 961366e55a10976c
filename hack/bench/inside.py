"""The measuring itself; runs in everything a node has of its own (`hack.cluster exec`), as the drivers it starts do.

python -m hack.bench.inside ORDERS.json
"""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.bench import calling, faults, memory, objects, pods, setup, startup
from hack.bench.api import Api, Watch, from_kubeconfig
from hack.bench.contestants import REGISTRY, Contestant, contestants
from hack.bench.figures import OURS
from hack.bench.instance import Place, started, wait_for
from hack.bench.plan import Plan, amounts, from_json, order
from hack.bench.samples import Collected
from hack.bench.setup import Claims

ALLOCATED = ("calls", "memory")
"""What is measured with claims allocated by hand. They come last: to the scheduler their devices are taken."""
ALONE = ("faults",)
"""What only our driver does."""


class Run:
    """All rounds of a plan on one node."""

    def __init__(self, place: Place, plan: Plan, every: Mapping[str, Contestant], results: Path) -> None:
        self._place, self._plan, self._every, self._results = place, plan, every, results
        self._collected = Collected()
        self._claims: dict[str, Claims] = {}
        self._pods = Watch(place.api, objects.PODS)

    def run(self) -> None:
        """Measure everything; what is known is written after each step, lest an interrupted run is lost."""
        setup.device_classes(self._place.api, tuple(self._every.values()))
        self._warm_up()
        self._rounds([group for group in self._plan.groups if group not in ALLOCATED])
        by_hand = [group for group in self._plan.groups if group in ALLOCATED]
        if by_hand:
            self._make_claims()
            self._rounds(by_hand)

    def _rounds(self, groups: Sequence[str]) -> None:
        steps = [
            (number, group, name)
            for number in range(self._plan.rounds)
            for group in groups
            for name in order(number)
            if name == OURS or group not in ALONE
        ]
        for number, group, name in steps:
            say(f"round {number + 1} of {self._plan.rounds}: {group}: {name}")
            self._measure(group, self._every[name], amounts(self._plan, number, name))
            self._results.write_text(json.dumps(self._collected.as_json()))

    def _make_claims(self) -> None:
        for name, contestant in self._every.items():
            say(f"making {self._plan.claims + self._plan.many} claims for {name}")
            self._claims[name] = setup.make_claims(
                self._place.api, contestant, self._plan.claims, parameters=self._plan.many
            )

    def _warm_up(self) -> None:
        """Start everything once: files are read, and the kubelet has seen a driver of each name."""
        for name, contestant in self._every.items():
            say(f"warming up {name}")
            with started(self._place, contestant) as instance:
                instance.wait_slices()

    def _measure(self, group: str, contestant: Contestant, plan: Plan) -> None:
        place, collected = self._place, self._collected
        match group:
            case "startup":
                startup.measure(place, self._pods, contestant, plan.starts, collected)
            case "calls":
                calling.measure(place, contestant, self._claims[contestant.name], plan, collected)
            case "faults":
                faults.measure(place, self._pods, contestant, plan, collected)
            case "pods":
                pods.measure(place, self._pods, contestant, plan.pods, collected)
            case "memory":
                memory.measure(place, contestant, self._claims[contestant.name], plan, collected)


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"  {text}", flush=True)


def execute(orders: Mapping[str, Any]) -> None:
    """Do what the file of orders says."""
    node, folder = orders["node"], Path(orders["folder"])
    if socket.gethostname() != node or not REGISTRY.parent.is_dir():
        raise RuntimeError(f"this is not {node}: run it with python -m hack.bench")
    plan, api = from_json(orders["plan"]), Api(from_kubeconfig(Path(orders["kubeconfig"])))
    with setup.identity(api) as found:
        setup.clear(api)
        setup.define(api, folder / "devicefaults.json")
        accounts = f"/api/v1/namespaces/{objects.NAMESPACE}/serviceaccounts"
        wait_for(lambda: any(a["metadata"]["name"] == "default" for a in api.get(accounts)["items"]), "ServiceAccount")
        environment = {**os.environ, **found}
        place = Place(api, Watch(api, objects.SLICES), environment, folder)
        every = contestants(folder, node, folder / "machine.yaml")
        Run(place, plan, every, folder / "samples.json").run()
        setup.clear(api)


if __name__ == "__main__":
    execute(json.loads(Path(sys.argv[1]).read_text()))
