"""What the controller decides by, kept in a form in which a decision costs what is sick, not what the cluster has.

``Index`` looks at which objects of a view are other objects than before, and takes only these anew.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from dra_plugin.resources import DeviceTaintRule, Node
from drasim.controller.objects import Claim, Place, Slice, held_places, watched_places
from drasim.controller.policy import Policy, Standing
from drasim.controller.rules import Ruled, read_rule

__all__ = ["Index", "Pool", "PoolName", "World", "pool_of"]

T = TypeVar("T")
PoolName = tuple[str, str]
"""Driver and pool."""
_Book = defaultdict[Place, dict[str, Claim]]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as it is published at its newest generation.

    Attributes:
        node: its Node; empty when it is nobody's alone.
        complete: all its slices are there, so that what they do not say is not so.
        slices: those of the newest generation.
        sick: by device, what of the policy stands; a device that nothing stands on is not in here.
    """

    node: str
    complete: bool
    slices: tuple[Slice, ...]
    sick: Mapping[str, tuple[Standing, ...]] = {}

    def publishes(self, device: str) -> bool | None:
        """Tell whether the device is published; None while a part of the pool is missing."""
        if not self.complete:
            return None
        return any(each.name == device for part in self.slices for each in part.spec.devices or ())


class World(msgspec.Struct, frozen=True, kw_only=True):
    """All that a decision is made from.

    Attributes:
        pools: what is published.
        sick: the pools with a sick device.
        published: how many devices, by Node.
        holders: the claims that hold a device, by ``namespace/name``.
        racks: by Node that there is, the rack that it stands in, or empty.
        rules: those of the controller.
    """

    pools: Mapping[PoolName, Pool] = {}
    sick: Iterable[PoolName] = ()
    published: Mapping[str, int] = {}
    holders: Mapping[Place, Mapping[str, Claim]] = {}
    racks: Mapping[str, str] = {}
    rules: Mapping[Place, Ruled] = {}

    def publishes(self, place: Place) -> bool | None:
        """Tell whether a device is published; None while a part of its pool is missing."""
        pool = self.pools.get((place.driver, place.pool))
        return pool.publishes(place.device) if pool else False

    def node_of(self, rule: Ruled) -> str:
        """Return the Node that a rule says, or where its device is published: people may have taken it away."""
        pool = self.pools.get((rule.place.driver, rule.place.pool))
        return rule.node or (pool.node if pool else "")

    def standing(self, place: Place) -> tuple[Standing, ...]:
        """Return what of the policy stands on a device, the worst first."""
        pool = self.pools.get((place.driver, place.pool))
        return pool.sick.get(place.device, ()) if pool else ()


