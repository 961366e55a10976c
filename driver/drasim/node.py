"""`drasim node`: the drivers of one machine in one process, and what they share.

The kubelet looks for new sockets about once a second, so they come first. Everything that is heavy to import (the API
server's client, the probes' server, logs) waits until they listen.
"""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

from dra_plugin.cluster import Cluster
from dra_plugin.errors import SetupError
from dra_plugin.events import Events
from dra_plugin.files import read_boot_id
from dra_plugin.kube import Credentials, KubeCluster
from dra_plugin.kube.credentials import Endpoint
from dra_plugin.latest import Latest, follow
from dra_plugin.observe import CallDone, FieldsDropped, Observation, PoolCorrected, PoolSynced, SliceWritten
from drasim import logs
from drasim.config import Config, show
from drasim.driver import Driver
from drasim.hardware import Kind
from drasim.hardware.simulated import SimulatedHardware, SimulatedMachine, load_profile, machine_of, opened
from drasim.metrics import Gauge, Metrics
from drasim.notices import Notices
from drasim.probes import DriverStatus, Probes, problems, serve

__all__ = ["Node", "run", "running"]

REPORTER = "drasim"


class Node:
    """What `drasim node` is while it runs."""

    def __init__(self, config: Config, drivers: tuple[Driver, ...], notices: Notices) -> None:
        """Serve ``drivers``; ``notices`` tells users what they would not hear of otherwise."""
        self.config = config
        self.drivers = drivers
        self.notices = notices
        self.metrics = Metrics()

    def observe(self, observation: Observation) -> None:
        """Pass on what happened in any of the drivers."""
        self.metrics.observe(observation)
        self.notices.observe(observation)
        _log(observation)

    def statuses(self) -> tuple[DriverStatus, ...]:
        """Return how each driver is doing."""
        return tuple(driver.status() for driver in self.drivers)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self.metrics.exposition(_gauges(self.statuses()))


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
        notices = Notices(Events(cluster, REPORTER, f"{config.node_name}/{instance}"), config.node_name)
        node = Node(config, drivers, notices)
        async with asyncio.TaskGroup() as group:
            serving = [
                group.create_task(driver.run(cluster, node.observe, stop), name=driver.name) for driver in drivers
            ]
            for driver in drivers:
                await driver.server.wait(lambda server: server is not None)
            narrators = [group.create_task(_narrate(driver)) for driver in drivers]
            followers = [group.create_task(follower) for follower in _followers(node)]
            yield node
            _cancel(narrators)  # what goes away from here on goes on purpose
            stop.set()
            await asyncio.wait(serving)
            _cancel(followers)


def _hardware(config: Config, machine: SimulatedMachine) -> Iterator[SimulatedHardware]:
    kinds: dict[Kind, str] = {"gpu": config.gpu.hardware, "nic": config.nic.hardware}
    for kind, hardware in kinds.items():
        if hardware != "off":
            yield SimulatedHardware(machine, kind, float(config.periods.look))


def _followers(node: Node) -> Iterator[Coroutine[None, None, None]]:
    """Yield what runs beside the drivers, once their sockets listen."""
    yield node.notices.run()
    if node.config.probes.address:
        yield serve(node.config.probes.address, Probes(statuses=node.statuses, metrics=node.exposition))


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


async def _narrate(driver: Driver) -> None:
    """Log what changes about a driver: what is in the way of serving, and that nothing is any more."""
    server = driver.server.value
    if server is None:
        return
    told: tuple[str, ...] | None = None
    publisher = server.publisher
    async for _ in follow(server.registered, server.refusal, publisher.state, publisher.reading, driver.problem):
        found = problems(driver.status())
        if found and found != told:
            logs.get(driver=driver.name).warning("not ready", problems=found)
        elif not found and told:
            logs.get(driver=driver.name).info("ready")
        told = found


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


def _log(observation: Observation) -> None:
    """Write what happened to the log, for people who look for a claim or a slice."""
    match observation:
        case CallDone(driver=driver, operation=operation, uid=uid, error=None, seconds=seconds):
            logs.get(driver=driver).info(f"{operation}d", uid=uid, seconds=round(seconds, 4))
        case CallDone(driver=driver, operation=operation, uid=uid, error=error):
            logs.get(driver=driver).warning(f"{operation} failed", uid=uid, error=error)
        case SliceWritten(driver=driver, pool=pool, verb=verb, generation=generation):
            logs.get(driver=driver).info("slice written", pool=pool, verb=verb, generation=generation)
        case PoolSynced(driver=driver, pool=pool, error=str(error)):
            logs.get(driver=driver).warning("pool not written", pool=pool, error=error)
        case FieldsDropped(driver=driver, pool=pool, fields=fields, gates=gates):
            logs.get(driver=driver).warning("fields dropped by the server", pool=pool, fields=fields, gates=gates)
        case PoolCorrected(driver=driver, pool=pool, problems=corrected):
            logs.get(driver=driver).warning("parts of the pool were left out or changed", pool=pool, problems=corrected)
