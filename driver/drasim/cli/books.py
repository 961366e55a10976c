"""Where `drasim fault` keeps faults, and what it knows of nodes: a cluster, or a file and the configured machine."""

import asyncio
import enum
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from dra_plugin.cluster import Cluster
from dra_plugin.errors import Conflict, Rejected, Retryable, SetupError
from dra_plugin.locks import FileLock
from dra_plugin.resources import ObjectMeta
from drasim.cli.options import Common
from drasim.cli.places import check_node, chosen_node, published_machine
from drasim.cli.reach import opened
from drasim.config import Config, ConfigError
from drasim.faults import DEVICE_FAULT, DeviceFault, DeviceFaultSpec, DeviceFaultStatus, Site
from drasim.faults.manifests import read_manifests, write_manifests
from drasim.faults.wanted import judge, stamp
from drasim.hardware import Kind
from drasim.hardware.simulated import Machine, load_profile, machine_of

__all__ = ["Book", "ClusterBook", "FileBook", "Put", "opened_book", "recorded"]

T = TypeVar("T")
_PATIENCE = 3.0  # seconds for which a server that is away is asked again, while somebody waits for the answer
_PAUSE = 0.5
_LOCK_TIMEOUT = 10.0
_NOT_FOUND = 404
_CRD = f"{DEVICE_FAULT.plural}.{DEVICE_FAULT.group}"
_OVER = ("Cleared", "Refused")


class Put(enum.StrEnum):
    """What became of a fault that was to stand."""

    NEW = "injected"
    REPLACED = "replaced"
    STANDS = "stands already:"


class Book(Protocol):
    """Faults by name, and the nodes that can have them."""

    async def node(self, given: str) -> str:
        """Return the Node that is meant: the ``given`` one, or what follows where none is. Raises ConfigError."""
        ...

    async def check_node(self, node: str) -> None:
        """Raise ConfigError for a Node that is known to be none; an empty name is no Node in particular."""
        ...

    async def machine(self, node: str) -> Machine:
        """Return the devices that can fail there. Raises ConfigError for a node that is none."""
        ...

    async def faults(self) -> tuple[DeviceFault, ...]:
        """Return all faults, by name, with what is known of each."""
        ...

    async def put(self, fault: DeviceFault) -> Put:
        """Let the fault stand. One of that name that is over, or is another, goes first."""
        ...

    async def remove(self, fault: DeviceFault) -> bool:
        """Repair the fault; False when it is gone already."""
        ...


def recorded(name: str, spec: DeviceFaultSpec, **labels: str) -> DeviceFault:
    """Return a fault as this command line creates them."""
    marks = {"app.kubernetes.io/managed-by": "drasim-fault"}
    given = {f"dra.example.com/{label}": value for label, value in labels.items()}
    return DeviceFault(metadata=ObjectMeta(name=name, labels=marks | given), spec=spec)


@asynccontextmanager
async def opened_book(common: Common, patience: float = _PATIENCE) -> AsyncIterator[Book]:
    """Give the book in the file that is named, else that of the cluster. Raises ConfigError.

    ``patience``: seconds for which a server that is away is asked again.
    """
    if common.file is not None:
        yield FileBook(common.file, common.used)
        return
    async with opened(common) as cluster:
        yield ClusterBook(cluster, common.used, patience)


class ClusterBook:
    """DeviceFault objects."""

    def __init__(self, cluster: Cluster, config: Config, patience: float = _PATIENCE) -> None:
        """Keep them in ``cluster``; ``config`` names the drivers; ``patience`` is in seconds."""
        self._cluster, self._config, self._patience = cluster, config, patience

    async def node(self, given: str) -> str:
        """Return the given node, else the configured one, else the only one that publishes devices."""
        return await chosen_node(self._cluster, self._config, given)

    async def check_node(self, node: str) -> None:
        """Ask the cluster."""
        if node:
            await check_node(self._cluster, self._config, node)

    async def machine(self, node: str) -> Machine:
        """Return what the node publishes."""
        return await published_machine(self._cluster, self._config, node)

    async def faults(self) -> tuple[DeviceFault, ...]:
        """Return all objects."""
        listing = await _patiently(lambda: self._cluster.list(DEVICE_FAULT), self._patience)
        return tuple(sorted(listing.items, key=lambda fault: fault.metadata.name or ""))

    async def put(self, fault: DeviceFault) -> Put:
        """Create the object, in place of one that is over or another."""
        stored = await _patiently(lambda: self._cluster.get(DEVICE_FAULT, fault.metadata.name or ""), self._patience)
        outcome = _outcome(stored, fault)
        if outcome is Put.STANDS:
            return outcome
        if stored is not None:
            await self.remove(stored)
        try:
            await _patiently(lambda: self._cluster.create(DEVICE_FAULT, fault), self._patience)
        except Conflict:  # a create whose answer was lost has been done all the same
            stored = await self._cluster.get(DEVICE_FAULT, fault.metadata.name or "")
            if _outcome(stored, fault) is not Put.STANDS:
                raise
        return outcome

    async def remove(self, fault: DeviceFault) -> bool:
        """Delete the object, whatever was last written to it."""
        meta = msgspec.structs.replace(fault.metadata, resource_version=None)
        return await _patiently(
            lambda: self._cluster.delete(DEVICE_FAULT, msgspec.structs.replace(fault, metadata=meta)), self._patience
        )


