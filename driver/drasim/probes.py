"""/healthz, /readyz and /metrics: whether the process lives, whether each driver can serve, and how it does.

``aiohttp`` is imported when the server starts, which is after the kubelet's sockets listen.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from dra_plugin.errors import SetupError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["DriverStatus", "Endpoints", "Probes", "problems", "readiness", "serve"]

HTTP_OK, HTTP_UNAVAILABLE = 200, 503


class DriverStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How one driver is doing.

    Attributes:
        driver: its name.
        registered: the kubelet knows it.
        refusal: why the kubelet refused it, if it did.
        published: its slices are what they should be, or another instance sees to that.
        publishing: what keeps slices from being published, by pool.
        cluster: what keeps the API server from being read, or None.
        hardware: what keeps the hardware from being looked at, or its CDI spec and records from being used; or None.
        devices: number of devices; None before the first look.
        prepared: number of claims on record.
        damaged: claims whose records cannot be read (UID to reason); their devices are refused until settled.
        unhealthy: devices that are not healthy, or of which that is not known, with the reason.
        unpublished: sick devices that are left out of the slices, because the server drops taints.
    """

    driver: str
    registered: bool
    refusal: str | None = None
    published: bool = False
    publishing: Mapping[str, str] = {}
    cluster: str | None = None
    hardware: str | None = None
    devices: int | None = None
    prepared: int = 0
    damaged: Mapping[str, str] = {}
    unhealthy: Mapping[str, str] = {}
    unpublished: tuple[str, ...] = ()


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoints ask: the drivers' status, and the metrics in Prometheus' text format."""

    statuses: Callable[[], tuple[DriverStatus, ...]]
    metrics: Callable[[], bytes]

    def ready(self) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON of /readyz."""
        return readiness(self.statuses())


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The same for a process without drivers: ``ready`` gives the HTTP status and the JSON of /readyz."""

    ready: Callable[[], tuple[int, bytes]]
    metrics: Callable[[], bytes]


def problems(status: DriverStatus) -> tuple[str, ...]:
    """Return what keeps a driver from serving, for people; nothing means ready.

    Damaged records and sick devices are told in the detail alone: to be unready would not settle or heal them.
    """
    found = {
        f"hardware: {status.hardware}": status.hardware is not None,
        "hardware: not looked at yet": status.devices is None and status.hardware is None,
        f"kubelet: refused the registration: {status.refusal}": status.refusal is not None,
        "kubelet: not registered": not status.registered and status.refusal is None,
        f"API server: {status.cluster}": status.cluster is not None,
        **{f"pool {pool}: {error}": True for pool, error in status.publishing.items()},
        "slices: not published yet": status.registered and not status.published and not status.publishing,
    }
    return tuple(text for text, holds in found.items() if holds)


def readiness(statuses: tuple[DriverStatus, ...]) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON of /readyz: what is in the way, and the detail of each driver."""
    drivers = [{"problems": problems(status), **msgspec.to_builtins(status)} for status in statuses]
    ready = bool(statuses) and not any(driver["problems"] for driver in drivers)
    body = msgspec.json.format(msgspec.json.encode({"ready": ready, "drivers": drivers}), indent=2)
    return HTTP_OK if ready else HTTP_UNAVAILABLE, body + b"\n"


async def serve(address: str, probes: Probes | Endpoints) -> None:
    """Serve at ``address`` (``host:port``, ``:port`` for all addresses) until cancelled.

    Raises SetupError when nothing can listen there.
    """
    from aiohttp import web

    runner = web.AppRunner(_app(probes), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
        await asyncio.get_running_loop().create_future()  # until cancelled
    except OSError as error:
        raise SetupError(f"probes.address {address}: {error.strerror or error}") from error
    finally:
        await runner.cleanup()


def _app(probes: Probes | Endpoints) -> "web.Application":
    from aiohttp import web

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        status, body = probes.ready()
        return web.Response(status=status, body=body, content_type="application/json")

    async def metrics(_: web.Request) -> web.Response:
        body = probes.metrics()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app
