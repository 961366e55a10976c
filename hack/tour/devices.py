"""What slices, claims and containers say about devices; pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hack.tour.clients import Object

STANDARD = "resource.kubernetes.io"
VARIABLE = re.compile(r"DRASIM_((?:GPU|NIC)_\d+)=(.+)")
NODE = re.compile(r"(?:gpu|nic)-\d+")
ROW = ("numaNode", "pcieRoot", "pciBusID", "model", "health")

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Seen:
    """What a container printed: its devices by name (the value identifies them), all variables, and device nodes."""

    devices: Mapping[str, str]
    variables: Mapping[str, str]
    nodes: tuple[str, ...]


def seen(log: str) -> Seen:
    """Read what a container of the examples printed."""
    lines = log.splitlines()
    variables = dict(line.split("=", 1) for line in lines if line.startswith("DRASIM_") and "=" in line)
    matches = [match for line in lines if (match := VARIABLE.fullmatch(line))]
    devices = {match[1].lower().replace("_", "-"): match[2] for match in matches}
    return Seen(devices, variables, tuple(line for line in lines if NODE.fullmatch(line)))


def attributes(slices: Iterable[Object]) -> dict[Key, dict[str, object]]:
    """Return the attributes of every device, by driver, pool and device, each value without its type."""
    return {
        (entry["spec"]["driver"], entry["spec"]["pool"]["name"], device["name"]): _plain(device.get("attributes", {}))
        for entry in slices
        for device in entry["spec"].get("devices") or ()
    }


def _plain(typed: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    return {name: next(iter(value.values())) for name, value in typed.items()}


def allocated(claim: Object) -> list[Key]:
    """Return the devices that a claim was given."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or ()
    return [(result["driver"], result["pool"], result["device"]) for result in results]


def rows(slices: Iterable[Object]) -> list[tuple[str, ...]]:
    """Return a row for each device: driver, pool, device, capacity, and some of its attributes."""
    table = []
    for entry in slices:
        spec = entry["spec"]
        for device in spec.get("devices") or ():
            plain = _plain(device.get("attributes", {}))
            memory = device.get("capacity", {}).get("memory", {}).get("value")
            speed = plain.get("linkSpeedGbps")
            amount = memory or (f"{speed} Gb/s" if speed else "")
            named = [str(plain.get(f"{STANDARD}/{name}", plain.get(name, ""))) for name in ROW]
            table.append((spec["driver"], spec["pool"]["name"], device["name"], amount, *named))
    return sorted(table, key=lambda row: (row[0], row[1], len(row[2]), row[2]))
