"""Process 1 of the box: sets up network and nodes, then runs the components until it is killed.

Its end is the end of everything: the kernel kills what is left in the process namespace and drops mounts and links.
"""

import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from hack.cluster import control, network, node, probes
from hack.cluster.errors import ClusterError
from hack.cluster.folders import State
from hack.cluster.plan import Plan
from hack.cluster.supervisor import Supervisor
from hack.cluster.topology import Node, nodes

TICK = 0.05


def main(name: str) -> None:
    """Run the box of this cluster."""
    state = State.of(name)
    plan = Plan.load(state.plan.read_text())
    everyone = nodes(plan.nodes)
    socket.sethostname("box")
    network.apply(network.box_batch(everyone))
    network.forward()
    kept = [Path(folder) for folder in plan.kept]
    holders = {each.index: _start_node(each, everyone, state, kept) for each in everyone}
    _supervise(Supervisor(plan, holders), state, holders)


def _start_node(each: Node, everyone: Sequence[Node], state: State, kept: Sequence[Path]) -> int:
    """Start the process that holds a node's namespaces and return its number once they are complete."""
    state.node(each.index).mkdir(parents=True)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_node(each, everyone, state, kept, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not pipe.read(1):
            msg = f"{each.name} could not be set up"
            raise ClusterError(msg)
    network.apply(network.attach_batch(each))
    return pid


def _be_node(each: Node, everyone: Sequence[Node], state: State, kept: Sequence[Path], writing: int) -> None:
    # Nothing may return from here: this is a copy of process 1.
    try:
        node.enter(each, everyone, state, kept)
        os.write(writing, b"1")
        os.close(writing)
        node.hold()
    except BaseException:  # noqa: BLE001  nothing may return
        traceback.print_exc()
        os._exit(1)


def _supervise(supervisor: Supervisor, state: State, holders: dict[int, int]) -> None:
    """Take requests and look after the components; sleeps when all is as it should be."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    server = control.listen(state.socket)
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ, lambda: os.read(reading, 4096))
        selector.register(server, selectors.EVENT_READ, lambda: control.serve(server, handle))

        def handle(asked: control.Answer) -> control.Answer:
            return {"holders": holders} if asked == {"do": "holders"} else answer(supervisor, state, asked)

        while True:
            for key, _ in selector.select(TICK if supervisor.restless else None):
                key.data()
            supervisor.reap()
            supervisor.advance()


def answer(supervisor: Supervisor, state: State, asked: control.Answer) -> control.Answer:
    """Carry out one request."""
    match asked:
        case {"do": "status"}:
            return {"components": supervisor.rows()}
        case {"do": "start", "components": names}:
            supervisor.start(names)
        case {"do": "stop", "components": names, "signal": number}:
            supervisor.stop(names, number)
        case {"do": "restart", "components": names, "signal": number}:
            supervisor.restart(names, number)
        case {"do": "read", "path": path}:
            status, body = probes.read(path, state.pki)
            return {"status": status, "body": body}
        case _:
            return {"error": f"not understood: {asked}"}
    return {}


if __name__ == "__main__":
    main(sys.argv[1])
