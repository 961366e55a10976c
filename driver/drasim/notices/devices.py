"""Problems and recoveries of devices as Events: on the Node, and on the Pods that use the device."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress

import msgspec

from dra_plugin.checkpoint import Record
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClusterError
from dra_plugin.events import Events
from dra_plugin.latest import Latest, follow
from dra_plugin.resources import ObjectReference
from drasim.config import ProblemsConfig
from drasim.hardware import device_name
from drasim.notices.news import (
    DEVICE_RECOVERED,
    DEVICE_UNPUBLISHED,
    UNPUBLISHED,
    News,
    Told,
    known_at_start,
    news,
    stands,
)
from drasim.notices.references import node_reference, pods_of
from drasim.state import NodeState

__all__ = ["DeviceNotices", "Watched"]

_PATIENCE = 10.0  # seconds to find out who uses a device


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One driver, as far as its devices are told of.

    Attributes:
        driver: its name.
        state: what is known of its devices.
        unpublished: published names of sick devices that are left out of the slices.
        speaking: whether this instance tells; another one of the same driver does otherwise.
        holders: return the records that hold any of these devices, given by hardware identity.
    """

    driver: str
    state: Latest[NodeState]
    unpublished: Latest[frozenset[str]]
    speaking: Latest[bool]
    holders: Callable[[frozenset[str]], tuple[Record, ...]]


class DeviceNotices:
    """Tells of one driver's devices while ``run`` runs.

    A problem is told once, however often it is looked at, and after a restart only if it began after it. What happens
    while Events are being written is told as a whole afterwards: what came and went meanwhile is not.
    """

    def __init__(
        self, watched: Watched, cluster: Cluster, events: Events, node_name: str, config: ProblemsConfig
    ) -> None:
        """Send through ``events``; nothing is read or sent before ``run``."""
        self._watched, self._cluster, self._events = watched, cluster, events
        self._node, self._config = node_name, config

    async def run(self, started: float) -> None:
        """Tell until cancelled. ``started``: Unix time from which on problems are news to everybody."""
        watched = self._watched
        told: Told | None = None
        hidden, spoken = frozenset[str](), False
        changes = follow(watched.state, watched.unpublished, watched.speaking)
        async with aclosing(changes):
            async for state, unpublished, speaking in changes:
                if told is None and not (state.looked_at or state.problems):
                    continue  # nobody has looked yet
                told = known_at_start(state, started) if told is None else told
                if not speaking and not spoken:
                    continue  # kept until the kubelet knows this instance; later, another one tells when it does not
                found, left_out = news(told, state, self._config), unpublished - hidden
                told, hidden, spoken = stands(state), unpublished, True
                if speaking and (found or left_out):
                    await self._tell(found, left_out, state)

    async def _tell(self, found: tuple[News, ...], left_out: frozenset[str], state: NodeState) -> None:
        """Tell the Node first, for which nothing has to be asked, then the Pods. Those left out are in no Pod's use."""
        names = {each.hardware: _name(each.hardware, state) for each in found}
        lines = [_Line(each.reason, names[each.hardware], each.text) for each in found]
        lines += [_Line(DEVICE_UNPUBLISHED, device, UNPUBLISHED) for device in sorted(left_out)]
        await self._emit(node_reference(self._node), self._watched.driver, lines)
        for pod, theirs in (await self._concerned(found, names)).items():
            await self._emit(pod, f"{self._watched.driver} on {self._node}", theirs)

    async def _emit(self, regarding: ObjectReference, teller: str, lines: Iterable["_Line"]) -> None:
        """Write one Event for each reason: a machine that fails as a whole is one, not one for each device."""
        groups: dict[str, dict[str, list[str]]] = {}
        for line in lines:
            groups.setdefault(line.reason, {}).setdefault(line.text, []).append(line.device)
        for reason, texts in groups.items():
            said = "; ".join(f"{', '.join(devices)}: {text}" for text, devices in texts.items())
            warning = reason != DEVICE_RECOVERED
            await self._events.emit(regarding, reason=reason, note=f"{teller}: {said}", warning=warning)

    async def _concerned(
        self, found: tuple[News, ...], names: Mapping[str, str]
    ) -> Mapping[ObjectReference, list["_Line"]]:
        """Return the Pods that use the devices, each with what it has to know; best effort, claim by claim."""
        concerned: dict[ObjectReference, list[_Line]] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                for record in self._watched.holders(frozenset(names)):
                    pods = await self._users(record)
                    concerned.update({pod: [*concerned.get(pod, ()), *_lines(record, found, names)] for pod in pods})
        return concerned

    async def _users(self, record: Record) -> tuple[ObjectReference, ...]:
        """Return the Pods that use the claim of that record; none when that cannot be found out."""
        try:
            return await pods_of(self._cluster, self._node, record)
        except ClusterError:
            return ()


class _Line(msgspec.Struct, frozen=True):
    """A part of an Event's note: what is to be said of which device."""

    reason: str
    device: str
    text: str


def _lines(record: Record, found: tuple[News, ...], names: Mapping[str, str]) -> Iterator[_Line]:
    """Yield what whoever uses the claim of that record has to know."""
    held = {device.hardware for device in record.devices}
    for each in found:
        if each.hardware in held:
            yield _Line(each.reason, f"{names[each.hardware]} of claim {record.name}", each.text)


def _name(hardware: str, state: NodeState) -> str:
    """Return the published name of a device, also of one that is gone; an unknown one has its identity only."""
    device = state.devices.get(hardware) or state.missing.get(hardware)
    return device_name(device) if device else hardware
