"""Feature gates: which there are is asked of the binary itself, which are wanted is decided here."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from hack.cluster.errors import UsageError

STOCK, ALL = "stock", "all"
SUBJECTS = re.compile(
    r"^DRA|DynamicResource|^Resource(Health|Claim)|Workload|PodGroup|Gang|HPA|PreQueueing|^PodsAPI|KubeletPodResources"
)
"""Names of gates about devices, workloads scheduled together, and the horizontal autoscaler."""
API_GROUPS = ("resource.k8s.io", "scheduling.k8s.io", "autoscaling")
OPEN_STAGES = ("ALPHA", "BETA")


@dataclass(frozen=True)
class Gate:
    """A feature gate as the components know it."""

    name: str
    stage: str
    default: bool
    locked: bool
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Catalog:
    """Every gate of the components, and every API version with whether it is served by default."""

    gates: Mapping[str, Gate]
    apis: Mapping[str, bool]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the catalog from what `kube-catalog` prints."""
        read = json.loads(text)
        gates = [Gate(**{**row, "needs": tuple(row["needs"])}) for row in read["gates"]]
        return cls({gate.name: gate for gate in gates}, {row["version"]: row["default"] for row in read["apis"]})


@dataclass(frozen=True)
class Choice:
    """Gates that differ from their default, API versions to serve besides the default ones, and why, for people."""

    gates: Mapping[str, bool]
    apis: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Return the value of `--feature-gates`."""
        return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.gates.items()))

    @property
    def runtime_config(self) -> str:
        """Return the value of `--runtime-config`."""
        return ",".join(f"{version}=true" for version in self.apis)


def choose(catalog: Catalog, wanted: str, words: Iterable[str]) -> Choice:
    """Return the gates for `stock` or `all` and the user's own, with everything they need."""
    asked = parse_words(catalog, words)
    chosen = dict(all_gates(catalog)) if wanted == ALL else {}
    chosen.update(asked)
    notes = [*_switch_on_needed(catalog, chosen, asked), *_switch_off_dependents(catalog, chosen, asked)]
    apis = tuple(version for version in _apis(catalog) if wanted == ALL)
    return Choice(dict(sorted(chosen.items())), apis, tuple(notes))


def all_gates(catalog: Catalog) -> dict[str, bool]:
    """Return every open gate about our subjects, switched on."""
    rows = catalog.gates.values()
    return {
        gate.name: True for gate in rows if SUBJECTS.search(gate.name) and gate.stage in OPEN_STAGES and not gate.locked
    }


def _apis(catalog: Catalog) -> list[str]:
    return [
        version for version, served in catalog.apis.items() if not served and version.partition("/")[0] in API_GROUPS
    ]


def parse_words(catalog: Catalog, words: Iterable[str]) -> dict[str, bool]:
    """Return the gates of words like `X=true,Y=false`; refuses what the components would refuse, but by name."""
    asked = {}
    for word in (part for joined in words for part in joined.split(",") if part):
        name, _, value = word.partition("=")
        if value not in ("true", "false"):
            msg = f"--feature-gate {word}: expected NAME=true or NAME=false"
            raise UsageError(msg)
        gate = _known(catalog, name)
        on = value == "true"
        if gate.locked and on != gate.default:
            msg = f"feature gate {name} is locked to {str(gate.default).lower()}"
            raise UsageError(msg)
        asked[name] = on
    return asked


def _known(catalog: Catalog, name: str) -> Gate:
    gate = catalog.gates.get(name)
    if gate is None:
        close = difflib.get_close_matches(name, catalog.gates, n=4, cutoff=0.5)
        hint = f"; close: {', '.join(close)}" if close else ""
        msg = f"no feature gate {name} in this Kubernetes{hint}"
        raise UsageError(msg)
    return gate


def _on(catalog: Catalog, chosen: Mapping[str, bool], name: str) -> bool:
    return chosen.get(name, catalog.gates[name].default)


def _switch_on_needed(catalog: Catalog, chosen: dict[str, bool], asked: Mapping[str, bool]) -> list[str]:
    """Switch on what wanted gates need; two wishes of the user that contradict each other are refused."""
    notes = []
    queue = sorted(name for name, on in chosen.items() if on)
    while queue:
        name = queue.pop(0)
        missing = [needed for needed in catalog.gates[name].needs if not _on(catalog, chosen, needed)]
        _refuse_contradiction(name, missing, asked)
        added = [needed for needed in missing if needed not in asked]
        chosen.update(dict.fromkeys(added, True))
        queue += added
        notes += [f"{needed} switched on too: {name} needs it" for needed in added]
    return notes


def _refuse_contradiction(name: str, missing: Sequence[str], asked: Mapping[str, bool]) -> None:
    refused = [needed for needed in missing if needed in asked]
    if refused and asked.get(name):
        msg = f"feature gate {name} needs {', '.join(refused)}, which is asked to be off"
        raise UsageError(msg)


def _switch_off_dependents(catalog: Catalog, chosen: dict[str, bool], asked: Mapping[str, bool]) -> list[str]:
    """Switch off what cannot be on without a gate that the user wants off."""
    notes = []
    queue = sorted(name for name, on in asked.items() if not on)
    while queue:
        off = queue.pop(0)
        dependents = [gate for gate in catalog.gates.values() if off in gate.needs and _on(catalog, chosen, gate.name)]
        _refuse_fixed(off, dependents, asked)
        names = [gate.name for gate in dependents]
        chosen.update(dict.fromkeys(names, False))
        queue += names
        notes += [f"{name} switched off too: it needs {off}" for name in names]
    return notes


def _refuse_fixed(off: str, dependents: Iterable[Gate], asked: Mapping[str, bool]) -> None:
    fixed = [gate.name for gate in dependents if gate.locked or asked.get(gate.name)]
    if fixed:
        msg = f"feature gate {off} cannot be off: {', '.join(fixed)} needs it"
        raise UsageError(msg)
