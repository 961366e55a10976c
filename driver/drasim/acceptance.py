"""Acceptance: whether the API server keeps the taints of devices, as far as is known now.

Up to Kubernetes 1.35 they vanish silently unless a gate is on. The first answer to a write tells; so does a dry run,
which is asked for again and again, because a pool from which the sick devices were left out has no taint to lose.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing

from dra_plugin.capabilities import keeps_taints
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError
from dra_plugin.latest import Latest, follow
from dra_plugin.publisher import PoolState

__all__ = ["Acceptance"]

ASK_AGAIN = 300.0
"""Seconds, more or less, after which the server is asked again though nothing hints at a change."""

_TRY_AGAIN = 30.0  # seconds; after it did not answer
_TAINTS = "devices[].taints"


class Acceptance:
    """Knows whether taints are kept while ``run`` runs.

    Attributes:
        taints: False when the server was seen to drop them; True until then.
    """

    def __init__(self, driver: str, node_name: str, ask_again: float = ASK_AGAIN) -> None:
        """Ask in the name of ``driver`` on that node; nothing is asked before ``run``."""
        self.taints = Latest(True)  # noqa: FBT003 - the value of a Latest
        self._driver, self._node_name, self._ask_again = driver, node_name, ask_again
        self._lost = False
        self._known = False  # to the kubelet, once
        self._current = False
        self._ask_at = 0.0

    async def run(
        self,
        cluster: Cluster,
        pools: Latest[Mapping[str, PoolState]],
        registered: Latest[bool],
        unread: Latest[str | None],
    ) -> None:
        """Watch the answers to writes, and ask whenever the server may be another one, until cancelled.

        It is asked before the kubelet knows the driver, and so before the first slice is written: a write that tells
        has shown a sick device already. ``pools``, and ``unread`` (what keeps slices from being read), are the
        publisher's; nothing is asked while a kubelet that knew the driver is away, for nothing is published then.
        """
        async with aclosing(follow(pools, registered, unread, until=self._next)) as changes:
            async for states, known, trouble in changes:
                self._observe(states)
                self._known = self._known or known
                current = known is self._known and trouble is None
                if current and (not self._current or _now() >= self._ask_at):
                    await self._ask(cluster)
                self._current = current

    def _next(self) -> float | None:
        return self._ask_at if self._current else None

    def _observe(self, states: Mapping[str, PoolState]) -> None:
        """Note that taints begin to vanish; what vanished stays noted by the publisher, whatever was asked since."""
        lost = any(_TAINTS in state.dropped for state in states.values())
        if lost and not self._lost:
            self.taints.set(False)
        self._lost = lost

    async def _ask(self, cluster: Cluster) -> None:
        """Ask the server; while it does not answer, what was known counts."""
        after = self._ask_again
        try:
            self.taints.set(await keeps_taints(cluster, self._driver, self._node_name))
        except ClusterError:
            after = min(after, _TRY_AGAIN)
        self._ask_at = _now() + after * random.uniform(0.8, 1.2)


def _now() -> float:
    return asyncio.get_running_loop().time()
