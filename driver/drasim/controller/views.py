"""The views of the cluster that decisions are made from, and whether they may be believed."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dra_plugin.cluster import Cluster, Selector
from dra_plugin.latest import Latest
from dra_plugin.mirror import Mirror
from dra_plugin.resources import NODE, DeviceTaintRule, Kind, Node
from drasim.controller.objects import CLAIM, SLICE, Claim, Slice
from drasim.controller.rules import LABELS

__all__ = ["NOT_YET", "RULES", "Views"]

NOT_YET = "not read yet"
"""What is said of a view at the start, which is no trouble."""

RULES = Selector(labels=LABELS)
"""The rules of the controller."""


class Views:
    """Slices of the drivers, all claims and Nodes, and the rules of the controller."""

    def __init__(self, cluster: Cluster, drivers: Collection[str], rules: Kind[DeviceTaintRule] | None) -> None:
        """Look at nothing before ``run``; ``rules`` None: the server serves none."""
        self._cluster = cluster
        self._slices = {driver: Mirror(cluster, SLICE, Selector(fields={"spec.driver": driver})) for driver in drivers}
        self.claims: Mirror[Claim] = Mirror(cluster, CLAIM)
        self.nodes: Mirror[Node] = Mirror(cluster, NODE)
        self.rules: Mirror[DeviceTaintRule] | None = Mirror(cluster, rules, RULES) if rules else None

    @property
    def slices(self) -> Mapping[str, Slice]:
        """The slices of all drivers, by name."""
        return {name: part for mirror in self._slices.values() for name, part in mirror.objects.value.items()}

    @property
    def latests(self) -> tuple[Latest[Any], ...]:
        """What changes when a view does."""
        return tuple(
            latest for _, mirror in self._mirrors() for latest in (mirror.objects, mirror.error, mirror.synced)
        )

    async def run(self) -> None:
        """Keep all views current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, mirror in self._mirrors():
                group.create_task(mirror.run(), name=name)

    def blind(self) -> tuple[str, ...]:
        """Return why the views may not be believed; nothing is decided then, least of all that a device is well."""
        found = []
        for name, mirror in self._mirrors():
            if mirror.error.value is not None:
                found.append(f"{name} cannot be read: {mirror.error.value}")
            elif mirror.synced.value == 0:
                found.append(f"{name}: {NOT_YET}")
        return tuple(found)

    async def confirm(self, driver: str, pool: str, node: str) -> None:
        """Read the slices of a pool from the server itself: a view lags behind, and may not even know that it does.

        Those of a pool that the view does not have are looked for on its Node. Raises ClusterError.
        """
        mirror = self._slices[driver]
        parts = [known for known in mirror.objects.value.values() if known.spec.pool.name == pool]
        if not parts:
            fields = {"spec.driver": driver, "spec.nodeName": node}
            selector = Selector(fields={field: value for field, value in fields.items() if value})
            for found in (await self._cluster.list(SLICE, selector)).items:
                mirror.learn(found)
        for known in parts:
            stored = await self._cluster.get(SLICE, known.metadata.name or "")
            if stored is not None:
                mirror.learn(stored)
            if stored is None or stored.metadata.uid != known.metadata.uid:
                mirror.forget(known)

    async def reread_rules(self) -> None:
        """List the rules: whoever takes over knows all that the one before wrote. Raises ClusterError."""
        if self.rules is not None:
            await self.rules.reread()

    def learn_rule(self, rule: DeviceTaintRule) -> None:
        """Know at once what the server stored."""
        if self.rules is not None:
            self.rules.learn(rule)

    def forget_rule(self, rule: DeviceTaintRule) -> None:
        """Know at once that a rule is gone, or not ours any more."""
        if self.rules is not None and rule.metadata.uid:
            self.rules.forget(rule)

    def _mirrors(self) -> Iterator[tuple[str, Mirror[Any]]]:
        for driver, mirror in self._slices.items():
            yield f"slices of {driver}", mirror
        yield "claims", self.claims
        yield "nodes", self.nodes
        if self.rules is not None:
            yield "rules", self.rules
