"""One driver on one node: its hardware, what is known of it, and everybody who follows that.

looks at the hardware ─▶ state, remembered on the disk ─▶ Offer: static CDI spec, inventory, pool, health
claims' records (who holds what), the server (does it keep taints) ─┘
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing

from dra_plugin.cdi import CdiFolder
from dra_plugin.checkpoint import Checkpoint
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClaimError, SetupError
from dra_plugin.health import Health
from dra_plugin.latest import Latest, follow
from dra_plugin.locks import DeviceLocks, FileLock
from dra_plugin.observe import Observer
from dra_plugin.server import Server, Settings, serving
from drasim.acceptance import Acceptance
from drasim.config import Config
from drasim.devices import pool_name, published_devices
from drasim.diary import narrate
from drasim.hardware import Gpu, Hardware, Kind, Nic
from drasim.looking import Looking
from drasim.memory import Memory
from drasim.offering import Offer
from drasim.planning import Inventory
from drasim.preparer import Preparer, Stores
from drasim.probes import DriverStatus
from drasim.state import NodeState

__all__ = ["Driver", "driver_name", "inventory_of", "stores_for"]


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
        state: what is known of the hardware, and what is wrong with it.
        inventory: what can be prepared; None before the first look.
        pools: what is published; None before the first look.
        health: what the kubelet's stream says.
        unpublished: names of sick devices that are left out of the pool because the server keeps no taints.
        server: the sockets, once they listen.
        problem: what keeps the hardware from being looked at, its static CDI spec from being written, the claims'
            records from being read or the devices' problems from being remembered.
    """

    def __init__(self, hardware: Hardware, config: Config, boot_id: str, instance: str) -> None:
        """Serve ``hardware`` as instance ``instance`` (unique among all instances, such as the Pod's UID)."""
        self.name = driver_name(hardware.kind, config)
        folder, stores = config.paths.plugins_folder / self.name, stores_for(self.name, config)
        memory = Memory(folder / "problems.json", hardware.kind, boot_id)
        self._looking = Looking(hardware, memory, config.problems)
        self._offer = Offer(self.name, hardware.kind, config, stores.cdi)
        self._acceptance = Acceptance(self.name, config.node_name)
        self.state, self.inventory = self._looking.state, self._offer.inventory
        self.pools, self.health, self.unpublished = self._offer.pools, self._offer.health, self._offer.unpublished
        self.problem: Latest[str | None] = Latest(None)
        self.server: Latest[Server | None] = Latest(None)
        self.preparer = Preparer(self.name, hardware, self.inventory, stores, boot_id)
        self._unread: Latest[str | None] = Latest(None)  # what keeps the records from being read
        self._period = float(config.periods.look)
        self._settings = Settings(
            driver=self.name,
            node_name=config.node_name,
            registry=config.paths.registry_folder,
            folder=folder,
            instance=instance,
            drain=float(config.drain),
        )

    async def run(self, cluster: Cluster, observer: Observer, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then finish the running calls. Raises SetupError."""
        plugin, settings = self.preparer, self._settings
        async with asyncio.TaskGroup() as group:
            async with serving(plugin, settings, cluster, self.pools, health=self.health, observer=observer) as server:
                self.server.set(server)
                following = group.create_task(self._follow(cluster, server), name=f"follow {self.name}")
                await stop.wait()
            following.cancel()

    async def narrate(self) -> None:
        """Write what happens to the devices to the log, until cancelled."""
        await narrate(self.name, self.state, self.unpublished, self._looking.lost)

    def status(self) -> DriverStatus:
        """Return how this driver is doing now."""
        server, inventory = self.server.value, self.inventory.value
        states = server.publisher.state.value if server else {}
        return DriverStatus(
            driver=self.name,
            registered=server is not None and server.registered.value,
            refusal=server.refusal.value if server else None,
            published=bool(states) and all(state.published for state in states.values()),
            publishing={name: state.error for name, state in states.items() if state.error is not None},
            cluster=server.publisher.reading.value if server else None,
            hardware=self.problem.value,
            devices=None if inventory is None else len(inventory.devices),
            prepared=self.preparer.prepared.value,
            damaged=self.preparer.damaged.value,
            unhealthy={each.device: each.message for each in self.health.value if each.health is not Health.HEALTHY},
            unpublished=tuple(sorted(self.unpublished.value)),
        )

    async def _follow(self, cluster: Cluster, server: Server) -> None:
        """Keep what is known and offered up to date until cancelled. Who holds what is learned first."""
        self._unread.set(await self._sweep())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._looking.run(self._renew), name=f"looking {self.name}")
            group.create_task(self._renewals(), name=f"renewals {self.name}")
            group.create_task(self._read_records(), name=f"records {self.name}")
            publisher = server.publisher
            asking = self._acceptance.run(cluster, publisher.state, server.registered, publisher.reading)
            group.create_task(asking, name=f"acceptance {self.name}")

    async def _renewals(self) -> None:
        """Renew the offer when something else than the hardware has changed. A look renews it by itself, at once."""
        preparer, looking = self.preparer, self._looking
        changes = preparer.held, preparer.damaged, self._acceptance.taints, self._unread, looking.blind
        async with aclosing(follow(*changes)) as turns:
            async for _ in turns:
                self._renew()

    def _renew(self) -> None:
        """Offer what is known now. A spec that cannot be written is tried again at the next look."""
        held, failure = self._held(), None
        self._looking.forget(held)
        if self.state.value.looked_at:
            try:
                self._offer.renew(self.state.value, held, taints_kept=self._acceptance.taints.value)
            except SetupError as error:
                failure = str(error)
        self.problem.set(self._looking.blind.value or failure or self._unread.value or self._looking.forgetful.value)

    def _held(self) -> frozenset[str]:
        """Return the hardware that claims hold: all of it while a record cannot be read, for it may name any."""
        if self._unread.value is not None or self.preparer.damaged.value:
            return frozenset({*self.state.value.devices, *self.state.value.missing})
        return self.preparer.held.value

    async def _read_records(self) -> None:
        """Read the claims' records again and again: another instance, or `drasim release`, changes them too.

        While they cannot be read nothing can be prepared.
        """
        while True:
            await asyncio.sleep(self._period)
            self._unread.set(await self._sweep())

    async def _sweep(self) -> str | None:
        """Clear what a crash left; returns why that is not possible, and then Prepare will not be either."""
        try:
            await self.preparer.sweep()
        except (ClaimError, SetupError) as error:
            return str(error)
        return None
