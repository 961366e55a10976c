"""Who may start a cluster of a name, or clean up behind one: one process at a time.

The right is an abstract socket: the kernel takes it back when its last holder ends, however it ends, and it leaves no
file. The launcher takes it and hands it to the keeper.
"""

import hashlib
import socket
import time

from hack.cluster.errors import ClusterError
from hack.cluster.folders import State

PATIENCE = 5.0  # seconds: a cluster that ended a moment ago is still being cleaned up


def own(state: State, patience: float = PATIENCE) -> socket.socket:
    """Return the right to this cluster; it lasts until the socket is closed in every process that has it."""
    end = time.monotonic() + patience
    while (right := _bound(state)) is None:
        if time.monotonic() >= end:
            msg = f"cluster {state.name} is just being started or ended by another process"
            raise ClusterError(msg)
        time.sleep(0.1)
    return right


def _bound(state: State) -> socket.socket | None:
    name = hashlib.sha256(str(state.root).encode()).hexdigest()[:20]
    right = socket.socket(socket.AF_UNIX)
    try:
        right.bind(f"\0drasim-cluster-{name}")
    except OSError:
        right.close()
        return None
    return right
