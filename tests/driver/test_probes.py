"""probes: /healthz, /readyz, /metrics."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dra_plugin.errors import SetupError
from drasim.probes import DriverStatus, Probes, problems, readiness, serve

READY = DriverStatus(driver="gpu.dra.example.com", registered=True, published=True, devices=4)


def status(**different: Any) -> DriverStatus:  # noqa: ANN401 - members of DriverStatus
    """Return the status of a driver that is ready but for what is given."""
    given: dict[str, Any] = {"driver": READY.driver, "registered": True, "published": True, "devices": 4}
    return DriverStatus(**(given | different))


@pytest.mark.parametrize(
    ("different", "problem"),
    [
        ({"registered": False}, "kubelet: not registered"),
        ({"registered": False, "refusal": "no"}, "kubelet: refused the registration: no"),
        ({"published": False}, "slices: not published yet"),
        ({"published": False, "publishing": {"a-gpu": "422"}}, "pool a-gpu: 422"),
        ({"cluster": "GET /x: 503"}, "API server: GET /x: 503"),
        ({"hardware": "no library"}, "hardware: no library"),
        ({"devices": None}, "hardware: not looked at yet"),
    ],
)
def test_each_problem_is_said_once(different: dict[str, object], problem: str) -> None:
    """What keeps a driver from serving is one line each."""
    assert problems(status(**different)) == (problem,)


def test_a_damaged_record_is_detail() -> None:
    """A restart would not settle it: the driver stays ready, and says it."""
    code, body = readiness((status(damaged={"uid": "checksum"}),))
    assert (code, json.loads(body)["drivers"][0]["damaged"]) == (200, {"uid": "checksum"})


def test_sick_devices_are_detail() -> None:
    """The driver serves all the same: which devices are not well, and which are left out, is told."""
    code, body = readiness((status(unhealthy={"gpu-3": "xid 79"}, unpublished=("gpu-3",)),))
    (driver,) = json.loads(body)["drivers"]
    assert (code, driver["problems"], driver["unhealthy"], driver["unpublished"]) == (
        200,
        [],
        {"gpu-3": "xid 79"},
        ["gpu-3"],
    )


def test_all_drivers_have_to_be_ready() -> None:
    """One driver that is not ready makes the process not ready; without drivers it is not either."""
    assert [readiness(each)[0] for each in ((READY,), (READY, status(registered=False)), ())] == [200, 503, 503]


@asynccontextmanager
async def served(*statuses: DriverStatus) -> AsyncIterator[str]:
    """Serve the probes on a free port; yields the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    probes = Probes(statuses=lambda: statuses, metrics=lambda: b"drasim_up 1\n")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(f"127.0.0.1:{port}", probes))
        yield f"http://127.0.0.1:{port}"
        serving.cancel()


async def get(url: str) -> tuple[int, str]:
    """Return status and text, once somebody listens."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)


async def test_the_endpoints() -> None:
    """Liveness is a word, readiness a status with its reasons, metrics a text."""
    async with served(status(registered=False)) as url:
        assert await get(f"{url}/healthz") == (200, "ok\n")
        assert await get(f"{url}/metrics") == (200, "drasim_up 1\n")
        code, body = await get(f"{url}/readyz")
    assert (code, json.loads(body)["drivers"][0]["problems"]) == (503, ["kubelet: not registered"])


async def test_an_address_that_is_taken_is_said() -> None:
    """Somebody else's port: the error names the key and the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SetupError, match=f"probes.address {address}"):
            await serve(address, Probes(statuses=tuple, metrics=bytes))
