"""What happens to an object between the request and the store: defaults, gates, validation."""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from dra_plugin.testing.cluster.catalog import Resource
from dra_plugin.testing.cluster.gates import without_disabled
from dra_plugin.testing.cluster.refusal import invalid
from dra_plugin.testing.cluster.rules import name_problems, pruned, slice_problems, stamped
from dra_plugin.testing.cluster.taintrules import rule_problems, stamped_rule

__all__ = ["Admission"]

_Json = dict[str, Any]
_ENTRY_KEYS = ("driver", "pool", "device", "shareID")


class Admission:
    """Turns what is asked to be stored into what is stored, or refuses it."""

    def __init__(self, disabled_gates: Collection[str]) -> None:
        """Remove the fields of these feature gates."""
        self.disabled_gates = disabled_gates

    def admitted(self, resource: Resource, new: _Json, old: _Json | None) -> _Json:
        """Return the object to store; raises Refusal when it breaks a rule."""
        problems = name_problems(new["metadata"]) if old is None else iter(())
        if resource.plural == "resourceslices":
            new = without_disabled(stamped(new), old, self.disabled_gates)
            problems = chain(problems, slice_problems(new, old))
        elif resource.plural == "resourceclaims":
            problems = chain(problems, _claim_problems(new, old))
        elif resource.qualified == "devicetaintrules.resource.k8s.io":
            new = stamped_rule(new, old)
            problems = chain(problems, rule_problems(new))
        found = tuple(problems)
        if found:
            raise invalid(f"{resource.kind}.{resource.group}", new["metadata"].get("name") or "", found)
        cleaned: _Json = pruned(new)
        return cleaned


def _claim_problems(new: _Json, old: _Json | None) -> Iterator[tuple[str, str]]:
    if old is not None and pruned(new.get("spec")) != pruned(old.get("spec")):
        yield "spec", "field is immutable"
    status = new.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {tuple(result.get(key) for key in _ENTRY_KEYS) for result in results}
    for index, entry in enumerate(status.get("devices") or ()):
        if tuple(entry.get(key) for key in _ENTRY_KEYS) not in allocated:
            yield f"status.devices[{index}]", "must be an allocated device in the claim"
