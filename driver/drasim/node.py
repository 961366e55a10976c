"""`drasim node`: the drivers of one machine in one process, and what they share.

The kubelet looks for new sockets about once a second, so they come first. Everything that is heavy to import (the API
server's client, the probes' server, logs) waits until they listen.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from dra_plugin.cluster import Cluster
from dra_plugin.errors import SetupError
from dra_plugin.events import Events
from dra_plugin.files import read_boot_id
from dra_plugin.kube import Credentials, KubeCluster
from dra_plugin.kube.credentials import Endpoint
from dra_plugin.latest import Latest, follow
from dra_plugin.observe import Observation, PoolSynced
from drasim import diary, logs
from drasim.config import Config, show
from drasim.driver import Driver
from drasim.faults import FaultKeeper, Site
from drasim.hardware import Kind, device_name
from drasim.hardware.simulated import SimulatedHardware, SimulatedMachine, load_profile, machine_of, opened
from drasim.metrics import Devices, Gauge, Metrics, device_gauges, taints_in
from drasim.notices import DeviceNotices, Notices, Watched
from drasim.probes import DriverStatus, Probes, problems, serve

__all__ = ["Node", "run", "running"]

REPORTER = "drasim"


class Node:
    """What `drasim node` is while it runs; ``machine`` is what its simulated drivers drive.

    Attributes:
        started: Unix time before which nothing was looked at by this process.
    """

    def __init__(
        self, config: Config, drivers: tuple[Driver, ...], notices: Notices, machine: SimulatedMachine
    ) -> None:
        """Serve ``drivers``; ``notices`` tells users what they would not hear of otherwise."""
        self.config = config
        self.drivers = drivers
        self.notices = notices
        self.machine = machine
        self.metrics = Metrics()
        self.started = time.time()

    def observe(self, observation: Observation) -> None:
        """Pass on what happened in any of the drivers."""
        self.metrics.observe(observation)
        if isinstance(observation, PoolSynced) and observation.error is None:
            self._synced(observation.driver)
        self.notices.observe(observation)
        diary.note(observation)

    def statuses(self) -> tuple[DriverStatus, ...]:
        """Return how each driver is doing."""
        return tuple(driver.status() for driver in self.drivers)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        devices = [gauge for driver in self.drivers for gauge in device_gauges(_devices(driver), time.time())]
        return self.metrics.exposition((*_gauges(self.statuses()), *devices))

    def wants(self, driver: Driver) -> None:
        """Note what the driver wants its slices to say, for the time that it takes until they do."""
        pools, server = driver.pools.value, driver.server.value
        if pools is not None and server is not None:
            seen, ours = driver.state.value.looked_at, server.newest.value
            self.metrics.wanted(driver.name, taints_in(pools), seen, ours=ours)

    def _synced(self, name: str) -> None:
        for driver in self.drivers:
            if driver.name == name:
                self.wants(driver)  # its own follower may not have had its turn
                self.metrics.synced(name, time.time())


async def run(config: Config, credentials: Credentials) -> None:
    """Serve until SIGTERM or SIGINT, then finish what runs. Raises SetupError (in a group, perhaps)."""
    stop, listening = asyncio.Event(), Latest(False)  # noqa: FBT003 - the value of a Latest
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with (
        KubeCluster(_OnceListening(credentials, listening)) as cluster,
        running(config, cluster) as node,
    ):
        logs.setup(config.log.level, config.log.format)
        logs.get().info("serving", drivers=[driver.name for driver in node.drivers], config=show(config))
        listening.set(True)
        await stop.wait()
        logs.get().info("stopping")


@asynccontextmanager
async def running(config: Config, cluster: Cluster) -> AsyncIterator[Node]:
    """Run the configured drivers; yields when all their sockets listen. Raises SetupError, ConfigError."""
    machine = machine_of(load_profile(config.simulation.profile), config.node_name)
    if not config.paths.plugins_folder.is_dir():
        raise SetupError(f"the kubelet's plugins folder {config.paths.plugins_folder} does not exist")
    boot_id, instance = read_boot_id(config.paths.boot_id_file), config.pod_uid or secrets.token_hex(16)
    stop = asyncio.Event()
    async with opened(machine, config.paths.state_folder, config.paths.boot_id_file) as simulated:
        drivers = tuple(Driver(hardware, config, boot_id, instance) for hardware in _hardware(config, simulated))
        events = Events(cluster, REPORTER, f"{config.node_name}/{instance}")
        notices = Notices(events, config.node_name)
        node = Node(config, drivers, notices, simulated)
        async with asyncio.TaskGroup() as group:
            serving = [
                group.create_task(driver.run(cluster, node.observe, stop), name=driver.name) for driver in drivers
            ]
            for driver in drivers:
                await driver.server.wait(lambda server: server is not None)
            narrators = [group.create_task(each) for driver in drivers for each in _narrators(driver)]
            followers = [group.create_task(follower) for follower in _followers(node)]
            followers += [group.create_task(follower) for follower in _faults(node, simulated, cluster)]
            followers += [group.create_task(follower) for follower in _telling(node, cluster, events)]
            yield node
            _cancel(narrators)  # what goes away from here on goes on purpose
            stop.set()
            await asyncio.wait(serving)
            _cancel(followers)


def _hardware(config: Config, machine: SimulatedMachine) -> Iterator[SimulatedHardware]:
    for kind, hardware in _chosen(config).items():
        if hardware != "off":
            yield SimulatedHardware(machine, kind, float(config.periods.look), float(config.problems.silent_after))


def _chosen(config: Config) -> dict[Kind, str]:
    return {"gpu": config.gpu.hardware, "nic": config.nic.hardware}


def _followers(node: Node) -> Iterator[Coroutine[None, None, None]]:
    """Yield what runs beside the drivers, once their sockets listen."""
    yield node.notices.run()
    if node.config.probes.address:
        yield serve(node.config.probes.address, Probes(statuses=node.statuses, metrics=node.exposition))


def _faults(node: Node, machine: SimulatedMachine, cluster: Cluster) -> Iterator[Coroutine[None, None, None]]:
    """Yield what makes the machine fail as users ask for, while this is the newest instance on the node."""
    server = node.drivers[0].server.value
    if server is None:
        return
    running = frozenset(kind for kind, hardware in _chosen(node.config).items() if hardware != "off")
    site = Site(node=node.config.node_name, machine=machine.machine, running=running)
    file = node.config.simulation.faults
    keeper = FaultKeeper(machine, site, Path(file) if file else None)
    yield keeper.run(cluster, server.newest)
    yield diary.narrate_faults(keeper.problems)


def _telling(node: Node, cluster: Cluster, events: Events) -> Iterator[Coroutine[None, None, None]]:
    """Yield what tells users of the devices' problems, and what measures how soon the slices do."""
    config = node.config
    for driver in node.drivers:
        server = driver.server.value
        if server is not None:
            watched = Watched(
                driver=driver.name,
                state=driver.state,
                unpublished=driver.unpublished,
                speaking=server.newest,
                holders=driver.preparer.holders,
            )
            yield DeviceNotices(watched, cluster, events, config.node_name, config.problems).run(node.started)
            yield _measure(node, driver, server.newest)


