"""The one maker of pools: published devices in, the pool of a node out."""

from collections.abc import Iterable

from dra_plugin.slices import Pool
from drasim.devices import Published, pool_name
from drasim.hardware import Kind

__all__ = ["build_pool"]


def build_pool(node: str, kind: Kind, published: Iterable[Published]) -> Pool:
    """Return the pool of the node's devices of that kind, in the order in which they are to be allocated."""
    return Pool(name=pool_name(node, kind), devices=tuple(entry.device for entry in published))
