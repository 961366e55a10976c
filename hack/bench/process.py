"""What the kernel says about a process: memory and CPU time."""

import os
import re
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def rss(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return rss_of((PROC / str(pid) / "status").read_text())


def rss_of(status: str) -> float:
    """Return the resident memory that the text of /proc/PID/status names, in MiB."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if not found:
        raise ValueError("no VmRSS: the process has ended")
    return int(found[1]) / 1024


def cpu(pid: int) -> float:
    """Return the CPU time that a process has used, all threads and children that ended, in seconds."""
    return cpu_of((PROC / str(pid) / "stat").read_text())


def cpu_of(stat: str) -> float:
    """Return the CPU time that the text of /proc/PID/stat names, in seconds."""
    fields = stat.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS
