"""metrics: what Prometheus reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dra_plugin.observe import CallDone, FieldsDropped, Observation, PoolSynced, SliceWritten
from drasim.metrics import Gauge, Metrics

DRIVER = "gpu.dra.example.com"


def read(metrics: Metrics, *gauges: Gauge) -> dict[str, float]:
    """Return every sample, as Prometheus would see it, under its name and labels."""
    families = text_string_to_metric_families(metrics.exposition(gauges).decode())
    return {
        " ".join([sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))]): sample.value
        for family in families
        for sample in family.samples
    }


def seen(*observations: Observation) -> Metrics:
    """Return metrics that have seen these."""
    metrics = Metrics()
    for observation in observations:
        metrics.observe(observation)
    return metrics


def call(seconds: float, error: str | None = None) -> CallDone:
    """Return a finished Prepare."""
    return CallDone(driver=DRIVER, operation="prepare", uid="uid", error=error, seconds=seconds)


def test_calls_are_a_histogram() -> None:
    """Buckets are cumulative, the sum is in seconds, and failures are counted apart."""
    samples = read(seen(call(0.001), call(0.002), call(100.0), call(0.1, "gone")))
    labels = f"driver={DRIVER}"
    good = f"{labels} {{}} operation=prepare outcome=success"
    assert samples[f"drasim_claim_seconds_bucket {good.format('le=0.001')}"] == 1
    assert samples[f"drasim_claim_seconds_bucket {good.format('le=45.0')}"] == 2
    assert samples[f"drasim_claim_seconds_bucket {good.format('le=+Inf')}"] == 3
    assert samples[f"drasim_claim_seconds_sum {labels} operation=prepare outcome=success"] == pytest.approx(100.003)
    assert samples[f"drasim_claim_seconds_count {labels} operation=prepare outcome=error"] == 1


def test_slice_writes_are_counted() -> None:
    """Each write of a slice counts, by pool and verb."""
    write = SliceWritten(driver=DRIVER, pool="a-gpu", verb="create", generation=1)
    assert read(seen(write, write))[f"drasim_slice_writes_total driver={DRIVER} pool=a-gpu verb=create"] == 2


@pytest.mark.parametrize(("error", "failing"), [("422", 1), (None, 0)])
def test_a_failing_pool_shows(error: str | None, failing: int) -> None:
    """A pool that cannot be written is 1 until it can."""
    samples = read(seen(PoolSynced(driver=DRIVER, pool="a-gpu", error=error)))
    assert samples[f"drasim_pool_failing driver={DRIVER} pool=a-gpu"] == failing


def test_dropped_fields_name_the_gates() -> None:
    """Who looks for the reason finds the feature gate."""
    dropped = FieldsDropped(driver=DRIVER, pool="a-gpu", fields=("taints",), gates=("DRADeviceTaints",))
    assert read(seen(dropped))[f"drasim_dropped_fields driver={DRIVER} gates=DRADeviceTaints pool=a-gpu"] == 1


def test_gauges_are_read_when_somebody_asks() -> None:
    """What is true now is given by the caller, one family for each name."""
    gauges = [Gauge("devices", "Devices", {"driver": name}, value) for name, value in (("a", 4), ("b", 8))]
    samples = read(Metrics(), *gauges)
    assert (samples["drasim_devices driver=a"], samples["drasim_devices driver=b"]) == (4, 8)


def test_the_process_itself_is_measured() -> None:
    """Memory and CPU of the process are there without further doing."""
    assert read(Metrics())["process_resident_memory_bytes"] > 0
