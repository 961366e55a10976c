"""How many devices may have a rule at once: on a Node, in a rack, in the cluster. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from drasim.config.controller import Budget
from drasim.controller.status import BudgetUse
from drasim.controller.world import World

__all__ = ["Ledger", "limit_of"]

Scope = tuple[Literal["node", "rack", "cluster"], str]


def limit_of(amount: int | str, published: int) -> int:
    """Return how many devices an amount allows: a share is rounded down, but is at least one device."""
    text = str(amount)
    return max(1, published * int(text[:-1]) // 100) if text.endswith("%") else int(text)


class Ledger:
    """The budgets while one decision is made: each rule that stands, and each that is granted, uses them."""

    def __init__(self, world: World, budget: Budget, *, counting: bool = True) -> None:
        """Begin with the rules that stand; ``counting`` False: with none, as in a dry run."""
        self._world, self._budget = world, budget
        self._limits: dict[Scope, int] = {}
        self._used: Counter[Scope] = Counter()
        self._held: Counter[Scope] = Counter()
        for ruled in world.rules.values() if counting else ():
            self._used.update(self._scopes(world.node_of(ruled)))

    def grants(self, node: str) -> Scope | None:
        """Take one device on that Node from all budgets and return None, or return the first that is used up."""
        scopes = tuple(self._scopes(node))
        for scope in scopes:
            if self._used[scope] >= self.limit(scope):
                self._held[scope] += 1
                return scope
        self._used.update(scopes)
        return None

    def limit(self, scope: Scope) -> int:
        """Return how many devices a scope may have under eviction."""
        if scope not in self._limits:
            amount = {"node": self._budget.per_node, "rack": self._budget.per_rack, "cluster": self._budget.per_cluster}
            self._limits[scope] = limit_of(amount[scope[0]] or 0, self._published(scope))
        return self._limits[scope]

    def uses(self) -> tuple[BudgetUse, ...]:
        """Return the budgets that are in use, or that something waits for."""
        scopes = sorted({scope for scope in (*self._used, *self._held) if self._used[scope] or self._held[scope]})
        return tuple(
            BudgetUse(scope=kind, name=name, limit=self.limit((kind, name)), used=self._used[kind, name], held=held)
            for kind, name in scopes
            for held in (self._held[kind, name],)
        )

    def _scopes(self, node: str) -> Iterator[Scope]:
        """Yield the limited scopes of a Node, the smallest first; a Node without rack is in none."""
        rack = self._world.racks.get(node, "")
        if self._budget.per_node is not None and node:
            yield "node", node
        if self._budget.per_rack is not None and rack:
            yield "rack", rack
        if self._budget.per_cluster is not None:
            yield "cluster", ""

    def _published(self, scope: Scope) -> int:
        kind, name = scope
        by_node = self._world.published
        if kind == "node":
            return by_node.get(name, 0)
        if kind == "cluster":
            return sum(by_node.values())
        return sum(by_node.get(node, 0) for node, rack in self._world.racks.items() if rack == name)
