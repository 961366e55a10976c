"""Decide the writes for one pool."""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dra_plugin.resources import ObjectMeta, OwnerReference, Pool, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_plugin.slices.compare import same
from dra_plugin.slices.layout import Content, fresh, settled, timed

__all__ = ["Owner", "Writes", "plan"]

_INDEX = re.compile(r"([0-9a-f]{5})-")
_LONGEST_PREFIX = 58  # the server cuts generateName there (five random characters make 63)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who the slices belong to: ``node_name`` None means for all nodes; without ``reference`` nobody collects them."""

    driver: str
    node_name: str | None = None
    reference: OwnerReference | None = None


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order: delete, update, create. Nothing to do is false.

    Attributes:
        delete: stored slices, with UID and resource version for the preconditions.
        update: stored slices with a new content; metadata is the stored one (name, UID, resource version).
        create: new slices, in index order, which is the order of preference.
        generation: of the pool once this is done.
        slices: how many slices the pool then has.
    """

    delete: tuple[ResourceSlice, ...] = ()
    update: tuple[ResourceSlice, ...] = ()
    create: tuple[ResourceSlice, ...] = ()
    generation: int = 0
    slices: int = 0

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self.delete or self.update or self.create)

    def __len__(self) -> int:
        """Count the writes."""
        return len(self.delete) + len(self.update) + len(self.create)


def plan(pool: Pool | None, stored: Sequence[ResourceSlice], owner: Owner) -> Writes:
    """Return the writes that make ``stored`` (all slices of this pool) equal ``pool``; None = delete them all.

    The generation stays while readers cannot see a mixture: when at most one slice that exists changes and none is
    added, or when all slices at the highest generation are as wanted already (a rewrite that was interrupted, or a
    slice that somebody deleted). Otherwise it rises by one and every slice is rewritten.
    """
    generation = max((each.spec.pool.generation for each in stored), default=0)
    living = sorted((each for each in stored if not each.metadata.deletion_timestamp), key=_name)
    if pool is None:
        return Writes(delete=tuple(living), generation=generation)
    matched = _matched(living, owner)
    kept = {id(each) for each in matched.values()}
    obsolete = tuple(each for each in living if id(each) not in kept)
    writes = _least(pool, matched, owner, generation)
    return replace(writes, delete=tuple(sorted((*obsolete, *writes.delete), key=_name)))


def _matched(living: Sequence[ResourceSlice], owner: Owner) -> dict[int, ResourceSlice]:
    """Return the slice of each index; of several the one with the highest generation, then the first by name."""
    matched: dict[int, ResourceSlice] = {}
    for each in living:
        match = _INDEX.match(_name(each))
        if not match or not _belongs(each, owner):
            continue
        index = int(match[1], 16)
        known = matched.get(index)
        if known is None or known.spec.pool.generation < each.spec.pool.generation:
            matched[index] = each
    return matched


def _belongs(each: ResourceSlice, owner: Owner) -> bool:
    """Tell whether the fields that can never change are right."""
    return each.spec.driver == owner.driver and each.spec.node_name == owner.node_name


def _least(pool: Pool, matched: Mapping[int, ResourceSlice], owner: Owner, generation: int) -> Writes:
    """Keep the stored layout when that costs one slice at most, else lay out anew: all is rewritten anyway.

    So devices that were plugged in later may stand out of order until then.
    """
    counts = {each.spec.pool.resource_slice_count for each in matched.values()}
    generations = {each.spec.pool.generation for each in matched.values()}
    if len(counts) == len(generations) == 1 and (count := counts.pop()) > max(matched):
        layout = settled(pool, matched, count)
        writes = _writes(pool, layout, matched, owner, generation) if layout is not None else None
        if writes is not None and writes.generation == generation:
            return writes
    return _writes(pool, fresh(pool), matched, owner, generation)


def _writes(
    pool: Pool, layout: Sequence[Content], matched: Mapping[int, ResourceSlice], owner: Owner, current: int
) -> Writes:
    wanted = [_spec(pool.name, each, len(layout), owner) for each in timed(layout, matched.values())]
    there = {index: each for index, each in matched.items() if index < len(wanted)}
    changed = {index for index, each in there.items() if not same(wanted[index], each.spec)}
    behind = {index for index, each in there.items() if each.spec.pool.generation < current}
    missing = [index for index in range(len(wanted)) if index not in there]
    generation = current if _keeps(changed, behind, missing, there) else current + 1
    stale = set(there) if generation != current else changed | behind
    wanted = [replace(each, pool=replace(each.pool, generation=generation)) for each in wanted]
    updates = (_updated(each, wanted[index], owner, index in stale) for index, each in sorted(there.items()))
    return Writes(
        delete=tuple(each for index, each in matched.items() if index not in there),
        update=tuple(filter(None, updates)),
        create=tuple(_created(index, wanted[index], owner) for index in missing),
        generation=generation,
        slices=len(wanted),
    )


def _keeps(changed: set[int], behind: set[int], missing: Sequence[int], there: Mapping[int, ResourceSlice]) -> bool:
    """Tell whether the generation can stay (see ``plan``)."""
    if changed <= behind:
        return len(behind) < len(there)  # what stands at this generation is as wanted, and something does
    return not behind and not missing and len(changed) <= 1


def _spec(name: str, content: Content, count: int, owner: Owner) -> ResourceSliceSpec:
    return ResourceSliceSpec(
        driver=owner.driver,
        pool=ResourcePool(name=name, generation=0, resource_slice_count=count),
        node_name=owner.node_name,
        all_nodes=None if owner.node_name else True,
        devices=content.devices or None,
        shared_counters=content.counters or None,
    )


def _updated(stored: ResourceSlice, spec: ResourceSliceSpec, owner: Owner, stale: bool) -> ResourceSlice | None:  # noqa: FBT001 - one fact about the slice
    """Return the slice to write, or None when content and owner are as wanted."""
    wanted = (owner.reference,) if owner.reference else stored.metadata.owner_references
    if not stale and stored.metadata.owner_references == wanted:
        return None
    metadata = replace(stored.metadata, owner_references=wanted)
    return replace(stored, metadata=metadata, spec=spec if stale else stored.spec)


def _created(index: int, spec: ResourceSliceSpec, owner: Owner) -> ResourceSlice:
    references = (owner.reference,) if owner.reference else None
    metadata = ObjectMeta(generate_name=_prefix(index, owner), owner_references=references)
    return ResourceSlice(metadata=metadata, spec=spec)


def _prefix(index: int, owner: Owner) -> str:
    """Return ``generateName``: the index in front makes the order of the names the order of preference."""
    prefix = "-".join(filter(None, (f"{index:05x}", owner.driver, owner.node_name))) + "-"
    return prefix if len(prefix) <= _LONGEST_PREFIX else prefix[: _LONGEST_PREFIX - 1].rstrip("-.") + "-"


def _name(each: ResourceSlice) -> str:
    return each.metadata.name or ""
