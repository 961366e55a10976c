"""metrics: what Prometheus reads."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dra_plugin.health import DeviceHealth, Health
from dra_plugin.observe import CallDone, FieldsDropped, Observation, PoolSynced, SliceWritten
from dra_plugin.resources import Device, DeviceTaint, Pool
from drasim.metrics import Devices, Gauge, Metrics, device_gauges, taints_in
from drasim.problems import Problem

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


def test_fields_that_are_kept_again_are_no_figure_any_more() -> None:
    """The gate was switched on: an alert on it ends."""
    dropped = FieldsDropped(driver=DRIVER, pool="a-gpu", fields=("taints",), gates=("DRADeviceTaints",))
    kept = FieldsDropped(driver=DRIVER, pool="a-gpu", fields=(), gates=())
    assert not any(name.startswith("drasim_dropped_fields") for name in read(seen(dropped, kept)))


def test_gauges_are_read_when_somebody_asks() -> None:
    """What is true now is given by the caller, one family for each name."""
    gauges = [Gauge("devices", "Devices", {"driver": name}, value) for name, value in (("a", 4), ("b", 8))]
    samples = read(Metrics(), *gauges)
    assert (samples["drasim_devices driver=a"], samples["drasim_devices driver=b"]) == (4, 8)


def test_the_process_itself_is_measured() -> None:
    """Memory and CPU of the process are there without further doing."""
    assert read(Metrics())["process_resident_memory_bytes"] > 0


# ------------------------------------------------------------------------------------------------- devices and faults


def tainted(*taints: DeviceTaint) -> dict[str, Pool]:
    """Return the pool of a driver, its one device with these taints."""
    return {"a-gpu": Pool(name="a-gpu", devices=(Device(name="gpu-0", taints=taints),))}


XID, HOT = DeviceTaint(key=f"{DRIVER}/xid", value="79", effect="NoSchedule"), DeviceTaint(key="hot", effect="None")


def waited(*steps: tuple[str, Any], ours: bool = True) -> dict[str, float]:
    """Return the samples after taints were wanted (by a look at that time) and slices synced (at that time)."""
    metrics, taints = Metrics(), tainted()
    for step, given in steps:
        if step == "synced":
            metrics.synced(DRIVER, given)
        else:
            at, *wanted = given
            taints = tainted(*wanted)
            metrics.wanted(DRIVER, taints_in(taints), at, ours=ours)
    return {name: value for name, value in read(metrics).items() if name.startswith("drasim_fault_to_slice_seconds")}


def test_the_time_from_fault_to_slice() -> None:
    """From the look that saw it until the slices have its taint, once for each taint."""
    samples = waited(("wanted", (0.0,)), ("wanted", (10.0, XID)), ("synced", 10.007), ("synced", 99.0))
    assert samples[f"drasim_fault_to_slice_seconds_count driver={DRIVER}"] == 1
    assert samples[f"drasim_fault_to_slice_seconds_sum driver={DRIVER}"] == pytest.approx(0.007)


def test_a_look_that_sees_the_same_starts_no_new_time() -> None:
    """While the API server is away the time goes on from the first look; the second fault has its own."""
    samples = waited(("wanted", (0.0,)), ("wanted", (10.0, XID)), ("wanted", (12.0, XID, HOT)), ("synced", 13.0))
    assert samples[f"drasim_fault_to_slice_seconds_count driver={DRIVER}"] == 2
    assert samples[f"drasim_fault_to_slice_seconds_sum driver={DRIVER}"] == pytest.approx(3 + 1)


@pytest.mark.parametrize(
    "steps",
    [
        (("wanted", (5.0, XID)), ("synced", 9.0)),
        (("wanted", (0.0,)), ("wanted", (5.0, XID)), ("wanted", (6.0,)), ("synced", 9.0)),
        (("synced", 9.0),),
    ],
)
def test_what_is_no_time_from_fault_to_slice(steps: tuple[tuple[str, Any], ...]) -> None:
    """What stood before the start, what was over before it was written, and slices written for another reason."""
    assert waited(*steps) == {}


def test_an_older_instance_measures_nothing() -> None:
    """What another instance writes is not how long this one took."""
    assert waited(("wanted", (0.0,)), ("wanted", (5.0, XID)), ("synced", 9.0), ours=False) == {}


def devices() -> Devices:
    """Return what is to be read of a driver with a sick and a well device."""
    well = DeviceHealth(pool="a-gpu", device="gpu-1", health=Health.HEALTHY, looked_at=995)
    sick = DeviceHealth(pool="a-gpu", device="gpu-0", health=Health.UNHEALTHY, looked_at=900)
    standing = Problem(kind="xid", code="79", since=42)
    over = Problem(kind="thermal", since=41, cleared=50.0)
    pools, problems = tainted(XID, HOT), {"gpu-0": (standing, over)}
    return Devices(driver=DRIVER, health=(sick, well), pools=pools, problems=problems, unpublished=2)


def test_devices_can_be_read() -> None:
    """Health by device and state, standing problems with their start, taints by effect, age of the looks."""
    samples = read(Metrics(), *device_gauges(devices(), now=1000.0))
    sick = {name: value for name, value in samples.items() if name.startswith("drasim_device") and "gpu-0" in name}
    assert sick == {
        f"drasim_device_health device=gpu-0 driver={DRIVER} health=Healthy": 0,
        f"drasim_device_health device=gpu-0 driver={DRIVER} health=Unhealthy": 1,
        f"drasim_device_health device=gpu-0 driver={DRIVER} health=Unknown": 0,
        f"drasim_device_problem_start_time_seconds code=79 device=gpu-0 driver={DRIVER} kind=xid": 42,
        f"drasim_device_look_age_seconds device=gpu-0 driver={DRIVER}": 100,
    }
    assert samples[f"drasim_device_health device=gpu-1 driver={DRIVER} health=Healthy"] == 1
    assert samples[f"drasim_device_taints driver={DRIVER} effect=NoSchedule"] == 1
    assert samples[f"drasim_device_taints driver={DRIVER} effect=None"] == 1
    assert samples[f"drasim_unpublished_devices driver={DRIVER}"] == 2


def test_a_device_that_was_never_looked_at_has_no_age() -> None:
    """Half a century would be a lie."""
    never = Devices(driver=DRIVER, health=(DeviceHealth(pool="p", device="gpu-0", health=Health.UNKNOWN),))
    assert not [gauge for gauge in device_gauges(never, now=1000.0) if gauge.name == "device_look_age_seconds"]
