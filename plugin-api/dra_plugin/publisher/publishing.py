"""Publisher: the tasks."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from dra_plugin.cluster import Cluster
from dra_plugin.latest import Latest, follow
from dra_plugin.naming import check_driver_name
from dra_plugin.observe import Observer, ignore
from dra_plugin.publisher.scope import PoolState, Scope
from dra_plugin.publisher.syncing import PoolSync
from dra_plugin.resources import Pool
from dra_plugin.slices import Owner

__all__ = ["Publisher"]


class Publisher:
    """Publishes the pools of one driver on one node.

    While ``enabled`` is false, or ``pools`` is None (not known yet), everything is read and nothing written. Several
    pools do not wait for each other. The slices stay when ``run`` ends.

    Attributes:
        state: of each pool that is wanted or stored, by the name that it has in the API.
    """

    def __init__(
        self,
        cluster: Cluster,
        driver: str,
        node_name: str,
        pools: Latest[Mapping[str, Pool] | None],
        enabled: Latest[bool],
        *,
        observer: Observer = ignore,
    ) -> None:
        """Read and write nothing before ``run``. Raises SetupError for a driver name that the API refuses."""
        check_driver_name(driver)
        owner = Owner(driver=driver, node_name=node_name)
        self._scope = Scope(cluster, owner, pools, enabled, observer)
        self._running: set[str] = set()

    @property
    def state(self) -> Latest[Mapping[str, PoolState]]:
        """How far each pool is published."""
        return self._scope.state

    @property
    def reading(self) -> Latest[str | None]:
        """What keeps the API server's slices from being read, None while all is well."""
        return self._scope.mirror.error

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._scope.mirror.run(), name="slices mirror")
            tasks.create_task(self._scope.node.run(), name="slices owner")
            tasks.create_task(self._check_node(), name="slices node")
            await self._follow_pools(tasks)

    async def _follow_pools(self, tasks: asyncio.TaskGroup) -> None:
        """Have a task for each pool that is wanted or stored."""
        scope = self._scope
        async with aclosing(follow(scope.pools, scope.mirror.objects)) as changes:
            async for _ in changes:
                for name in {**scope.wanted(), **scope.stored()}.keys() - self._running:
                    self._running.add(name)
                    tasks.create_task(self._sync(name), name=f"slices of {name}")

    async def _sync(self, name: str) -> None:
        try:
            await PoolSync(name, self._scope).run()
        finally:
            self._running.discard(name)

    async def _check_node(self) -> None:
        """Read the Node again whenever publishing starts: it may have been replaced meanwhile."""
        async with aclosing(follow(self._scope.enabled)) as changes:
            async for (enabled,) in changes:
                if enabled:
                    self._scope.node.read_again()
