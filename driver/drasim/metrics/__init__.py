"""Metrics: what happened, counted in plain numbers, turned into Prometheus text only when somebody asks.

``prometheus_client`` is imported at the first scrape: a driver that nobody scrapes does not pay for it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from dra_plugin.observe import CallDone, FieldsDropped, Observation, PoolSynced, SliceWritten
from drasim.metrics.delays import Delays, Taints, taints_in
from drasim.metrics.gauges import Devices, Gauge, device_gauges

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["BUCKETS", "Devices", "Gauge", "Metrics", "Taints", "device_gauges", "taints_in"]

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
"""Upper bounds in seconds; the kubelet gives a call 45."""


class _Durations:
    """Durations in seconds, by labels, as the buckets of a histogram."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._seconds: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], seconds: float) -> None:
        counts = self._counts.setdefault(labels, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[labels] = self._seconds.get(labels, 0.0) + seconds

    def family(self, name: str, text: str, labels: tuple[str, ...]) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(name, text, labels=labels)
        bounds = (*(str(bound) for bound in BUCKETS), "+Inf")
        for key, counts in self._counts.items():
            buckets = [(bound, float(count)) for bound, count in zip(bounds, accumulate(counts), strict=True)]
            family.add_metric(key, buckets, sum_value=self._seconds[key])
        return family


class Metrics:
    """Counts observations of all drivers of the process."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._calls, self._faults, self._rules = _Durations(), _Durations(), _Durations()
        self._delays: dict[str, Delays] = {}
        self._writes: Counter[tuple[str, str, str]] = Counter()
        self._failing: dict[tuple[str, str], bool] = {}
        self._dropped: dict[tuple[str, str], FieldsDropped] = {}

    def observe(self, observation: Observation) -> None:
        """Count one observation."""
        match observation:
            case CallDone():
                self._calls.add(_outcome(observation), observation.seconds)
            case SliceWritten(driver=driver, pool=pool, verb=verb):
                self._writes[driver, pool, verb] += 1
            case PoolSynced(driver=driver, pool=pool, error=error):
                self._failing[driver, pool] = error is not None
            case FieldsDropped(driver=driver, pool=pool, fields=()):
                self._dropped.pop((driver, pool), None)
            case FieldsDropped(driver=driver, pool=pool):
                self._dropped[driver, pool] = observation

    def wanted(self, driver: str, taints: Taints, seen: float, *, ours: bool = True) -> None:
        """Note which taints the driver's slices should have, after a look at the Unix time ``seen``.

        ``ours`` tells whether this instance writes them.
        """
        delays = self._delays.setdefault(driver, Delays())
        delays.wanted(taints, seen)
        if not ours:
            delays.drop()

    def synced(self, driver: str, now: float) -> None:
        """Count how long it took, now (Unix time) that the driver's slices say what they should."""
        for seconds in self._delays.setdefault(driver, Delays()).synced(now):
            self._faults.add((driver,), seconds)

    def ruled(self, driver: str, seconds: float) -> None:
        """Count how long it took from a problem's beginning until the controller had made a rule for it."""
        self._rules.add((driver,), max(0.0, seconds))

    def exposition(self, gauges: Iterable[Gauge] = ()) -> bytes:
        """Return everything in Prometheus' text format, with ``gauges`` and the figures of the process."""
        from prometheus_client import ProcessCollector, generate_latest
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Collected(tuple(self._collect(tuple(gauges)))))
        return generate_latest(registry)

    def _collect(self, gauges: tuple[Gauge, ...]) -> Iterator["Metric"]:
        text = "Time until one claim of a call was answered"
        yield self._calls.family("drasim_claim_seconds", text, ("driver", "operation", "outcome"))
        text = "Time from the look that saw a fault until the slices had its taint"
        yield self._faults.family("drasim_fault_to_slice_seconds", text, ("driver",))
        text = "Time from the beginning of a problem, in whole seconds, until its DeviceTaintRule was made"
        yield self._rules.family("drasim_fault_to_rule_seconds", text, ("driver",))
        yield self._slice_writes()
        yield from _gauges((*gauges, *self._pool_gauges()))

    def _slice_writes(self) -> "Metric":
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily("drasim_slice_writes", "ResourceSlices written", labels=("driver", "pool", "verb"))
        for key, count in self._writes.items():
            family.add_metric(key, count)
        return family

    def _pool_gauges(self) -> Iterator[Gauge]:
        for (driver, pool), failing in self._failing.items():
            labels = {"driver": driver, "pool": pool}
            yield Gauge(
                "pool_failing", "1 while the stored slices of a pool cannot be made the wanted ones", labels, failing
            )
        for dropped in self._dropped.values():
            labels = {"driver": dropped.driver, "pool": dropped.pool, "gates": ",".join(dropped.gates)}
            text = "Fields that the server removed because a feature gate is off"
            yield Gauge("dropped_fields", text, labels, len(dropped.fields))


class _Collected:
    """What a registry asks for its metrics."""

    def __init__(self, metrics: tuple["Metric", ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple["Metric", ...]:
        return self._metrics


def _outcome(call: CallDone) -> tuple[str, str, str]:
    return call.driver, call.operation, "error" if call.error else "success"


def _gauges(gauges: Iterable[Gauge]) -> Iterable["Metric"]:
    """Return one family for each name."""
    from prometheus_client.core import GaugeMetricFamily

    families: dict[str, GaugeMetricFamily] = {}
    for gauge in gauges:
        name = f"drasim_{gauge.name}"
        family = families.setdefault(name, GaugeMetricFamily(name, gauge.help, labels=tuple(gauge.labels)))
        family.add_metric(tuple(gauge.labels.values()), float(gauge.value))
    return families.values()
