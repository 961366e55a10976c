"""``drasim status``: which devices have problems, what follows from that, and whom it concerns."""

from drasim.cli.status.command import Form, status

__all__ = ["Form", "status"]
