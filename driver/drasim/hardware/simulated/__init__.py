"""Hardware that does not exist: a machine from a profile, whose changes outlive the process that made them."""

from drasim.hardware.simulated.hardware import SimulatedHardware
from drasim.hardware.simulated.machine import SimulatedMachine, opened
from drasim.hardware.simulated.memory import state_files
from drasim.hardware.simulated.profile import Machine, Profile, load_profile, machine_of

__all__ = [
    "Machine",
    "Profile",
    "SimulatedHardware",
    "SimulatedMachine",
    "load_profile",
    "machine_of",
    "opened",
    "state_files",
]
