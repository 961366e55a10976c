"""What can be wrong with a device, how that is published, and when it counts as over."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from drasim.config.sections import Duration, Section
from drasim.config.strict import Seconds

__all__ = ["PROBLEM_KINDS", "Effect", "ProblemsConfig"]

Effect = Literal["NoSchedule", "None"]

PROBLEM_KINDS: Mapping[str, tuple[Literal["gpu", "nic"], ...]] = {
    "lost": ("gpu", "nic"),
    "down": ("gpu", "nic"),
    "unplugged": ("gpu", "nic"),
    "xid": ("gpu",),
    "ecc-uncorrectable": ("gpu",),
    "nvlink": ("gpu",),
    "thermal": ("gpu",),
    "link-down": ("nic",),
    "link-flap": ("nic",),
    "crc-errors": ("nic",),
    "probe-hangs": ("gpu", "nic"),
}
"""What can be wrong, by name (also the last part of the taint's key), and the kinds of devices that it befalls."""

_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(PROBLEM_KINDS, "NoSchedule"),
    "thermal": "None",
    "crc-errors": "None",
    **{f"xid/{code}": "None" for code in (13, 31, 43, 45, 68, 109)},  # faults of the application, not of the GPU
}
_Key = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({'|'.join(PROBLEM_KINDS)})(/[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?)?\Z",
        description=f"a problem ({', '.join(PROBLEM_KINDS)}), or one with a code, such as xid/79",
    ),
]


class ProblemsConfig(Section, frozen=True, kw_only=True):
    """Problems of devices.

    Attributes:
        effects: by problem, or by problem and code (``xid/79``), which goes first: ``NoSchedule`` keeps new claims
            away from the device, ``None`` only informs. What is given here is laid over the defaults.
        clear_after: how long a problem must be gone until it counts as over; doubles each time that it comes back
            after that, until a flapping device stays out.
        clear_after_most: where that doubling ends, and how long a problem that is over is remembered.
        silent_after: how long the probe of a device may take until its health counts as unknown.
    """

    effects: dict[_Key, Effect] = msgspec.field(default_factory=dict)
    clear_after: Duration = msgspec.field(default_factory=lambda: Seconds(5))
    clear_after_most: Duration = msgspec.field(default_factory=lambda: Seconds(120))
    silent_after: Duration = msgspec.field(default_factory=lambda: Seconds(3))

    def __post_init__(self) -> None:
        """Lay the given effects over the defaults."""
        msgspec.structs.force_setattr(self, "effects", {**_EFFECTS, **self.effects})

    def effect(self, kind: str, code: str) -> Effect:
        """Return the effect of a problem of that kind and code; one that nobody knows keeps claims away."""
        return self.effects.get(f"{kind}/{code}") or self.effects.get(kind, "NoSchedule")
