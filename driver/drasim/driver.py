"""One driver on one node: its hardware, what is known of it, and everybody who follows that.

looks at the hardware ─▶ state ─▶ inventory ─▶ static CDI spec, then the pool (published once the kubelet knows us)
                               └▶ health (the kubelet's stream), renewed by each look and by nothing else
"""

import asyncio
import math
from collections.abc import Iterable, Mapping

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.health import DeviceHealth, Health, HealthReport
from dra_plugin.latest import Latest
from dra_plugin.locks import DeviceLocks, FileLock
from dra_plugin.observe import Observer
from dra_plugin.server import Server, Settings, serving
from dra_plugin.slices import Pool
from drasim.config import Config
from drasim.devices import pool_name, published_devices
from drasim.edits import static_devices, static_kind
from drasim.hardware import Gpu, Hardware, HardwareError, Kind, Nic, Observation
from drasim.planning import Inventory
from drasim.pools import build_pool
from drasim.preparer import Preparer, Stores
from drasim.probes import DriverStatus
from drasim.state import NodeState, fold

__all__ = ["Driver", "driver_name", "inventory_of", "stores_for"]

LOOK_AGAIN = 5.0
"""Seconds until hardware that cannot be looked at as a whole is tried again."""


def driver_name(kind: Kind, config: Config) -> str:
    """Return the configured name of the driver for that kind of devices."""
    return config.gpu.driver if kind == "gpu" else config.nic.driver


def stores_for(driver: str, config: Config) -> Stores:
    """Return where that driver keeps its records and specs; nothing is created yet."""
    folder = config.paths.plugins_folder / driver
    return Stores(
        lock=FileLock(folder / "claims.lock"),
        devices=DeviceLocks(folder / "devices"),
        checkpoint=Checkpoint(folder / "claims"),
        cdi=CdiFolder(config.paths.cdi_folder),
    )


def inventory_of(node: str, kind: Kind, devices: Iterable[Gpu | Nic]) -> Inventory:
    """Return what a driver of that kind offers on the node, given the hardware that is there."""
    published = published_devices(NodeState(devices={device.id: device for device in devices}))
    return Inventory(kind=kind, pool=pool_name(node, kind), devices={device.name: device for device in published})


class Driver:
    """Serves one driver while ``run`` runs.

    Attributes:
        name: the driver's name, as in slices and claims.
        state: what was seen of the hardware.
        inventory: what can be prepared; None before the first look.
        server: the sockets, once they listen.
        problem: what keeps the hardware from being looked at, its static CDI spec from being written or the claims'
            records from being read.
    """

    def __init__(self, hardware: Hardware, config: Config, boot_id: str, instance: str) -> None:
        """Serve ``hardware`` as instance ``instance`` (unique among all instances, such as the Pod's UID)."""
        self.name = driver_name(hardware.kind, config)
        self.state = Latest(NodeState())
        self.inventory: Latest[Inventory | None] = Latest(None)
        self.pools: Latest[Mapping[str, Pool] | None] = Latest(None)
        self.health: Latest[HealthReport] = Latest(())
        self.problem: Latest[str | None] = Latest(None)
        self.server: Latest[Server | None] = Latest(None)
        self._hardware, self._config = hardware, config
        self._stores = stores_for(self.name, config)
        self.preparer = Preparer(self.name, hardware, self.inventory, self._stores, boot_id)
        self._settings = Settings(
            driver=self.name,
            node_name=config.node_name,
            registry=config.paths.registry_folder,
            folder=config.paths.plugins_folder / self.name,
            instance=instance,
            drain=float(config.drain),
        )

    async def run(self, cluster: Cluster, observer: Observer, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then finish the running calls. Raises SetupError."""
        plugin, settings = self.preparer, self._settings
        async with asyncio.TaskGroup() as group:
            async with serving(plugin, settings, cluster, self.pools, health=self.health, observer=observer) as server:
                self.server.set(server)
                looking = group.create_task(self._look(), name=f"look {self.name}")
                await stop.wait()
            looking.cancel()

    def status(self) -> DriverStatus:
        """Return how this driver is doing now."""
        server, inventory = self.server.value, self.inventory.value
        states = server.publisher.state.value if server else {}
        return DriverStatus(
            driver=self.name,
            registered=server is not None and server.registered.value,
            refusal=server.refusal.value if server else None,
            published=bool(states) and all(state.synced for state in states.values()),
            publishing={name: state.error for name, state in states.items() if state.error is not None},
            cluster=server.publisher.reading.value if server else None,
            hardware=self.problem.value,
            devices=None if inventory is None else len(inventory.devices),
            prepared=self.preparer.prepared.value,
            damaged=self.preparer.damaged.value,
        )

    async def _look(self) -> None:
        """Follow the hardware until cancelled; what keeps the records from being read is told until it is gone."""
        trouble = await self._sweep()
        while True:
            try:
                async for observation in self._hardware.watch():
                    trouble = trouble and await self._sweep()
                    self._saw(observation, trouble)
            except HardwareError as error:
                self.problem.set(str(error))
            await asyncio.sleep(LOOK_AGAIN)

    def _saw(self, observation: Observation, trouble: str | None) -> None:
        """Bring everything up to date with one look. A spec that cannot be written is tried again at the next look."""
        state = fold(self.state.value, observation)
        inventory = self.inventory.value
        if inventory is None or state.devices != self.state.value.devices:
            try:
                inventory = self._offer(state)
            except SetupError as error:
                self.problem.set(str(error))
                return
        self.state.set(state)
        self.health.set(self._report(state, inventory))
        self.problem.set(trouble)

    def _offer(self, state: NodeState) -> Inventory:
        """Offer the devices that are there: first to containers, then to Prepare, then to the scheduler."""
        inventory = inventory_of(self._config.node_name, self._hardware.kind, state.devices.values())
        self._stores.cdi.write_static(static_kind(self.name), static_devices(inventory.devices.values()))
        self.inventory.set(inventory)
        pool = build_pool(self._config.node_name, inventory.kind, inventory.devices.values())
        self.pools.set({pool.name: pool})
        return inventory

    def _report(self, state: NodeState, inventory: Inventory) -> HealthReport:
        """Return the health of all devices: what was seen is healthy, and stays so until it should be seen again."""
        return tuple(
            DeviceHealth(
                pool=inventory.pool,
                device=device,
                health=Health.HEALTHY,
                looked_at=int(state.looked_at),
                timeout=max(30, math.ceil(3 * self._config.periods.look)),
            )
            for device in inventory.devices
        )

    async def _sweep(self) -> str | None:
        """Clear what a crash left; returns why that is not possible, and then Prepare will not be either."""
        try:
            await self.preparer.sweep()
        except (ClaimError, SetupError) as error:
            return str(error)
        return None
