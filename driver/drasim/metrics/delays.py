"""How long it takes from the look that sees a fault until the slices say so."""

from collections.abc import Mapping

from dra_plugin.resources import Pool

__all__ = ["Delays", "Taints", "taints_in"]

Taints = frozenset[tuple[str, str, str, str]]
"""Taints that are to be published: device, key, value, effect."""


def taints_in(pools: Mapping[str, Pool]) -> Taints:
    """Return the taints of all devices of the pools."""
    return frozenset(
        (device.name, taint.key, taint.value or "", taint.effect)
        for pool in pools.values()
        for device in pool.devices
        for taint in device.taints or ()
    )


class Delays:
    """Taints of one driver that its slices do not have yet, with the time of the look that they come from."""

    def __init__(self) -> None:
        """Nothing is known: the first taints that are wanted are not new, they may be from before a restart."""
        self._wanted: Taints | None = None
        self._pending: dict[tuple[str, str, str, str], float] = {}

    def wanted(self, taints: Taints, seen: float) -> None:
        """Note what the slices should say from now on, after a look at the Unix time ``seen``."""
        new = taints - (taints if self._wanted is None else self._wanted)
        kept = {taint: since for taint, since in self._pending.items() if taint in taints}
        self._wanted, self._pending = taints, {**kept, **dict.fromkeys(new, seen)}

    def synced(self, now: float) -> tuple[float, ...]:
        """Return the seconds that each pending taint took, now that the slices say what they should."""
        seconds = tuple(max(0.0, now - seen) for seen in self._pending.values())
        self._pending = {}
        return seconds

    def drop(self) -> None:
        """Forget what is pending: it is not ours to publish any more."""
        self._pending = {}
