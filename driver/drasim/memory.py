"""What is remembered of a driver's devices over its restarts: ``<driver's folder>/problems.json``.

A restart heals nothing: what stood before stands until a look has found it gone for long enough. A file of another boot
counts until the first look at the device, which decides at once.

The file is not synced to the disk. It has to survive the process, not the machine: a power cut is a reboot, and after
one nothing is published before the hardware was looked at.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from dra_plugin.files import write_atomically
from dra_plugin.resources import decode, encode
from drasim.hardware import Gpu, Kind, Nic
from drasim.problems import Problem, steady
from drasim.state import NodeState

__all__ = ["Memory"]

T = TypeVar("T", Gpu, Nic)
_Members = Mapping[str, object]


class _Known(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename={"boot_id": "bootID"}):
    """The file. Members that it does not know are ignored, so that another version's can be read."""

    boot_id: str
    devices: dict[str, T] = {}
    missing: dict[str, T] = {}
    problems: dict[str, tuple[Problem, ...]] = {}
    doubtful: frozenset[str] = frozenset()


class Memory:
    """The file of one driver, in this boot of the machine. Two instances of the driver may keep the same one."""

    def __init__(self, file: Path, kind: Kind, boot_id: str) -> None:
        """Keep ``file``; nothing is read or written yet."""
        self._file, self._boot_id = file, boot_id
        self._form: type[_Known[Gpu] | _Known[Nic]] = _Known[Gpu] if kind == "gpu" else _Known[Nic]
        self._kept: _Members | None = None

    def load(self) -> tuple[NodeState, str | None]:
        """Return what is remembered, and why nothing is when the file cannot be used: it is moved aside then."""
        try:
            known = decode(self._file.read_bytes(), self._form)
        except FileNotFoundError:
            return NodeState(), None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            return NodeState(), self._set_aside(error)
        return _state(known, self._boot_id), None

    def keep(self, state: NodeState) -> None:
        """Remember the state; only what is new is written, and looking alone is nothing new. Raises OSError."""
        known = _members(state)
        if known != self._kept:
            write_atomically(self._file, encode({"bootID": self._boot_id, **known}), sync=False)
            self._kept = known

    def _set_aside(self, error: Exception) -> str:
        aside = self._file.with_name(f"{self._file.name}.damaged")
        reason = f"{self._file} cannot be read ({error}): nothing is remembered of what was wrong with devices"
        try:
            self._file.replace(aside)
        except OSError as another:
            return f"{reason}; it cannot be moved aside either: {another}"
        return f"{reason}; it is {aside.name} now"


def _members(state: NodeState) -> _Members:
    """Return what the file says of a state, but for the boot. A link that goes up and down is nothing new to it."""
    return {
        "devices": state.devices,
        "missing": state.missing,
        "problems": {name: steady(each) for name, each in state.problems.items()},
        "doubtful": sorted(state.doubtful),
    }


def _state(known: _Known[Gpu] | _Known[Nic], boot_id: str) -> NodeState:
    """Return what was known as the state that no look has renewed yet."""
    return NodeState(
        devices=MappingProxyType(dict(known.devices)),
        missing=MappingProxyType(dict(known.missing)),
        problems=MappingProxyType({name: steady(each) for name, each in known.problems.items() if each}),
        doubtful=known.doubtful if known.boot_id == boot_id else frozenset(known.problems),
    )
