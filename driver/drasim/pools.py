"""The one maker of pools: published devices in, the pool of a node out. Pure."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from dra_plugin.resources import DeviceAttribute
from dra_plugin.slices import Pool
from drasim.config import ProblemsConfig
from drasim.devices import Published, pool_name
from drasim.hardware import Kind, Nic
from drasim.problems import Problem, standing
from drasim.taints import health_of, isolates, taints_for

__all__ = ["build_pool", "left_out", "marked"]

_NO_LINK = frozenset({"link-down", "link-flap"})


def build_pool(node: str, kind: Kind, published: Iterable[Published]) -> Pool:
    """Return the pool of the node's devices of that kind, in the order in which they are to be allocated."""
    return Pool(name=pool_name(node, kind), devices=tuple(entry.device for entry in published))


def marked(published: Published, problems: Iterable[Problem], driver: str, config: ProblemsConfig) -> Published:
    """Return the device with what its problems mean: health, link state and taints.

    A link that comes and goes is down until it stayed up for long enough: who asks for a link wants one that holds.
    """
    holding = standing(problems)
    if not holding:
        return published
    attributes = {**(published.device.attributes or {}), "health": _text(health_of(holding, config).name.capitalize())}
    if isinstance(published.hardware, Nic) and any(problem.kind in _NO_LINK for problem in holding):
        attributes["linkState"] = _text("down")
    taints = taints_for(holding, driver, config)
    return replace(published, device=replace(published.device, attributes=attributes, taints=taints))


def left_out(
    published: Iterable[Published],
    problems: Mapping[str, tuple[Problem, ...]],
    held: Collection[str],
    config: ProblemsConfig,
) -> frozenset[str]:
    """Return the names of devices that claims are to be kept away from and that nobody holds.

    Where the server keeps no taints, not to publish them is the only way; what a claim holds has to stay (KEP-5055).
    """
    return frozenset(
        entry.name for entry in published if entry.id not in held and isolates(problems.get(entry.id, ()), config)
    )


def _text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string=value)
