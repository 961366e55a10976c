"""What the pools of one publisher share: what is wanted, what is stored, who owns it, and whether to write."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_plugin.cluster import Cluster, Selector
from dra_plugin.latest import Latest
from dra_plugin.mirror import Mirror
from dra_plugin.naming import Checked, checked
from dra_plugin.observe import Observer, PoolCorrected
from dra_plugin.publisher.owner import NodeOwner
from dra_plugin.resources import RESOURCE_SLICE, Pool, ResourceSlice
from dra_plugin.slices import Owner

__all__ = ["PoolState", "Scope"]

_Wanted = Mapping[str, Pool] | None


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pool is published.

    Attributes:
        generation: the generation that the API server has (0 = nothing yet).
        slices: how many slices it has.
        synced: they equal what is wanted.
        published: they equalled what was wanted once, and are still there: what differs now is an update under way.
        error: why they could not be made so, at the last try.
        dropped: fields that the server did not keep (a feature gate is off, mostly).
        problems: what was changed or left out because it breaks a limit of the API, one line for people each.
    """

    generation: int
    slices: int
    synced: bool
    error: str | None
    published: bool = False
    dropped: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Scope:
    """The slices of one driver on one node."""

    def __init__(
        self, cluster: Cluster, owner: Owner, pools: Latest[_Wanted], enabled: Latest[bool], observer: Observer
    ) -> None:
        """Read nothing yet. ``owner`` says driver and node; its reference is found by ``node``."""
        fields = {"spec.driver": owner.driver, "spec.nodeName": owner.node_name or ""}
        self.cluster, self.enabled, self.observer = cluster, enabled, observer
        self.driver = owner.driver
        self.pools = pools
        self.mirror = Mirror(cluster, RESOURCE_SLICE, Selector(fields=fields))
        self.node = NodeOwner(cluster, owner.node_name or "")
        self.state: Latest[Mapping[str, PoolState]] = Latest({})
        self._owner = owner
        self._looked: tuple[_Wanted, Mapping[str, Checked]] = (None, {})
        self._checked: dict[str, tuple[Pool, Checked]] = {}
        self._grouped: tuple[Mapping[str, ResourceSlice], Mapping[str, tuple[ResourceSlice, ...]]] = ({}, {})

    @property
    def inputs(self) -> tuple[Latest[Any], ...]:
        """Everything that a decision depends on."""
        mirror = self.mirror
        return self.pools, self.enabled, mirror.objects, mirror.synced, mirror.error, self.node.reference

    @property
    def writable(self) -> bool:
        """Whether slices may be written: enabled, and both sides are known."""
        return self.enabled.value and self.pools.value is not None and self.mirror.synced.value > 0

    @property
    def owner(self) -> Owner:
        """The owner of the slices, as far as known."""
        return msgspec.structs.replace(self._owner, reference=self.node.reference.value)

    def wanted(self) -> Mapping[str, Checked]:
        """Return the wanted pools by the names that they have in the API, checked; each pool is checked once."""
        pools = self.pools.value
        if pools is not self._looked[0]:
            self._looked = (pools, self._look(pools or {}))
        return self._looked[1]

    def stored(self) -> Mapping[str, tuple[ResourceSlice, ...]]:
        """Return the stored slices by pool."""
        objects = self.mirror.objects.value
        if objects is not self._grouped[0]:
            groups: dict[str, list[ResourceSlice]] = {}
            for each in objects.values():
                groups.setdefault(each.spec.pool.name, []).append(each)
            self._grouped = (objects, {name: tuple(group) for name, group in groups.items()})
        return self._grouped[1]

    def report(self, name: str, state: PoolState | None) -> None:
        """Publish the state of a pool; None when it is no more."""
        rest = {other: known for other, known in self.state.value.items() if other != name}
        self.state.set({**rest, name: state} if state else rest)

    def _look(self, pools: Mapping[str, Pool]) -> Mapping[str, Checked]:
        wanted: dict[str, Checked] = {}
        fresh: dict[str, tuple[Pool, Checked]] = {}
        for key, pool in pools.items():
            fresh[key] = self._check(key, pool)
            wanted.setdefault(fresh[key][1].pool.name, fresh[key][1])
        self._checked = fresh
        return wanted

    def _check(self, key: str, pool: Pool) -> tuple[Pool, Checked]:
        known = self._checked.get(key)
        if known and known[0] == pool:
            return known
        result = checked(pool, self.driver, known[1] if known else None)
        if result.problems and (known is None or known[1].problems != result.problems):
            lines = tuple(map(str, result.problems))
            self.observer(PoolCorrected(driver=self.driver, pool=result.pool.name, problems=lines))
        return pool, result
