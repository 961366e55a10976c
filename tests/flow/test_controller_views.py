"""Views of the cluster: what is read from the server itself because a view may lag behind."""

import asyncio

import pytest

from dra_plugin.resources import DEVICE_TAINT_RULE
from drasim.controller.policy import Standing
from drasim.controller.rules import new_rule
from drasim.controller.views import Views
from tests.driver.controlling import DRIVERS, GPU, T0, place
from tests.flow.towns import Town, fault

pytestmark = pytest.mark.looptime


@pytest.fixture
async def stale() -> tuple[Town, Views]:
    """Give a cluster, and views that were current once and hear of nothing any more."""
    town = Town()
    await town.build()
    await town.cluster.create(DEVICE_TAINT_RULE, new_rule(place("gpu-0"), "node-a", Standing(0, T0, "lost", "")))
    views = Views(town.cluster, DRIVERS, DEVICE_TAINT_RULE)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(views.run())
        await asyncio.sleep(1)
        assert views.blind() == ()
        running.cancel()
    return town, views


async def test_a_taint_that_the_view_missed(stale: tuple[Town, Views]) -> None:
    """The pool is read anew: what changed since then is known before anything is written."""
    town, views = stale
    await town.publish(gpu_1=[fault("lost")])
    await views.confirm(GPU, "node-a-gpu", "node-a")
    (known,) = views.slices.values()
    assert [bool(device.taints) for device in known.spec.devices or ()] == [False, True]


async def test_a_slice_that_is_gone_or_another_one(stale: tuple[Town, Views]) -> None:
    """Deleted slices are forgotten, one that was made anew under the same name is the new one."""
    town, views = stale
    before = next(iter(views.slices.values()))
    await town.wipe()
    await town.publish(gpu_0=[fault("lost")])
    await views.confirm(GPU, "node-a-gpu", "node-a")
    (known,) = views.slices.values()
    assert known.metadata.uid != before.metadata.uid
    await town.wipe()
    await views.confirm(GPU, "node-a-gpu", "node-a")
    assert views.slices == {}


async def test_a_pool_that_the_view_does_not_have(stale: tuple[Town, Views]) -> None:
    """It is looked for on its Node: what seems to be missing may have come back long ago."""
    town, views = stale
    await town.wipe()
    await views.confirm(GPU, "node-a-gpu", "node-a")
    assert views.slices == {}
    await town.publish(gpu_0=[fault("lost")])
    await town.publish("node-b")
    await views.confirm(GPU, "node-a-gpu", "node-a")
    (known,) = views.slices.values()
    assert (known.spec.node_name, bool((known.spec.devices or ())[0].taints)) == ("node-a", True)


async def test_what_the_leader_before_wrote_last(stale: tuple[Town, Views]) -> None:
    """Whoever takes over lists the rules: new ones count for the budget, and those that are gone do not."""
    town, views = stale
    assert views.rules is not None
    (old,) = views.rules.objects.value.values()
    await town.cluster.delete(DEVICE_TAINT_RULE, old)
    made = await town.cluster.create(DEVICE_TAINT_RULE, new_rule(place("gpu-1"), "node-a", Standing(0, T0, "lost", "")))
    await views.reread_rules()
    assert list(views.rules.objects.value) == [made.metadata.name]


async def test_a_view_that_cannot_be_read_is_named(stale: tuple[Town, Views]) -> None:
    """Which one, and why: nothing is decided by the others alone."""
    town, views = stale
    town.cluster.faults.fail("watch", code=403, times=100, plural="resourceclaims")
    town.cluster.faults.fail("list", code=403, times=100, plural="resourceclaims")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(views.run())
        await asyncio.sleep(1)
        (reason,) = views.blind()
        assert reason.startswith("claims cannot be read: ")
        running.cancel()
