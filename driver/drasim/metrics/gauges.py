"""Figures that are read when somebody asks: what is true of the devices now. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from dra_plugin.health import Health, HealthReport
from dra_plugin.resources import Pool
from drasim.problems import Problem, standing

__all__ = ["Devices", "Gauge", "device_gauges"]

_STATES: Mapping[Health, str] = {
    Health.HEALTHY: "Healthy",
    Health.UNHEALTHY: "Unhealthy",
    Health.UNKNOWN: "Unknown",
}
_EFFECTS = ("None", "NoSchedule")


class Gauge(msgspec.Struct, frozen=True):
    """A number that is read when somebody asks: its name without ``drasim_``, what it means, its labels, itself."""

    name: str
    help: str
    labels: Mapping[str, str]
    value: float


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read of one driver's devices.

    Attributes:
        driver: its name.
        health: what the kubelet is told.
        pools: what is to be published.
        problems: by published name; those that are over do not count.
        unpublished: how many devices are left out of the slices though they are there.
    """

    driver: str
    health: HealthReport = ()
    pools: Mapping[str, Pool] = {}
    problems: Mapping[str, tuple[Problem, ...]] = {}
    unpublished: int = 0


def device_gauges(devices: Devices, now: float) -> Iterator[Gauge]:
    """Yield the figures of a driver's devices; ``now`` is Unix time in seconds."""
    yield from _health(devices)
    yield from _problems(devices)
    yield from _taints(devices)
    text = "Sick devices left out of the slices, because the server drops taints"
    yield Gauge("unpublished_devices", text, {"driver": devices.driver}, devices.unpublished)
    yield from _ages(devices, now)


def _health(devices: Devices) -> Iterator[Gauge]:
    """Yield one figure for each state, so that what is asked for is always there."""
    text = "1 for the state of health that a device has, 0 for the others"
    for each in devices.health:
        for state, name in _STATES.items():
            labels = {"driver": devices.driver, "device": each.device, "health": name}
            yield Gauge("device_health", text, labels, each.health is state)


def _problems(devices: Devices) -> Iterator[Gauge]:
    text = "Unix time since which a device has a problem; there while the problem stands"
    for device, problems in devices.problems.items():
        for problem in standing(problems):
            labels = {"driver": devices.driver, "device": device, "kind": problem.kind, "code": problem.code}
            yield Gauge("device_problem_start_time_seconds", text, labels, problem.since)


def _taints(devices: Devices) -> Iterator[Gauge]:
    published = [device for pool in devices.pools.values() for device in pool.devices]
    count = Counter(taint.effect for device in published for taint in device.taints or ())
    for effect in _EFFECTS:
        labels = {"driver": devices.driver, "effect": effect}
        yield Gauge("device_taints", "Taints on the published devices", labels, count[effect])


def _ages(devices: Devices, now: float) -> Iterator[Gauge]:
    for each in devices.health:
        if each.looked_at:
            labels = {"driver": devices.driver, "device": each.device}
            age = max(0.0, now - each.looked_at)
            yield Gauge("device_look_age_seconds", "Time since a device was last really looked at", labels, age)
