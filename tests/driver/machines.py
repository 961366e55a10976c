"""Machines for the tests of the driver: profiles, and a switched-on simulated machine in a folder."""

from pathlib import Path

from drasim.hardware.simulated import Machine, SimulatedMachine, load_profile, machine_of

__all__ = ["NODE", "boot", "machine", "machine_from", "switched_on"]

NODE = "node-a"


def machine(profile: str = "small", node: str = NODE) -> Machine:
    """Return the machine of a shipped profile."""
    return machine_of(load_profile(profile), node)


def machine_from(folder: Path, text: str, node: str = NODE) -> Machine:
    """Return the machine of a profile given as YAML text."""
    file = folder / "profile.yaml"
    file.write_text(text)
    return machine_of(load_profile(str(file)), node)


def boot(folder: Path, boot_id: str = "boot-1") -> Path:
    """Write the boot id file of a host and return its path."""
    file = folder / "boot_id"
    file.write_text(boot_id + "\n")
    return file


def switched_on(folder: Path, described: Machine | None = None) -> SimulatedMachine:
    """Return a view of the machine whose state is in ``folder``, as each process would have its own."""
    file = folder / "boot_id"
    return SimulatedMachine(described or machine(), folder, file if file.exists() else boot(folder))