class Index:
    """The world, brought up to date from views of the API. Only the newest world may be read."""

    def __init__(self, policy: Policy, rack_label: str) -> None:
        """Know nothing yet."""
        self._policy, self._rack_label = policy, rack_label
        self._seen_slices: _Seen[Slice] = _Seen()
        self._seen_claims: _Seen[Claim] = _Seen()
        self._seen_nodes: _Seen[Node] = _Seen()
        self._seen_rules: _Seen[DeviceTaintRule] = _Seen()
        self._slices: defaultdict[PoolName, dict[str, Slice]] = defaultdict(dict)
        self._pools: dict[PoolName, Pool] = {}
        self._sick: set[PoolName] = set()
        self._published: Counter[str] = Counter()
        self._holders: _Book = defaultdict(dict)
        self._watchers: _Book = defaultdict(dict)
        self._racks: dict[str, str] = {}
        self._rules: dict[Place, Ruled] = {}

    def world(
        self,
        slices: Mapping[str, Slice],
        claims: Mapping[str, Claim],
        nodes: Mapping[str, Node],
        rules: Mapping[str, DeviceTaintRule],
    ) -> World:
        """Return the world as these views show it."""
        self._take_slices(slices)
        self._take_claims(claims)
        for _, old, new in self._seen_nodes.changes(nodes):
            self._take_node(old, new)
        for _, old_rule, new_rule in self._seen_rules.changes(rules):
            self._take_rule(old_rule, new_rule)
        return World(
            pools=self._pools,
            sick=self._sick,
            published=self._published,
            holders=self._holders,
            racks=self._racks,
            rules=self._rules,
        )

    def users_of(self, place: Place) -> tuple[Claim, ...]:
        """Return the claims that hold a device or look into it, in the order of their names."""
        claims = {**self._watchers.get(place, {}), **self._holders.get(place, {})}
        return tuple(claim for _, claim in sorted(claims.items()))

    def _take_slices(self, slices: Mapping[str, Slice]) -> None:
        touched: set[PoolName] = set()
        for key, old, new in self._seen_slices.changes(slices):
            for part in filter(None, (old, new)):
                touched.add(_pool_name(part))
                self._slices[_pool_name(part)].pop(key, None)
            if new is not None:
                self._slices[_pool_name(new)][key] = new
        for name in touched:
            self._take_pool(name)

    def _take_pool(self, name: PoolName) -> None:
        old, parts = self._pools.pop(name, None), self._slices[name].values()
        self._sick.discard(name)
        if old is not None:
            self._published[old.node] -= _size(old)
        if not parts:
            del self._slices[name]
            return
        pool = self._pools[name] = pool_of(parts, self._policy)
        self._published[pool.node] += _size(pool)
        if pool.sick:
            self._sick.add(name)

    def _take_claims(self, claims: Mapping[str, Claim]) -> None:
        for key, old, new in self._seen_claims.changes(claims):
            if old is not None:
                self._strike(self._holders, held_places(old), key)
                self._strike(self._watchers, watched_places(old), key)
            if new is not None:
                self._enter(self._holders, held_places(new), key, new)
                self._enter(self._watchers, watched_places(new), key, new)

    def _strike(self, book: _Book, places: Iterable[Place], key: str) -> None:
        for place in places:
            book[place].pop(key, None)
            if not book[place]:
                del book[place]

    def _enter(self, book: _Book, places: Iterable[Place], key: str, claim: Claim) -> None:
        for place in places:
            if place.driver in self._policy.drivers:
                book[place][key] = claim

    def _take_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._racks[new.metadata.name or ""] = (new.metadata.labels or {}).get(self._rack_label, "")
        elif old is not None:
            self._racks.pop(old.metadata.name or "", None)

    def _take_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        for rule in filter(None, (old, new)):
            ruled = read_rule(rule, self._policy.drivers)
            if ruled is not None and rule is old:
                self._rules.pop(ruled.place, None)
            elif ruled is not None:
                self._rules[ruled.place] = ruled


class _Seen(Generic[T]):
    """The objects of a view as they were last time."""

    def __init__(self) -> None:
        self._objects: Mapping[str, T] = {}

    def changes(self, objects: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
        """Yield what differs: the key, the object before and after. A view keeps the objects that did not change."""
        before, self._objects = self._objects, objects
        if objects is before:
            return
        for key, new in objects.items():
            old = before.get(key)
            if old is not new:
                yield key, old, new
        for key in before.keys() - objects.keys():
            yield key, before[key], None


def pool_of(parts: Iterable[Slice], policy: Policy) -> Pool:
    """Return the pool that slices (at least one) make up: those of the highest generation count, as in Kubernetes."""
    newest = max(part.spec.pool.generation for part in parts)
    slices = tuple(part for part in parts if part.spec.pool.generation == newest)
    sick = {
        device.name: standing
        for part in slices
        for device in part.spec.devices or ()
        if device.taints and (standing := policy.standing(part.spec.driver, device.taints))
    }
    return Pool(
        node=slices[0].spec.node_name or "",
        complete=len(slices) == slices[0].spec.pool.resource_slice_count,
        slices=slices,
        sick=sick,
    )


def _pool_name(part: Slice) -> PoolName:
    return part.spec.driver, part.spec.pool.name


def _size(pool: Pool) -> int:
    return sum(len(part.spec.devices or ()) for part in pool.slices)
