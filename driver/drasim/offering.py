"""Offer: what one driver offers on this node, made from what is known: CDI spec, inventory, pool and health."""

import math
from collections.abc import Mapping

import msgspec

from dra_plugin.cdi import CdiFolder
from dra_plugin.health import DeviceHealth, Health, HealthReport
from dra_plugin.latest import Latest
from dra_plugin.slices import Pool
from drasim.config import Config
from drasim.devices import Published, pool_name, published_devices
from drasim.edits import static_devices, static_kind
from drasim.hardware import Gpu, Kind, Nic
from drasim.planning import Inventory
from drasim.pools import build_pool, left_out, marked
from drasim.problems import Problem, standing, steady
from drasim.state import NodeState
from drasim.taints import health_of, message_of

__all__ = ["Offer"]


class _Mark(msgspec.Struct, frozen=True):
    """A device, what stands on it, and what that makes of it: in the slice, and in the kubelet's stream."""

    device: Published
    problems: tuple[Problem, ...]
    shown: Published
    health: Health
    message: str


class Offer:
    """What containers, Prepare, the scheduler and the kubelet are told; ``renew`` is the only one to change it.

    Attributes:
        inventory: what can be prepared; None before the first look. Problems are not in it, and do not renew it.
        pools: what is published, by the pool's name; None before the first look.
        health: what the kubelet's stream says.
        unpublished: names of sick devices that are left out of the pool because the server keeps no taints.
    """

    def __init__(self, driver: str, kind: Kind, config: Config, cdi: CdiFolder) -> None:
        """Offer nothing yet."""
        self.inventory: Latest[Inventory | None] = Latest(None)
        self.pools: Latest[Mapping[str, Pool] | None] = Latest(None)
        self.health: Latest[HealthReport] = Latest(())
        self.unpublished: Latest[frozenset[str]] = Latest(frozenset())
        self._driver, self._kind, self._config, self._cdi = driver, kind, config, cdi
        self._made_of: tuple[Mapping[str, Gpu | Nic], frozenset[str]] = ({}, frozenset())
        self._marked: Mapping[str, _Mark] = {}

    def renew(self, state: NodeState, held: frozenset[str], *, taints_kept: bool) -> None:
        """Offer what ``state`` says, given the hardware that claims hold and whether the server keeps taints.

        First to containers, then to Prepare, then to the scheduler. Raises SetupError when the static CDI spec cannot
        be written: devices that came or went are not offered otherwise than before then, but problems are told.
        """
        try:
            self._make(state, held)
        finally:
            if inventory := self.inventory.value:
                self._tell(inventory, state, held, taints_kept=taints_kept)

    def _make(self, state: NodeState, held: frozenset[str]) -> None:
        """Bring CDI spec and inventory up to date with the devices that are there, or gone and still held."""
        devices, stay = self._made_of
        gone = held & state.missing.keys()
        if self.inventory.value and devices is state.devices and stay == gone:
            return
        there = published_devices(state, gone)
        self._cdi.write_static(static_kind(self._driver), static_devices(there))
        pool = pool_name(self._config.node_name, self._kind)
        inventory = Inventory(kind=self._kind, pool=pool, devices={each.name: each for each in there})
        self._made_of = state.devices, gone
        self.inventory.set(inventory)

    def _tell(self, inventory: Inventory, state: NodeState, held: frozenset[str], *, taints_kept: bool) -> None:
        """Tell what is wrong with the devices of the inventory."""
        there = inventory.devices.values()
        self._marked = {each.name: self._mark(each, state.problems.get(each.id, ())) for each in there}
        self._publish(frozenset() if taints_kept else left_out(there, state.problems, held, self._config.problems))
        self.health.set(self._report(state))

    def _mark(self, device: Published, problems: tuple[Problem, ...]) -> _Mark:
        """Return what the problems make of the device: while nothing is new the same object, which compares fast."""
        known, policy, holding = self._marked.get(device.name), self._config.problems, standing(steady(problems))
        if known and known.device is device and known.problems == holding:
            return known
        shown = marked(device, holding, self._driver, policy)
        return _Mark(device, holding, shown, health_of(holding, policy), message_of(holding, policy))

    def _publish(self, out: frozenset[str]) -> None:
        shown = (mark.shown for name, mark in self._marked.items() if name not in out)
        pool = build_pool(self._config.node_name, self._kind, shown)
        self.pools.set({pool.name: pool})
        self.unpublished.set(out)

    def _report(self, state: NodeState) -> HealthReport:
        """Return the health of all devices. What was seen well stays so until it should have been seen again."""
        pool, timeout = pool_name(self._config.node_name, self._kind), max(30, math.ceil(3 * self._config.periods.look))
        return tuple(
            DeviceHealth(
                pool=pool,
                device=name,
                health=mark.health,
                message=mark.message,
                looked_at=int(state.looks.get(mark.device.id, 0.0)),
                timeout=timeout,
            )
            for name, mark in self._marked.items()
        )