class FileBook:
    """Manifests in a file, which ``simulation.faults`` of a driver may name."""

    def __init__(self, path: Path, config: Config) -> None:
        """Keep them in ``path``; ``config`` has the machines that they are for. Raises ConfigError for a folder."""
        if path.is_dir():
            raise ConfigError("flags", "--file", f"{path} is a folder; needed: the path of a file")
        self._path, self._config = path, config
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))

    async def node(self, given: str) -> str:
        """Return the given node, else the configured one."""
        if not (given or self._config.node_name):
            raise ConfigError("flags", "--node", "missing; needed: the name that the driver runs with")
        return given or self._config.node_name

    async def check_node(self, node: str) -> None:
        """Do nothing: a file takes any name."""

    async def machine(self, node: str) -> Machine:
        """Return the configured machine of that node."""
        return machine_of(load_profile(self._config.simulation.profile), node)

    async def faults(self) -> tuple[DeviceFault, ...]:
        """Return the faults of the file, with the status that they have on the configured machine now."""
        now, found = time.time(), read_manifests(self._path)
        return tuple(
            msgspec.structs.replace(fault, status=self._status(fault, now))
            for fault in sorted(found, key=lambda fault: fault.metadata.name or "")
        )

    async def put(self, fault: DeviceFault) -> Put:
        """Write the fault into the file."""
        async with self._changing() as stored:
            outcome = _outcome(stored.get(fault.metadata.name or ""), fault)
            if outcome is not Put.STANDS:
                dated = msgspec.structs.replace(fault.metadata, creation_timestamp=stamp(time.time()))
                stored[fault.metadata.name or ""] = msgspec.structs.replace(fault, metadata=dated)
            return outcome

    async def remove(self, fault: DeviceFault) -> bool:
        """Take the fault out of the file."""
        async with self._changing() as stored:
            return stored.pop(fault.metadata.name or "", None) is not None

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[dict[str, DeviceFault]]:
        """Give the faults by name, and write what was made of them, while nobody else does. Raises ConfigError."""
        if not self._path.parent.is_dir():
            raise ConfigError("flags", "--file", f"{self._path.parent} is no folder; needed: one that exists")
        async with self._lock.hold(_LOCK_TIMEOUT):
            before = {fault.metadata.name or "": fault for fault in await self.faults()}
            stored = dict(before)
            yield stored
            if stored != before:
                write_manifests(self._path, stored.values())

    def _status(self, fault: DeviceFault, now: float) -> DeviceFaultStatus:
        """Return what the fault means now. Whether a driver has seen it, no file knows."""
        node = fault.spec.node
        machine = machine_of(load_profile(self._config.simulation.profile), node)
        chosen: dict[Kind, str] = {"gpu": self._config.gpu.hardware, "nic": self._config.nic.hardware}
        running = frozenset(kind for kind, hardware in chosen.items() if hardware != "off")
        verdict = judge(fault, Site(node=node, machine=machine, running=running), now)
        return DeviceFaultStatus(phase=verdict.phase, reason=verdict.reason or None, devices=verdict.devices or None)


def _outcome(stored: DeviceFault | None, wanted: DeviceFault) -> Put:
    """Return what becomes of the wanted fault where one of its name is stored. One that is over is none."""
    over = stored is None or (stored.status or DeviceFaultStatus()).phase in _OVER
    if stored is None or over or stored.metadata.deletion_timestamp:
        return Put.NEW
    return Put.STANDS if stored.spec == wanted.spec else Put.REPLACED


async def _patiently(request: Callable[[], Coroutine[Any, Any, T]], patience: float) -> T:
    """Send a request, again and again while a server is away; raises what is left of that after some time."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await request()
        except Conflict:
            raise
        except Rejected as error:
            if error.code != _NOT_FOUND:
                raise
            raise SetupError(f"{error}; is the CRD {_CRD} installed?") from error
        except Retryable as error:
            pause = max(error.retry_after or 0.0, _PAUSE)
            if asyncio.get_running_loop().time() + pause > end:
                raise
            await asyncio.sleep(pause)
