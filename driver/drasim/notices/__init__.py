"""Notices: what users would not hear of otherwise, as Events. All of it is best effort and off the Prepare path."""

from drasim.notices.devices import DeviceNotices, Watched
from drasim.notices.news import (
    DEVICE_DEGRADED,
    DEVICE_HEALTH_UNKNOWN,
    DEVICE_RECOVERED,
    DEVICE_UNHEALTHY,
    DEVICE_UNPUBLISHED,
)
from drasim.notices.unprepare import FAILED_UNPREPARE, Notices

__all__ = [
    "DEVICE_DEGRADED",
    "DEVICE_HEALTH_UNKNOWN",
    "DEVICE_RECOVERED",
    "DEVICE_UNHEALTHY",
    "DEVICE_UNPUBLISHED",
    "FAILED_UNPREPARE",
    "DeviceNotices",
    "Notices",
    "Watched",
]
