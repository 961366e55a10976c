"""When problems of devices lead to the eviction of Pods, and how many at once."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from drasim.config.problems import PROBLEM_KINDS, ProblemsConfig
from drasim.config.sections import Duration, Section
from drasim.config.strict import Delay, Misfit, Seconds, suggestion

__all__ = ["Budget", "ControllerConfig", "Eviction", "Wait", "check_policy"]

_MOST_XID = 999
_PATTERN = {"xid": f"a number from 1 to {_MOST_XID}", "down": "a PCIe root as a label value, such as pci0000-15"}
"""The problems that have a code, and what it is."""

Wait = Annotated[Delay, msgspec.Meta(description="0 to 24h: a number of seconds, or text such as 5s, 500ms, 2m, 1h")]
_Amount = Annotated[
    Annotated[int, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,9}|([1-9][0-9]?|100)%)\Z")],
    msgspec.Meta(
        description="a number of devices, such as 1 (0: none at all), or a share of the published ones, 1% to 100%, "
        "which is rounded down but at least one device; null: no limit"
    ),
]
_Problem = Annotated[
    str, msgspec.Meta(pattern=rf"^({'|'.join(PROBLEM_KINDS)})\Z", description=", ".join(PROBLEM_KINDS))
]
_Code = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z", description='a code in quotes, such as "79"'
    ),
]
_Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z",
        description="lower-case letters, digits and dashes, at most 63 characters",
    ),
]
_Label = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z",
        description="the name of a label, such as topology.kubernetes.io/rack",
    ),
]


class Eviction(Section, frozen=True, kw_only=True):
    """A problem that leads to eviction. Of several on one device the one that is listed first is the worst.

    Only a problem that keeps new claims away (``problems.effects``: NoSchedule) counts.

    Attributes:
        problem: its kind, as in ``problems.effects``.
        codes: only these codes; empty: any.
        driver: only devices of this driver; empty: of both.
        after: how long the problem must have stood.
        recover_after: how long it must be gone, on a device that is published, until the rule is lifted.
    """

    problem: _Problem
    codes: tuple[_Code, ...] = ()
    driver: str = ""
    after: Wait = msgspec.field(default_factory=lambda: Delay(0))
    recover_after: Wait = msgspec.field(default_factory=lambda: Delay(30))


_DEAD_XIDS = ("48", "62", "64", "74", "79", "95", "119", "120", "143")
"""Memory that cannot be repaired while it is used, NVLink, a GPU or its microcontroller that does not answer."""
_DEFAULT = (
    Eviction(problem="lost"),
    Eviction(problem="unplugged"),
    Eviction(problem="down", after=Delay(10)),
    Eviction(problem="xid", codes=_DEAD_XIDS),
    Eviction(problem="ecc-uncorrectable"),
)


class Budget(Section, frozen=True, kw_only=True):
    """How many devices may have a rule of the controller at once; null is no limit.

    Eviction by taint does not ask PodDisruptionBudgets: this is the only brake. A device counts for as long as its rule
    stands, also after its Pods have left. A share is one of all devices that both drivers publish there.

    Attributes:
        per_node: on each Node.
        per_rack: on the Nodes with the same value of ``rackLabel``; a Node without that label is in no rack.
        per_cluster: in the whole cluster.
    """

    per_node: _Amount | None = None
    per_rack: _Amount | None = None
    per_cluster: _Amount | None = "10%"


class ControllerConfig(Section, frozen=True, kw_only=True):
    """`drasim controller`.

    Attributes:
        name: of its Lease, of its ConfigMap (``<name>-status``) and of what says who reports an Event.
        namespace: where these are.
        owner: the ClusterRole that owns the rules, so that they go with it; empty: none does.
        evict: which problems evict Pods, the worst first.
        budget: how many devices at once.
        rack_label: the label of Nodes that names their rack.
        gone_after: how long a device must have been missing, held by no claim, until its rule is lifted.
        on_named_claim: a claim that outlives its Pods (a Pod names it, or it belongs to a PodGroup) brings the next Pod
            to the same device: ``hold`` makes no rule for that device, ``evict`` does. A rule that stands already stays
            until the device is well.
        dry_run: make no rule, and say which Pods would go.
    """

    name: _Name = "drasim-controller"
    namespace: str = ""
    owner: str = ""
    evict: tuple[Eviction, ...] = msgspec.field(default_factory=lambda: _DEFAULT)
    budget: Budget = Budget()
    rack_label: _Label = "topology.kubernetes.io/rack"
    gone_after: Duration = msgspec.field(default_factory=lambda: Seconds(600))
    on_named_claim: Literal["hold", "evict"] = "hold"
    dry_run: bool = False


def check_policy(
    config: ControllerConfig, problems: ProblemsConfig, drivers: Mapping[str, Literal["gpu", "nic"]]
) -> None:
    """Refuse a policy that could never do what it says. ``drivers``: the kind of devices by driver. Raises Misfit.

    The policy that is there by default passes: it has more than any one configuration needs.
    """
    if config.evict == _DEFAULT:
        return
    if not config.evict:
        raise Misfit("controller.evict", "empty, so that nothing could ever be evicted; needed: at least one problem")
    for index, entry in enumerate(config.evict):
        for field, problem in _troubles(entry, config.evict[:index], problems, drivers):
            raise Misfit(f"controller.evict[{index}].{field}", problem)


def _troubles(
    entry: Eviction,
    earlier: tuple[Eviction, ...],
    problems: ProblemsConfig,
    drivers: Mapping[str, Literal["gpu", "nic"]],
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an entry, the field and why, in the order in which it matters."""
    if entry.driver and entry.driver not in drivers:
        known = f"{suggestion(entry.driver, drivers)}; allowed: {', '.join(drivers)}, or empty for both"
        yield "driver", f'"{entry.driver}" is not a driver of this configuration{known}'
    kinds = PROBLEM_KINDS[entry.problem]
    fitting = [driver for driver, kind in drivers.items() if kind in kinds and entry.driver in ("", driver)]
    if not fitting:
        yield "driver", f'"{entry.problem}" never befalls its devices; allowed: {_allowed(kinds, drivers)}'
    yield from _code_troubles(entry, problems)
    if all(_is_covered(entry, earlier, driver) for driver in fitting):
        yield "problem", f'"{entry.problem}" never gets here: earlier entries have all of it; allowed: before them'


