"""The Node that owns the slices: its UID, read again when there is reason to think that the Node was replaced."""

import asyncio
from contextlib import aclosing

from dra_plugin.backoff import backoff
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError
from dra_plugin.latest import Latest, follow
from dra_plugin.resources import NODE, OwnerReference

__all__ = ["NodeOwner"]

_FIRST = 0.5  # seconds; doubles with each failure in a row
_RECENT = 2.0  # seconds


class NodeOwner:
    """Follows the Node by reading it when asked (a driver need not watch nodes).

    Attributes:
        reference: the owner reference for slices; None until the Node was read, and while there is no such Node.
        error: why there is none, or why it could not be read again.
    """

    def __init__(self, cluster: Cluster, node_name: str) -> None:
        """Read nothing before ``run``."""
        self.reference: Latest[OwnerReference | None] = Latest(None)
        self.error: Latest[str | None] = Latest(None)
        self._cluster, self._name = cluster, node_name
        self._asked = Latest(0)
        self._failures = 0
        self._retry: float | None = None
        self._read_at = 0.0

    def read_again(self) -> None:
        """Have the Node read soon, unless that was just done."""
        if self.reference.value is None or asyncio.get_running_loop().time() - self._read_at >= _RECENT:
            self._asked.set(self._asked.value + 1)

    async def run(self) -> None:
        """Read the Node at once and whenever asked, with back-off, until cancelled."""
        async with aclosing(follow(self._asked, until=lambda: self._retry)) as turns:
            async for _ in turns:
                error = await self._read()
                self.error.set(error)
                self._failures = self._failures + 1 if error else 0
                now = asyncio.get_running_loop().time()
                self._retry = now + backoff(_FIRST, self._failures) if error else None

    async def _read(self) -> str | None:
        """Read the Node; return what went wrong."""
        try:
            node = await self._cluster.get(NODE, self._name)
        except ClusterError as error:
            return f"the Node {self._name} cannot be read: {error}"
        self._read_at = asyncio.get_running_loop().time()
        if node is None:
            self.reference.set(None)
            return f"there is no Node {self._name}"
        uid = node.metadata.uid or ""
        self.reference.set(OwnerReference(api_version="v1", kind="Node", name=self._name, uid=uid, controller=True))
        return None
