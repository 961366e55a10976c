"""Where `drasim fault` keeps faults, and what it knows of nodes: a cluster, or a file and the configured machine."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from dra_plugin.cluster import Cluster
from dra_plugin.errors import Conflict, Rejected, Retryable, SetupError
from dra_plugin.kube import KubeCluster
from dra_plugin.locks import FileLock
from dra_plugin.resources import ObjectMeta
from drasim.cli.node import credentials_for
from drasim.cli.places import chosen_node, published_machine
from drasim.config import Config, ConfigError
from drasim.faults import DEVICE_FAULT, DeviceFault, DeviceFaultSpec, DeviceFaultStatus, Site
from drasim.faults.manifests import read_manifests, write_manifests
from drasim.faults.wanted import outcome_of, stamp
from drasim.hardware import Kind
from drasim.hardware.simulated import Machine, load_profile, machine_of

__all__ = ["Book", "ClusterBook", "FileBook", "opened_book", "recorded"]

T = TypeVar("T")
_PATIENCE = 20.0  # seconds for which a server that is away is asked again
_PAUSE = 0.5
_LOCK_TIMEOUT = 10.0
_NOT_FOUND = 404
_CRD = f"{DEVICE_FAULT.plural}.{DEVICE_FAULT.group}"
_OVER = ("Cleared", "Refused")


class Book(Protocol):
    """Faults by name, and the nodes that can have them."""

    async def node(self, given: str) -> str:
        """Return the Node that is meant: the ``given`` one, or what follows where none is. Raises ConfigError."""
        ...

    async def machine(self, node: str) -> Machine:
        """Return the devices that can fail there. Raises ConfigError for a node that is none."""
        ...

    async def faults(self) -> tuple[DeviceFault, ...]:
        """Return all faults, by name, with what is known of each."""
        ...

    async def put(self, fault: DeviceFault) -> bool:
        """Let the fault stand; False when it does already. One of that name that is over, or is another, goes first."""
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
async def opened_book(config: Config, file: Path | None) -> AsyncIterator[Book]:
    """Give the book in ``file``, else that of the cluster which the configuration leads to. Raises ConfigError."""
    if file is not None:
        yield FileBook(file, config)
        return
    async with KubeCluster(credentials_for(config, os.environ)) as cluster:
        yield ClusterBook(cluster, config)


class ClusterBook:
    """DeviceFault objects."""

    def __init__(self, cluster: Cluster, config: Config) -> None:
        """Keep them in ``cluster``; ``config`` names the drivers."""
        self._cluster, self._config = cluster, config

    async def node(self, given: str) -> str:
        """Return the given node, else the configured one, else the only one that publishes devices."""
        return await chosen_node(self._cluster, self._config, given)

    async def machine(self, node: str) -> Machine:
        """Return what the node publishes."""
        return await published_machine(self._cluster, self._config, node)

    async def faults(self) -> tuple[DeviceFault, ...]:
        """Return all objects."""
        listing = await _patiently(lambda: self._cluster.list(DEVICE_FAULT))
        return tuple(sorted(listing.items, key=lambda fault: fault.metadata.name or ""))

    async def put(self, fault: DeviceFault) -> bool:
        """Create the object, in place of one that is over or another."""
        stored = await _patiently(lambda: self._cluster.get(DEVICE_FAULT, fault.metadata.name or ""))
        if stored is not None:
            if _stands(stored, fault):
                return False
            await self.remove(stored)
        try:
            await _patiently(lambda: self._cluster.create(DEVICE_FAULT, fault))
        except Conflict:  # a create whose answer was lost has been done all the same
            stored = await self._cluster.get(DEVICE_FAULT, fault.metadata.name or "")
            if stored is None or not _stands(stored, fault):
                raise
        return True

    async def remove(self, fault: DeviceFault) -> bool:
        """Delete the object, whatever was last written to it."""
        meta = msgspec.structs.replace(fault.metadata, resource_version=None)
        return await _patiently(
            lambda: self._cluster.delete(DEVICE_FAULT, msgspec.structs.replace(fault, metadata=meta))
        )


class FileBook:
    """Manifests in a file, which ``simulation.faults`` of a driver may name."""

    def __init__(self, path: Path, config: Config) -> None:
        """Keep them in ``path``; ``config`` has the machines that they are for."""
        self._path, self._config = path, config
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))

    async def node(self, given: str) -> str:
        """Return the given node, else the configured one."""
        if not (given or self._config.node_name):
            raise ConfigError("flags", "--node", "missing; needed: the name that the driver runs with")
        return given or self._config.node_name

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

    async def put(self, fault: DeviceFault) -> bool:
        """Write the fault into the file."""
        async with self._changing() as stored:
            old = stored.get(fault.metadata.name or "")
            if old is not None and _stands(old, fault):
                return False
            dated = msgspec.structs.replace(fault.metadata, creation_timestamp=stamp(time.time()))
            stored[fault.metadata.name or ""] = msgspec.structs.replace(fault, metadata=dated)
            return True

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

    def _status(self, fault: DeviceFault, now: float) -> DeviceFaultStatus | None:
        node = fault.spec.node
        machine = machine_of(load_profile(self._config.simulation.profile), node)
        chosen: dict[Kind, str] = {"gpu": self._config.gpu.hardware, "nic": self._config.nic.hardware}
        running = frozenset(kind for kind, hardware in chosen.items() if hardware != "off")
        outcome = outcome_of((fault,), Site(node=node, machine=machine, running=running), now)
        return next(iter(outcome.statuses.values()), None)


def _stands(stored: DeviceFault, wanted: DeviceFault) -> bool:
    """Tell whether the stored fault is the wanted one and not over."""
    over = (stored.status or DeviceFaultStatus()).phase in _OVER
    return stored.spec == wanted.spec and not over and stored.metadata.deletion_timestamp is None


async def _patiently(request: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Send a request, again and again while a server is away; raises what is left of that after some time."""
    end = asyncio.get_running_loop().time() + _PATIENCE
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
