"""The DeviceTaintRules of the controller: their one maker, and how they are read back. Pure.

All that must outlive a process is in the rules: whose device it is, and the clocks as annotations, so that another
leader goes on counting.
"""

import hashlib
import re
from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from dra_plugin.resources import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ObjectMeta,
)
from drasim.controller.objects import Place
from drasim.controller.policy import Standing, problem_of
from drasim.controller.times import moment, stamp

__all__ = [
    "LABELS",
    "MISSING_SINCE",
    "NODE_OF",
    "REASON",
    "RECOVERING_SINCE",
    "Ruled",
    "believed",
    "missing",
    "new_rule",
    "read_rule",
    "recovering",
    "rule_name",
    "saying",
    "unclocked",
]

LABELS: Mapping[str, str] = {"app.kubernetes.io/managed-by": "drasim-controller"}
"""What all rules of the controller have, and rules of people have not."""

REASON = "dra.example.com/reason"
NODE_OF = "dra.example.com/node"
RECOVERING_SINCE = "dra.example.com/recovering-since"
MISSING_SINCE = "dra.example.com/missing-since"

_LONGEST = 253
_AHEAD = 60  # seconds; a start that lies further ahead was written by a machine whose time was wrong: start again


class Ruled(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of ours, read.

    Attributes:
        place: the device that it is for.
        node: the device's Node; empty when the rule does not say.
        kind, code: the problem; the kind is empty when the taint is none that the controller makes.
        recovering, missing: since when, Unix time; None while that clock does not run.
        rule: as it is stored.
    """

    place: Place
    node: str
    kind: str
    code: str
    recovering: int | None = None
    missing: int | None = None
    rule: DeviceTaintRule

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.metadata.name or ""


def believed(since: int | None, now: float) -> int | None:
    """Return the start of a clock, None when it does not run or can only be wrong."""
    return since if since is not None and since <= now + _AHEAD else None


def rule_name(place: Place) -> str:
    """Return the name of a device's rule: always the same, unique, readable, at most 253 characters."""
    mark = hashlib.sha256(str(place).encode()).hexdigest()[:8]
    words = re.sub(r"[^a-z0-9.]+", "-", f"drasim-{place.pool}-{place.device}".lower())
    return f"{words[: _LONGEST - len(mark) - 1].rstrip('-.')}-{mark}"


def new_rule(place: Place, node: str, problem: Standing) -> DeviceTaintRule:
    """Return the rule that evicts from a device.

    When its taint was added is for the server to say: the seconds of tolerations count from there.
    """
    labels = {**LABELS, "dra.example.com/driver": place.driver}
    annotations = {NODE_OF: node, REASON: _reason(place, node, problem)}
    selector = DeviceTaintSelector(driver=place.driver, pool=place.pool, device=place.device)
    return DeviceTaintRule(
        metadata=ObjectMeta(name=rule_name(place), labels=labels, annotations=annotations),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=_taint(place.driver, problem.kind, problem.code)),
    )


def read_rule(rule: DeviceTaintRule, drivers: Collection[str]) -> Ruled | None:
    """Return a rule of ours; None when it is somebody else's: of another driver, or not as we name and label them."""
    selector, meta = rule.spec.device_selector or DeviceTaintSelector(), rule.metadata
    place = Place(selector.driver or "", selector.pool or "", selector.device or "")
    is_labelled = LABELS.items() <= (meta.labels or {}).items()
    if not is_labelled or place.driver not in drivers or meta.name != rule_name(place):
        return None
    said = meta.annotations or {}
    kind, code = problem_of(place.driver, rule.spec.taint)
    return Ruled(
        place=place,
        node=said.get(NODE_OF, ""),
        kind=kind,
        code=code,
        recovering=moment(said.get(RECOVERING_SINCE)),
        missing=moment(said.get(MISSING_SINCE)),
        rule=rule,
    )


def saying(ruled: Ruled, problem: Standing | None) -> DeviceTaintRule:
    """Return the rule for a device that is sick: it evicts, no clock runs. ``problem`` None: the one that it has.

    With another key it is another taint, whose tolerations begin anew; a code that changes is news of the same one.
    They begin anew too when the device was well in between; a server that gives each effect a time of its own is not
    relied on, for old ones do not.
    """
    kind, code = (problem.kind, problem.code) if problem else (ruled.kind, ruled.code)
    old, new = ruled.rule.spec.taint, _taint(ruled.place.driver, kind, code)
    said = _without_clocks(ruled)
    if problem and (ruled.kind, ruled.code) != (kind, code):
        said[REASON] = _reason(ruled.place, ruled.node, problem)
    stays = (old.key, old.effect) == (new.key, new.effect)
    return _with(ruled, replace(new, time_added=old.time_added if stays else None), said)


def unclocked(ruled: Ruled) -> DeviceTaintRule:
    """Return the rule with its clocks stopped."""
    return _with(ruled, ruled.rule.spec.taint, _without_clocks(ruled))


def missing(ruled: Ruled, since: float) -> DeviceTaintRule:
    """Return the rule for a device that has not been there since then; whether it evicts does not change."""
    return _with(ruled, ruled.rule.spec.taint, {**_without_clocks(ruled), MISSING_SINCE: stamp(since)})


def recovering(ruled: Ruled, since: float) -> DeviceTaintRule:
    """Return the rule for a device that has been well since then: it keeps claims away, and evicts nobody any more.

    The seconds of a toleration count from the taint's time: who tolerates some would be given the device, since those
    are over, and be evicted from it at once, again and again.
    """
    taint = replace(ruled.rule.spec.taint, effect="NoSchedule")
    return _with(ruled, taint, {**_without_clocks(ruled), RECOVERING_SINCE: stamp(since)})


def _with(ruled: Ruled, taint: DeviceTaint, annotations: Mapping[str, str]) -> DeviceTaintRule:
    rule = ruled.rule
    spec, metadata = replace(rule.spec, taint=taint), replace(rule.metadata, annotations=annotations)
    return replace(rule, spec=spec, metadata=metadata)


def _taint(driver: str, kind: str, code: str) -> DeviceTaint:
    return DeviceTaint(key=f"{driver}/{kind}", value=code or None, effect="NoExecute")


def _reason(place: Place, node: str, problem: Standing) -> str:
    return f"{place.device} on {node}: {problem} since {stamp(problem.since)}"


def _without_clocks(ruled: Ruled) -> dict[str, str]:
    said = {**(ruled.rule.metadata.annotations or {}), NODE_OF: ruled.node}
    return {name: text for name, text in said.items() if name not in (RECOVERING_SINCE, MISSING_SINCE)}
