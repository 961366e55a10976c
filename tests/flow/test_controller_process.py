"""`drasim controller` as a process: its flags, its probes, how it ends and what it imports."""

import asyncio
import sys

import aiohttp
import pytest

from dra_plugin.resources import LEASE
from drasim.__main__ import execute
from drasim.cli.controller import FLAGS, identity
from tests.flow.nodes import World
from tests.flow.processes import call, flags, free_port, over_http, start, terminate

PEOPLE = {"click", "rich", "typer"}


async def until_ready(session: aiohttp.ClientSession, url: str) -> dict[str, object]:
    """Return what /readyz says once it says yes."""
    while True:
        try:
            async with session.get(f"{url}/readyz") as answer:
                if answer.status == 200:
                    body: dict[str, object] = await answer.json()
                    return body
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.05)


@pytest.mark.timeout(60)
async def test_it_leads_is_ready_and_gives_the_lease_back(world: World) -> None:
    """Alone it leads; the probes answer; SIGTERM ends it with 0, and nobody has to wait for its Lease."""
    probes = f"127.0.0.1:{free_port()}"
    async with over_http(world) as settings:
        told = {**settings, "controller.namespace": "drasim", "probes.address": probes}
        process = await start("controller", *flags(told))
        try:
            async with aiohttp.ClientSession() as session:
                body = await until_ready(session, f"http://{probes}")
                async with session.get(f"http://{probes}/metrics") as answer:
                    metrics = await answer.text()
            assert (body["rulesAPI"], body["problems"]) == ("resource.k8s.io/v1", [])
            assert "drasim_controller_rules_served 1.0" in metrics
            assert await terminate(process) == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
    lease = await world.cluster.get(LEASE, "drasim-controller", "drasim")
    assert lease is None or not lease.spec.holder_identity


async def test_a_policy_that_cannot_work_ends_it_with_2() -> None:
    """Before anything is read or written, with the field and what is needed."""
    code, _, err = await call("controller", "--log-level", "error")
    assert (code, "controller.namespace: missing; needed" in err) == (2, True)


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """Each flag that is read is in the help."""
    assert execute(["controller", "--help"], {}) == 0
    shown = capsys.readouterr().out
    assert all(flag in shown for flag in FLAGS)


async def test_the_packages_of_peoples_commands_stay_out() -> None:
    """It is a daemon: they would cost memory on and on."""
    code = "import sys, drasim.controller, drasim.cli.controller; print(*{m.partition('.')[0] for m in sys.modules})"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert set(out.decode().split()) & PEOPLE == set()


def test_the_identity_is_the_pods() -> None:
    """Readable by its name, unique by its UID; outside of a Pod by chance."""
    assert identity({"POD_NAME": "c-1", "POD_UID": "u"}) == "c-1_u"
    assert identity({}) != identity({})
