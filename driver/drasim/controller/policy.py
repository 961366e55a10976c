"""Which problems of a device lead to eviction: the configured policy, applied to the taints of a slice. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from dra_plugin.resources import DeviceTaint
from drasim.config.controller import Budget, ControllerConfig, Eviction
from drasim.controller.times import moment

__all__ = ["KEEPS_AWAY", "Policy", "Standing", "problem_of"]

_GRAIN = 1.0  # seconds: a taint's time is the second in which the problem began, and that may be its end

KEEPS_AWAY = ("NoSchedule", "NoExecute")
"""Effects that count. ``None``, and whatever is not known, only informs."""


class Standing(msgspec.Struct, frozen=True, order=True):
    """A problem of the policy that stands now. The order is: the worst first, then the oldest.

    Attributes:
        rank: its place in ``controller.evict``; 0 is the worst.
        since: the second in which it was seen first, Unix time.
        kind: such as ``xid``, the last part of the taint's key.
        code: such as ``79``, the taint's value.
    """

    rank: int
    since: int
    kind: str
    code: str

    def __str__(self) -> str:
        return f"{self.kind} {self.code}".rstrip()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What `drasim controller` is told.

    Attributes:
        drivers: whose devices it looks after.
        evict: the problems, the worst first.
        hold_named: no rule for a device whose claim outlives its Pods.
        gone_after: seconds that a device must have been missing until its rule goes.
        dry_run: no rules at all.
    """

    drivers: tuple[str, ...]
    evict: tuple[Eviction, ...]
    budget: Budget = Budget()
    hold_named: bool = True
    gone_after: float = 600.0
    dry_run: bool = False

    @classmethod
    def of(cls, config: ControllerConfig, drivers: Collection[str]) -> "Policy":
        """Return the policy of a configuration."""
        return cls(
            drivers=tuple(drivers),
            evict=config.evict,
            budget=config.budget,
            hold_named=config.on_named_claim == "hold",
            gone_after=float(config.gone_after),
            dry_run=config.dry_run,
        )

    def rank(self, driver: str, kind: str, code: str) -> int | None:
        """Return the first entry that a problem falls under, None if there is none."""
        for rank, entry in enumerate(self.evict):
            ours = entry.problem == kind and entry.driver in ("", driver)
            if ours and (not entry.codes or code in entry.codes):
                return rank
        return None

    def standing(self, driver: str, taints: Iterable[DeviceTaint]) -> tuple[Standing, ...]:
        """Return what of a published device's taints the policy evicts for, the worst first."""
        return tuple(sorted(self._standing(driver, taints)))

    def due_at(self, problem: Standing) -> float:
        """Return the Unix time from which a problem has stood for long enough; clocks do not matter if that is 0 s."""
        after = float(self.evict[problem.rank].after)
        return problem.since + _GRAIN + after if after else 0.0

    def _standing(self, driver: str, taints: Iterable[DeviceTaint]) -> Iterable[Standing]:
        for taint in taints:
            kind, code = problem_of(driver, taint)
            rank = self.rank(driver, kind, code) if taint.effect in KEEPS_AWAY else None
            if rank is not None:
                since = moment(taint.time_added) or 0  # the server fills in a time that is left out
                yield Standing(rank, since, kind, code)


def problem_of(driver: str, taint: DeviceTaint) -> tuple[str, str]:
    """Return kind and code of the problem that a taint of the driver's domain tells of; an empty kind: of another."""
    domain, _, kind = taint.key.rpartition("/")
    return (kind if domain == driver else "", taint.value or "")
