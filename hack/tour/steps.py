"""The steps of the tour. Each shows one thing and checks it; Failed says what was expected and what came."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from hack.tour import chart, pods
from hack.tour.clients import Failed, Object, wait_for
from hack.tour.devices import STANDARD, Key, Seen, allocated, attributes, rows
from hack.tour.health import OURS
from hack.tour.runner import Skipped, Step
from hack.tour.settings import Settings

FAULTS = "devicefaults.dra.example.com"
COLUMNS = ("driver", "pool", "device", "amount", "NUMA", "PCIe root", "PCI bus ID", "model", "health")


@dataclass
class Tour:
    """The tour of one cluster: what it was told, where it prints, and the claims that it has seen prepared."""

    settings: Settings
    console: Console
    claims: set[str] = field(default_factory=set)

    def steps(self) -> list[Step]:
        """Return the steps in order."""
        return [
            Step("The driver is installed with Helm and runs on every node", self.installed),
            Step("Both drivers publish what the node has", self.published),
            Step("A Pod asks for a GPU and a NIC on the same NUMA node", lambda: self.pair("numa-pair", "numaNode")),
            Step("A Pod asks for a GPU and a NIC below the same PCIe root", lambda: self.pair("pcie-pair", "pcieRoot")),
            Step("A Pod asks only for an extended resource", self.extended),
            Step("Two containers share a claim for two GPUs", self.shared),
            Step("The Pods are deleted, and nothing is left behind", self.unprepared),
        ]

    def installed(self) -> None:
        """Install or upgrade the chart and wait for its Pods."""
        files = "".join(f" --values {file}" for file in self.settings.values)
        where = f"charts/drasim --namespace {self.settings.namespace}{files} --wait"
        self.say(f"{shlex.join(self.settings.clients.helm)} upgrade --install {self.settings.release} {where}")
        chart.install(self.settings)
        status = chart.daemonset(self.settings)["status"]
        self.say(
            f"{status['numberReady']} of {status['desiredNumberScheduled']} Pods are ready, image {self.settings.image}"
        )
        self.clear()

    def published(self) -> None:
        """Show every device of both drivers in a table."""
        found = chart.slices(self.settings)
        table = Table(*COLUMNS, box=None, header_style="dim", pad_edge=False)
        for row in rows(found):
            table.add_row(*row)
        self.console.print(table)
        names = chart.drivers(self.settings)
        for kind, name in names.items():
            count = sum(len(entry["spec"].get("devices") or ()) for entry in found if entry["spec"]["driver"] == name)
            expect(count > 0, f"at least one {kind} device of {name}", "none")

    def pair(self, example: str, attribute: str) -> None:
        """Start a Pod whose two devices must agree in an attribute."""
        pod = self._start(example)
        output = self._shown(example)
        kinds = sorted(name.partition("-")[0] for name in output.devices)
        expect(kinds == ["gpu", "nic"], "a GPU and a NIC in the container", output.devices)
        places = attributes(chart.slices(self.settings))
        values = [places[key].get(f"{STANDARD}/{attribute}") for key in self.devices_of(pod)]
        expect(len(values) == 2 and len(set(values)) == 1, f"the same {attribute} twice", values)  # noqa: PLR2004 - a pair
        self.say(f"{attribute} of both: {values[0]}")

    def extended(self) -> None:
        """Start a Pod without any claim of its own."""
        name = self._extended_resource()
        pod = self._start("extended-resource")
        output = self._shown("extended-resource")
        expect([name.partition("-")[0] for name in output.devices] == ["gpu"], "one GPU", output.devices)
        claim = pods.claims(self.settings.clients, pod)[0]["metadata"]["name"]
        self.devices_of(pod)
        self.say(f"{name}: 1 became the claim {claim}, made by the scheduler")

    def shared(self) -> None:
        """Start a Pod in which two containers see the same two devices."""
        self.devices_of(self._start("shared-claim"))
        one, two = self._shown("shared-claim", "one"), self._shown("shared-claim", "two")
        expect(len(one.devices) == 2, "two GPUs in each container", one.devices)  # noqa: PLR2004 - what the claim asks for
        expect(one.devices == two.devices, "the same GPUs in both containers", (one.devices, two.devices))

    def unprepared(self) -> None:
        """Delete the Pods; every claim's CDI file and record must go."""
        before = self._left()
        expect(bool(before), "records of the claims while their Pods run", "none")
        self.say(f"{len(before)} files of {len(self.claims)} prepared claims; deleting the Pods")
        self.clear()
        wait_for("no file of a deleted claim is left", self._must_be_gone, within=60)
        self.say("no claim, no CDI file of a claim, no record is left")

    def devices_of(self, pod: Object) -> list[Key]:
        """Return the devices that a Pod's claims were given; the claims count as seen."""
        found = pods.claims(self.settings.clients, pod)
        self.claims |= {claim["metadata"]["uid"] for claim in found}
        return [key for claim in found for key in allocated(claim)]

    def apply(self, example: str, other: Mapping[str, str] = pods.AS_IT_IS) -> None:
        """Apply an example, with other words where they are given, and print what to type for that."""
        clients, image, namespace = self.settings.clients, self.settings.pod_image, self.settings.pods
        self.say(pods.typed(clients, example, image, namespace, other))
        clients.apply(pods.manifest(example, image, other), namespace)

    def clear(self) -> None:
        """Delete what this or an earlier tour made, claims and faults with it, and make the namespace."""
        clients, namespace = self.settings.clients, self.settings.pods
        clients.run("delete", FAULTS, "--selector", OURS, "--ignore-not-found")
        clients.run("delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout", "120s")
        clients.run("create", "namespace", namespace)
        pods.wait_account(clients, namespace)

    def say(self, text: str) -> None:
        """Print what was done or seen."""
        self.console.print(f"   {text}", highlight=False, markup=False, soft_wrap=True)

    def _start(self, example: str) -> Object:
        settings = self.settings
        chart.slices(settings)
        self.apply(example)
        pod = pods.running(settings.clients, example, settings.pods)
        self.say(f"Running on {pod['spec']['nodeName']}; kubectl logs {example}:")
        return pod

    def _shown(self, name: str, container: str = "main") -> Seen:
        output = pods.printed(self.settings.clients, name, self.settings.pods, container)
        self.say("\n   ".join([f"  [{container}]", *(f"  {key}={value}" for key, value in output.variables.items())]))
        self.say("  /dev/drasim: " + " ".join(output.nodes))
        expect(set(output.nodes) == set(output.devices), "a device node for each device", output.nodes)
        return output

    def _extended_resource(self) -> str:
        """Return the resource name of the GPU's class; skip when the server did not store one."""
        classes = self.settings.clients.items("deviceclasses")
        names = [name for entry in classes if (name := entry["spec"].get("extendedResourceName"))]
        if "dra.example.com/gpu" not in names:
            raise Skipped(
                "the server did not store the class's extendedResourceName (Kubernetes 1.36, or DRAExtendedResource)"
            )
        return "dra.example.com/gpu"

    def _left(self) -> list[str]:
        return [file for file in chart.files(self.settings) if any(uid in file for uid in self.claims)]

    def _must_be_gone(self) -> bool:
        if left := self._left():
            raise Failed(f"still there: {', '.join(left)}")
        return True


def expect(holds: bool, what: str, seen: object) -> None:  # noqa: FBT001 - reads like a sentence
    """Raise Failed unless it holds."""
    if not holds:
        shown = ", ".join(map(str, seen)) if isinstance(seen, Iterable) and not isinstance(seen, str) else seen
        raise Failed(f"expected {what}; seen: {shown}")
