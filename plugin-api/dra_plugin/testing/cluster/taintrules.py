"""What the API server fills in and checks when DeviceTaintRules are written (Kubernetes 1.37, KEP-5055)."""

from collections.abc import Iterator
from typing import Any

from dra_plugin.naming.names import is_condition, is_label, label_value, pool_name
from dra_plugin.testing.cluster.rules import EFFECTS, now

__all__ = ["rule_problems", "stamped_rule"]

_Json = dict[str, Any]
_Problem = tuple[str, str]
_MOST_CONDITIONS = 8


def stamped_rule(new: _Json, old: _Json | None) -> _Json:
    """Return the rule with the time from which its effect counts.

    A rule without ``timeAdded`` gets "now". So does one whose effect changes while the time stays the same: running
    tolerations begin with the effect, not with the rule.
    """
    spec = new.get("spec") or {}
    taint = spec.get("taint") or {}
    before = ((old or {}).get("spec") or {}).get("taint") or {}
    time = taint.get("timeAdded") or now()
    if old is not None and taint.get("effect") != before.get("effect") and time == before.get("timeAdded"):
        time = now()
    return {**new, "spec": {**spec, "taint": {**taint, "timeAdded": time}}}


def rule_problems(new: _Json) -> Iterator[_Problem]:
    """Yield what is wrong with a rule: field and rule."""
    spec = new.get("spec") or {}
    yield from _selector_problems(spec.get("deviceSelector") or {})
    taint = spec.get("taint") or {}
    if not is_condition(taint.get("key") or ""):
        yield "spec.taint.key", "must be a label's key"
    if label_value(taint.get("value") or "") != (taint.get("value") or ""):
        yield "spec.taint.value", "must be a label's value"
    if taint.get("effect") not in EFFECTS:
        yield "spec.taint.effect", f"supported values: {', '.join(EFFECTS)}"
    if len((new.get("status") or {}).get("conditions") or ()) > _MOST_CONDITIONS:
        yield "status.conditions", f"must have at most {_MOST_CONDITIONS} items"


def _selector_problems(selector: _Json) -> Iterator[_Problem]:
    driver, pool, device = (selector.get(name) for name in ("driver", "pool", "device"))
    if driver is not None and not (len(driver) <= 63 and all(map(is_label, driver.lower().split(".")))):  # noqa: PLR2004 - the API's limit
        yield "spec.deviceSelector.driver", "must be a DNS subdomain of at most 63 characters"
    if pool is not None and not _is_pool(pool):
        yield "spec.deviceSelector.pool", "must be DNS subdomains joined by '/'"
    if device is not None and not is_label(device):
        yield "spec.deviceSelector.device", "must be a DNS label"


def _is_pool(name: str) -> bool:
    try:
        return pool_name(name) == name
    except ValueError:
        return False
