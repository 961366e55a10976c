"""Two controllers over lines that fail in every way, in virtual time: what holds whatever happens, and how it ends."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dra_plugin.cluster import Selector
from dra_plugin.errors import Conflict, Rejected, Retryable
from dra_plugin.resources import DEVICE_TAINT_RULE, RESOURCE_SLICE, DeviceTaint, DeviceTaintRule, Kind
from dra_plugin.testing import FakeCluster
from drasim.config.controller import Budget
from drasim.controller.objects import Place
from drasim.controller.policy import problem_of
from drasim.controller.rules import LABELS
from tests.driver.controlling import EVICT, GPU, place
from tests.flow.towns import Line, Town, fault

pytestmark = pytest.mark.looptime

DEVICES = tuple(place(device, node) for node in ("node-a", "node-b") for device in ("gpu-0", "gpu-1"))
PROBLEMS = tuple(entry.problem for entry in EVICT)
VERBS = ("get", "list", "create", "replace", "delete", "apply")
TROUBLES = (Retryable("busy", retry_after=3), Retryable("lost"), Rejected("no", code=403), Conflict("late"), None)
PAUSES = (0, 0.01, 0.15, 1, 5, 12, 35, 70, 700)


class RoughLine(Line):
    """A line on which requests meet trouble (None: they hang), before they are carried out or after."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.troubles: list[tuple[str, Exception | None, bool]] = []

    def __getattr__(self, verb: str) -> Any:  # noqa: ANN401 - whatever the verb takes and gives
        """Return a verb that meets the next trouble that is for it."""
        plain = super().__getattr__(verb)
        return plain if verb == "watch" else lambda *given, **named: self._meet(verb, lambda: plain(*given, **named))

    async def _meet(self, verb: str, request: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - as above
        if not self.troubles or self.troubles[0][0] != verb:
            return await request()
        _, trouble, is_done = self.troubles.pop(0)
        if is_done:
            await request()
        if trouble is None:
            await asyncio.Event().wait()
        raise trouble or AssertionError


class Watchful(FakeCluster):
    """A server that notes each rule that is deleted while its device is published with a problem."""

    def __init__(self, town: Town) -> None:
        super().__init__(catalog=town.cluster.catalog)
        self.wrong: list[str] = []

    async def delete(self, kind: Kind[Any], obj: Any) -> bool:  # noqa: ANN401 - of any kind
        """Delete an object."""
        if isinstance(obj, DeviceTaintRule):
            where = place_of(obj)
            parts = [each.spec for each in (await self.list(RESOURCE_SLICE)).items]
            sick = {
                Place(GPU, part.pool.name, each.name) for part in parts for each in part.devices or () if each.taints
            }
            self.wrong += [str(where)] if where in sick else []
        return await super().delete(kind, obj)


class Storm:
    """The city, its two lines, and the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.server = Watchful(Town())
        self.town = Town(self.server)
        self.lines = [RoughLine(self.server), RoughLine(self.server)]
        self.taints: dict[Place, dict[str, DeviceTaint]] = {where: {} for where in DEVICES}
        self.away: set[str] = set()

    async def build(self) -> None:
        """Make two Nodes of two GPUs, all of them held."""
        await self.town.build()
        await self.town.put("v1", "Node", {"name": "node-b"})
        await self.settle()

    async def settle(self) -> None:
        """Have everything published and held, and the lines as they should be."""
        self.mend()
        self.away.clear()
        for where in DEVICES:
            await self.hold(where)
            await self.publish(where)

    def mend(self) -> None:
        """Have the lines as they should be."""
        for line in self.lines:
            line.is_cut, line.troubles = False, []
            line.is_deaf.set(False)

    async def hold(self, where: Place) -> None:
        node = where.pool.removesuffix("-gpu")
        await self.town.hold(f"of-{node}-{where.device}", where.device, node, pods=["p"])

    async def publish(self, where: Place) -> None:
        if where.pool not in self.away:
            same = {each: self.taints[each].values() for each in DEVICES if each.pool == where.pool}
            given = {each.device.replace("-", "_"): tuple(taints) for each, taints in same.items()}
            await self.town.publish(where.pool.removesuffix("-gpu"), **given)

    async def happen(self) -> None:
        """Have one thing happen, and some time pass."""
        where, line = self.dice.choice((DEVICES[0], *DEVICES)), self.dice.choice(self.lines)
        steps = (self.sicken, self.sicken, self.heal, self.vanish, self.come_back, self.meddle, self.deceive)
        await self.dice.choice(steps)(where)
        match self.dice.randrange(8):
            case 0:
                line.is_cut = True
            case 1:
                line.is_deaf.set(True)
            case 2 | 3:
                self.mend()
            case 4 | 5:
                trouble = self.dice.choice(TROUBLES)
                line.troubles.append((self.dice.choice(VERBS), trouble, self.dice.random() < 0.4))
        await asyncio.sleep(self.dice.choice(PAUSES))

    async def sicken(self, where: Place) -> None:
        problem = self.dice.choice(PROBLEMS)
        self.taints[where].setdefault(problem, fault("xid/79" if problem == "xid" else problem))
        await self.publish(where)

    async def heal(self, where: Place) -> None:
        self.taints[where].clear()
        await self.publish(where)

    async def deceive(self, where: Place) -> None:
        """Have a device recover, and fall ill again when nobody hears of anything."""
        await self.sicken(where)
        await asyncio.sleep(2)
        await self.heal(where)
        await asyncio.sleep(2)
        for line in self.lines:
            line.is_deaf.set(True)
        await self.sicken(where)
        await asyncio.sleep(65)
        for line in self.lines:
            line.is_deaf.set(False)

    async def vanish(self, where: Place) -> None:
        self.away.add(where.pool)
        await self.town.wipe(where.pool.removesuffix("-gpu"))

    async def come_back(self, where: Place) -> None:
        self.away.discard(where.pool)
        await self.publish(where)

    async def meddle(self, _: Place) -> None:
        """Have somebody delete a rule."""
        for rule in (await self.rules())[:1]:
            await FakeCluster.delete(self.server, DEVICE_TAINT_RULE, rule)

    async def rules(self) -> list[DeviceTaintRule]:
        return list((await self.server.list(DEVICE_TAINT_RULE, Selector(labels=LABELS))).items)


def place_of(rule: DeviceTaintRule) -> Place:
    selector = rule.spec.device_selector
    assert selector is not None
    return Place(selector.driver or "", selector.pool or "", selector.device or "")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [None, 1, 2])
async def test_whatever_happens(most: int | None, seed: int) -> None:
    """No rule is lifted from a device with a problem, no budget is exceeded, and in the end rules are as wanted."""
    storm = Storm(seed)
    await storm.build()
    async with AsyncExitStack() as stack:
        for name, line in zip("ab", storm.lines, strict=True):
            await stack.enter_async_context(storm.town.controller(name, line, budget=Budget(per_cluster=most)))
        for _ in range(25):
            await storm.happen()
            assert most is None or len(await storm.rules()) <= most
            assert storm.server.wrong == []
        await storm.settle()
        await asyncio.sleep(300)
        worst = {where: min(taints, key=PROBLEMS.index) for where, taints in storm.taints.items() if taints}
        found = {place_of(rule): problem_of(GPU, rule.spec.taint)[0] for rule in await storm.rules()}
        assert found.items() <= worst.items()
        assert len(found) == min(len(worst), len(worst) if most is None else most)