def _allowed(kinds: tuple[str, ...], drivers: Mapping[str, str]) -> str:
    return ", ".join(driver for driver, kind in drivers.items() if kind in kinds) or "no driver that is switched on"


def _code_troubles(entry: Eviction, problems: ProblemsConfig) -> Iterator[tuple[str, str]]:
    kind = entry.problem
    for index, code in enumerate(entry.codes):
        if kind not in _PATTERN:
            yield f"codes[{index}]", f'"{code}" is not allowed; allowed: no codes, "{kind}" has none'
        elif kind == "xid" and not (code.isdecimal() and code[0] != "0" and int(code) <= _MOST_XID):
            yield f"codes[{index}]", f'"{code}" is not allowed; allowed: {_PATTERN[kind]}'
        elif problems.effect(kind, code) == "None":
            yield f"codes[{index}]", f'"{kind}/{code}" only informs; allowed: codes with the effect NoSchedule'
    of_kind = {key: effect for key, effect in problems.effects.items() if key.partition("/")[0] == kind}
    if not entry.codes and "NoSchedule" not in of_kind.values():
        yield "problem", f'"{kind}" only informs; allowed: problems with the effect NoSchedule'


def _is_covered(entry: Eviction, earlier: tuple[Eviction, ...], driver: str) -> bool:
    """Tell whether earlier entries take all that this one could of that driver's devices."""
    rivals = [other for other in earlier if other.problem == entry.problem and other.driver in ("", driver)]
    codes = {code for other in rivals for code in other.codes}
    return any(not other.codes for other in rivals) or (bool(entry.codes) and codes.issuperset(entry.codes))
