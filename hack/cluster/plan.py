"""What the box has to run, written down by the launcher and read by the first process of the box."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

BOX = 0


@dataclass(frozen=True)
class Component:
    """A program that runs as long as the box does."""

    name: str
    argv: tuple[str, ...]
    log: str
    probe: str
    """Where it answers when it is ready: an http or https address, or `unix:` and a path in its node."""
    node: int = BOX
    after: tuple[str, ...] = ()
    """Identities of the components that have to be ready before it starts."""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Return the name, with the node's number where every node has one."""
        return identity(self.name, self.node)


def identity(name: str, node: int) -> str:
    """Return what a component is called in logs and requests, for example `etcd` or `kubelet-2`."""
    return name if node == BOX else f"{name}-{node}"


@dataclass(frozen=True)
class Plan:
    """A whole box; `kept` are folders that every node sees at their own path."""

    nodes: int
    kept: tuple[str, ...]
    components: tuple[Component, ...]

    def dump(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, text: str) -> "Plan":
        """Return the plan from its JSON."""
        read = json.loads(text)
        parts = [{**part, "argv": tuple(part["argv"]), "after": tuple(part["after"])} for part in read["components"]]
        return cls(read["nodes"], tuple(read["kept"]), tuple(Component(**part) for part in parts))
