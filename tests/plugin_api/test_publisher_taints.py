"""Faults and the publisher, in virtual time: one write at once, bursts in few, and the times of taints."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from dra_plugin.resources import Device, DeviceAttribute, DeviceTaint, Pool
from tests.plugin_api.publishing import POOL, World, now, pause, pool_of, running, world

pytestmark = pytest.mark.looptime

SINCE, LATER = "2026-01-02T03:04:05Z", "2026-01-02T04:00:00Z"


def taint(*, value: str = "79", effect: str = "NoSchedule", since: str | None = SINCE) -> DeviceTaint:
    return DeviceTaint(key="gpu.example.com/xid", value=value, effect=effect, time_added=since)


def pool_with(*taints: DeviceTaint, at: int = 1, of: int = 8, note: str = "") -> Pool:
    """Return a pool in which one device has taints; ``note`` is an attribute of the first device."""
    devices = [Device(name=f"gpu-{n}", taints=taints if n == at else None) for n in range(of)]
    if note:
        devices[0] = replace(devices[0], attributes={"note": DeviceAttribute(string=note)})
    return Pool(name=POOL, devices=tuple(devices))


async def stored_taints(it: World) -> tuple[DeviceTaint, ...]:
    """Return all taints that the server has."""
    devices = [device for each in await it.slices() for device in each.spec.devices or ()]
    return tuple(one for device in devices for one in device.taints or ())


async def published(it: World, pool: Pool) -> tuple[DeviceTaint, ...]:
    it.want(pool)
    await pause(5)
    return await stored_taints(it)


# ----------------------------------------------------------------------------------------------------- writes


async def test_one_taint_touches_one_slice() -> None:
    """In a pool of five slices one is written; the others keep their version and all of them their generation."""
    async with world() as it:
        it.want(pool_of(300))
        await pause(5)
        before = await it.slices()
        it.seen.clear()
        it.want(pool_of(300, tainted=[130]))
        await pause(60)
        after = await it.slices()
        changed = [one != other for one, other in zip(before, after, strict=True)]
        assert changed == [False, False, True, False, False]
        assert {each.spec.pool.generation for each in after} == {1}
        assert it.writes == ["update"]


async def test_a_fault_after_quiet_is_written_at_once() -> None:
    """Nothing is waited for: the slice is written in the moment in which the pool changes."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(5)
        for count in range(1, 4):
            started = now()
            it.want(pool_of(8, tainted=range(count)))
            await pause(5)
            written = [each.at for each in it.cluster.faults.requests if each.verb == "replace"]
            assert len(written) == count
            assert written[-1] - started < 0.001
            assert len(await stored_taints(it)) == count


async def test_a_hundred_faults_in_one_moment_are_one_write() -> None:
    """What changes before the writer gets its turn is one state."""
    async with world() as it:
        it.want(pool_of(64))
        await pause(5)
        it.seen.clear()
        for turn in range(100):
            it.want(pool_of(64, tainted=range(turn % 64 + 1)))
        await pause(5)
        assert it.writes == ["update"]
        assert len(await stored_taints(it)) == 100 % 64


async def test_a_burst_during_a_slow_write_is_one_more() -> None:
    """While the server takes its time with the first write, a hundred more faults gather for the second."""
    async with world() as it:
        it.want(pool_of(64))
        await pause(5)
        it.seen.clear()
        it.cluster.faults.latency = 0.25
        for turn in range(100):
            it.want(pool_of(64, tainted=range(turn % 64 + 1)))
            await pause(0.002)
        await pause(5)
        assert it.writes == ["update", "update"]
        assert len(await stored_taints(it)) == 100 % 64


# ------------------------------------------------------------------------------------------------ times of taints


async def test_republishing_keeps_the_time() -> None:
    """Another change of the slice, a second taint, the same taint with another idea of the time: it stays."""
    async with world() as it:
        first = await published(it, pool_with(taint()))
        assert first == (taint(),)
        assert await published(it, pool_with(taint(since=LATER), note="x")) == first
        assert await published(it, pool_with(taint(since=None), note="y")) == first
        other = DeviceTaint(key="gpu.example.com/thermal", effect="None", time_added=LATER)
        assert await published(it, pool_with(taint(since=LATER), other)) == (*first, other)
        assert await published(it, pool_with(taint(since=LATER))) == first


async def test_a_restart_keeps_the_time() -> None:
    """A new process that does not know since when writes nothing, and with its next change the stored time."""
    async with world() as it:
        await published(it, pool_with(taint()))
    later = World(it.cluster)
    later.enabled.set(True)
    async with running(later.publisher):
        assert await published(later, pool_with(taint(since=LATER))) == (taint(),)
        assert later.writes == []
        assert await published(later, pool_with(taint(since=LATER), note="x")) == (taint(),)
        assert later.writes == ["update"]


async def test_the_time_outlives_a_wipe() -> None:
    """When the kubelet has removed all slices, those that come back have the problem's own time."""
    async with world() as it:
        before = await published(it, pool_with(taint()))
        await it.delete(*await it.slices())
        await pause(5)
        assert await stored_taints(it) == before


async def test_a_device_that_moves_to_another_slice_keeps_the_time() -> None:
    """When the pool grows and is laid out anew, the taint goes with its device."""
    async with world() as it:
        await published(it, pool_with(taint(), at=70, of=100))
        grown = pool_with(taint(since=LATER), at=70, of=200)
        assert await published(it, replace(grown, devices=grown.devices[::-1])) == (taint(),)


@pytest.mark.parametrize(
    "changed",
    [{"effect": "NoExecute"}, {"effect": "None"}, {"value": "48"}],
    ids=lambda change: "-".join(change.values()),
)
async def test_another_effect_or_code_counts_from_its_own_time(changed: Mapping[str, str]) -> None:
    """The time is that of the problem as it is now; tolerations of the old one say nothing about the new one."""
    async with world() as it:
        await published(it, pool_with(taint()))
        assert await published(it, pool_with(taint(since=LATER, **changed))) == (taint(since=LATER, **changed),)


async def test_an_effect_change_without_a_time_is_stamped_by_the_server() -> None:
    """The old time is not carried over to another effect."""
    async with world() as it:
        await published(it, pool_with(taint()))
        (stored,) = await published(it, pool_with(taint(effect="NoExecute", since=None)))
        assert stored.time_added not in (None, SINCE)


async def test_a_taint_that_comes_back_has_the_new_time() -> None:
    """Once it was gone from the slice, a taint counts anew."""
    async with world() as it:
        assert await published(it, pool_with(taint())) == (taint(),)
        assert await published(it, pool_with()) == ()
        assert await published(it, pool_with(taint(since=LATER))) == (taint(since=LATER),)


# -------------------------------------------------------------------------------------------------- a busy server


async def test_a_server_that_is_busy_gets_the_newest_state_later() -> None:
    """After 429 with Retry-After 3 no write leaves for three seconds, then one with all that changed meanwhile."""
    async with world() as it:
        it.want(pool_of(8))
        await pause(5)
        it.seen.clear()
        it.cluster.faults.fail("replace", code=429, retry_after=3)
        it.cluster.faults.requests.clear()
        for turn in range(20):
            it.want(pool_of(8, tainted=range(turn % 8)))
            await pause(0.1)
        await pause(5)
        first, *rest = (each.at for each in it.cluster.faults.requests if each.verb == "replace")
        assert [at - first >= 3 for at in rest] == [True]
        assert len(await stored_taints(it)) == 19 % 8
