"""``python -m dra_plugin.testing``: a FakeCluster over HTTP, until interrupted."""

import argparse
import asyncio
import contextlib
import sys

from dra_plugin.testing.cluster import GATES, Catalog, FakeCluster
from dra_plugin.testing.cluster.catalog import OPTIONAL_APIS
from dra_plugin.testing.cluster.http import serve_http

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m dra_plugin.testing", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 is any free one (%(default)s)")
    parser.add_argument(
        "--disable-gate", action="append", default=[], choices=sorted(GATES), help="drop the fields of a feature gate"
    )
    parser.add_argument(
        "--api", action="append", default=[], choices=OPTIONAL_APIS, help="serve an API version that is off by default"
    )
    options = parser.parse_args(arguments)
    cluster = FakeCluster(disabled_gates=options.disable_gate, catalog=Catalog(apis=options.api))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(cluster, options.host, options.port))


async def _serve(cluster: FakeCluster, host: str, port: int) -> None:
    async with serve_http(cluster, host, port) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
