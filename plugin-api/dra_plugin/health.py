"""What the kubelet's health stream says of devices (KEP-4680; dra-health v1 and v1alpha1)."""

import enum

import msgspec

__all__ = ["DeviceHealth", "Health", "HealthReport"]


class Health(enum.Enum):
    """The three states that the kubelet knows. Health has no effect on scheduling; taints have."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one published device.

    Attributes:
        pool: name of the pool, as published.
        device: name of the device, as published.
        health: the state.
        message: the reason, for people; the kubelet cuts it at 1024 bytes.
        looked_at: Unix time in whole seconds of the last real look at the device.
        timeout: seconds after which the kubelet may no longer trust this (0 = the kubelet's 30 s).
    """

    pool: str
    device: str
    health: Health
    message: str = ""
    looked_at: int = 0
    timeout: int = 0


HealthReport = tuple[DeviceHealth, ...]
"""All devices of a driver; one that is missing keeps its last state until its timeout, then reads Unknown."""