async def _measure(node: Node, driver: Driver, newest: Latest[bool]) -> None:
    changes = follow(driver.pools, newest)
    async with aclosing(changes):
        async for _ in changes:
            node.wants(driver)


def _narrators(driver: Driver) -> Iterator[Coroutine[None, None, None]]:
    """Yield what keeps the log of a driver."""
    yield driver.narrate()
    server = driver.server.value
    if server is not None:
        publisher = server.publisher
        changes = server.registered, server.refusal, publisher.state, publisher.reading, driver.problem
        yield diary.narrate_readiness(driver.name, lambda: problems(driver.status()), *changes)


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


class _OnceListening:
    """Credentials given only when the sockets listen: the first request imports the client, which takes time."""

    def __init__(self, credentials: Credentials, listening: Latest[bool]) -> None:
        self.lifetime = credentials.lifetime
        self._credentials, self._listening = credentials, listening

    async def endpoint(self) -> Endpoint:
        return await self._credentials.endpoint()

    async def authorization(self) -> str | None:
        await self._listening.wait(bool)
        return await self._credentials.authorization()


def _gauges(statuses: tuple[DriverStatus, ...]) -> Iterator[Gauge]:
    for status in statuses:
        labels = {"driver": status.driver}
        yield Gauge("ready", "1 while nothing keeps the driver from serving", labels, not problems(status))
        yield Gauge("registered", "1 while the kubelet knows the driver", labels, status.registered)
        yield Gauge("devices", "Devices of the driver on this node", labels, status.devices or 0)
        yield Gauge("prepared_claims", "Claims on record", labels, status.prepared)
        yield Gauge("damaged_records", "Claim records that cannot be read", labels, len(status.damaged))


def _devices(driver: Driver) -> Devices:
    """Return what is to be read of a driver's devices; those that are gone have their problems still."""
    state = driver.state.value
    known = {**state.missing, **state.devices}
    return Devices(
        driver=driver.name,
        health=driver.health.value,
        pools=driver.pools.value or {},
        problems={device_name(device): state.problems.get(name, ()) for name, device in known.items()},
        unpublished=len(driver.unpublished.value),
    )
