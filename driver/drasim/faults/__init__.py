"""Faults that users ask for: DeviceFault objects and files in, what the machine is told and what is said of each out.

Scenarios, which only the command line knows, are ``drasim.faults.scenario``.
"""

from drasim.faults.keeper import FaultKeeper
from drasim.faults.objects import DEVICE_FAULT, DeviceFault, DeviceFaultSpec, DeviceFaultStatus
from drasim.faults.status import apply_status
from drasim.faults.wanted import Site, refused

__all__ = [
    "DEVICE_FAULT",
    "DeviceFault",
    "DeviceFaultSpec",
    "DeviceFaultStatus",
    "FaultKeeper",
    "Site",
    "apply_status",
    "refused",
]
