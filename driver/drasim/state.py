"""What is known of this node's devices: a fold over what was observed."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from drasim.hardware import Gpu, Nic, Observation

__all__ = ["NodeState", "fold"]


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The inventory of one kind of devices.

    Attributes:
        devices: by hardware identity, in the order of their index.
        looked_at: Unix time in seconds of the last look; 0 when nobody has looked yet.
    """

    devices: Mapping[str, Gpu | Nic] = MappingProxyType({})
    looked_at: float = 0.0


def fold(state: NodeState, observation: Observation) -> NodeState:
    """Return the state after ``observation``. An older look than the last one changes nothing."""
    if observation.at < state.looked_at:
        return state
    devices = {device.id: device for device in sorted(observation.devices, key=lambda device: device.index)}
    same = devices == state.devices
    return NodeState(devices=state.devices if same else MappingProxyType(devices), looked_at=observation.at)
