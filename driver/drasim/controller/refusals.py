"""DeviceFaults of Nodes that do not exist: nobody else would ever refuse them."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from dra_plugin.cluster import Cluster
from dra_plugin.latest import follow
from dra_plugin.leader import Election
from dra_plugin.mirror import Mirror
from dra_plugin.resources import Node
from drasim.config.strict import suggestion
from drasim.faults import DEVICE_FAULT, DeviceFault, refused
from drasim.faults.objects import DeviceFaultStatus
from drasim.faults.status import StatusWriter
from drasim.faults.wanted import key_of

__all__ = ["Refuser", "refusals"]

_NAMED = 10  # Nodes that a refusal names at most


def refusals(faults: Iterable[DeviceFault], nodes: Iterable[str]) -> Mapping[str, DeviceFaultStatus]:
    """Return the statuses, by UID, of the faults whose Node is not among ``nodes``."""
    known = frozenset(nodes)
    strays = [fault for fault in faults if fault.spec.node not in known]
    return {key_of(fault): refused(fault, _reason(fault, sorted(known))) for fault in strays}


def _reason(fault: DeviceFault, known: list[str]) -> str:
    listed = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    node = fault.spec.node
    return (
        f'spec.node: there is no Node "{node}"{suggestion(node, known)}; allowed: {listed or "none, there is no Node"}'
    )


class Refuser:
    """Writes refusals while this instance leads; the driver on a Node writes the statuses of its own faults."""

    def __init__(self, cluster: Cluster, nodes: Mirror[Node], election: Election) -> None:
        """Read ``nodes`` from the view that the controller keeps anyway."""
        self._nodes, self._election = nodes, election
        self._faults: Mirror[DeviceFault] = Mirror(cluster, DEVICE_FAULT)
        self._writer = StatusWriter(cluster, self._faults)

    async def run(self) -> None:
        """Refuse until cancelled; a cluster without the resource has no faults to refuse."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._faults.run())
            group.create_task(self._writer.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        nodes, faults = self._nodes, self._faults
        changing = (faults.objects, nodes.objects, nodes.synced, nodes.error, self._election.leading)
        async with aclosing(follow(*changing)) as turns:
            async for _ in turns:
                is_known = nodes.synced.value > 0 and nodes.error.value is None
                refuses = is_known and self._election.holds
                self._writer.wanted.set(refusals(faults.objects.value.values(), nodes.objects.value) if refuses else {})
