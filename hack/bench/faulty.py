"""Our driver as `drasim node` runs it, but in a process that can be told to let devices fail, and says when it did.

python -m hack.bench.faulty SOCKET [FLAGS of `drasim node`]

Through the socket come lines, each a JSON list of faults (device, kind, code) that stand from then on; each is answered
with the time, in seconds since the epoch, at which the machine was told.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from dra_plugin.kube import Credentials, KubeCluster
from drasim import logs
from drasim.cli.node import credentials_for, parse
from drasim.config import Config, for_node, load
from drasim.hardware.simulated import SimulatedMachine
from drasim.hardware.simulated.faults import resolve
from drasim.node import running

SOURCE = "bench"


async def serve(path: str, config: Config, credentials: Credentials) -> None:
    """Run the driver until SIGTERM, and let its machine fail as is asked through the socket."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    logs.setup(config.log.level, config.log.format)
    async with (
        KubeCluster(credentials) as cluster,
        running(config, cluster) as node,
        await asyncio.start_unix_server(partial(obey, node.machine), path),
    ):
        await stop.wait()


async def obey(machine: SimulatedMachine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Do what each line says, until the other side has gone."""
    while line := await reader.readline():
        wanted = [f for name, kind, code in json.loads(line) for f in resolve(machine.machine, kind, code, device=name)]
        at = time.time()
        await machine.set_faults(SOURCE, wanted)
        writer.write(f"{at}\n".encode())
    writer.close()
    await writer.wait_closed()


def main(arguments: Sequence[str]) -> None:
    """Read the command line and serve."""
    path, *flags = arguments
    asked = parse(flags)
    config = for_node(load(asked.file, asked.flags))
    asyncio.run(serve(path, config, credentials_for(config, os.environ)))


if __name__ == "__main__":
    main(sys.argv[1:])
