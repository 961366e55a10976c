"""`drasim node` as a process: what it imports, how it ends, and what a kill leaves."""

import asyncio
import json
import socket
from pathlib import Path

import aiohttp
import grpc
import grpc.aio
import pytest

from dra_plugin.claims import ClaimRef
from tests.flow.nodes import GPU, World, until, until_registered
from tests.flow.processes import at, call, flags, free_port, node_process, over_http, slow_profile, start, terminate

HEAVY = {"aiohttp", "click", "kubernetes", "prometheus_client", "rich", "structlog", "typer", "yarl"}
PINNED = {"drasim.node", "dra_plugin.server", "grpc.aio", "msgspec"}
WATCHED = """
import json, os, signal, sys

listening = []

def look(event, arguments):
    if event in ("os.link", "os.rename") and os.fspath(arguments[1]).endswith("-reg.sock"):
        listening.append(sorted(sys.modules))
        if len(listening) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

sys.addaudithook(look)
from drasim.__main__ import execute
code = execute(sys.argv[1:], os.environ)
print(json.dumps(listening[1]))
sys.exit(code)
"""


@pytest.mark.timeout(60)
async def test_nothing_heavy_is_imported_before_the_sockets_listen(world: World) -> None:
    """The packages of people's commands, of HTTP and of metrics come later; SIGTERM ends it with 0 all the same."""
    async with over_http(world) as settings:
        process = await start("node", *flags(settings), program=("-c", WATCHED))
        out, err = await process.communicate()
    assert (process.returncode, world.sockets()) == (0, []), err.decode()
    modules = set(json.loads(out.splitlines()[-1]))
    assert modules >= PINNED
    assert {module.partition(".")[0] for module in modules} & HEAVY == set()


@pytest.mark.timeout(60)
async def test_sigterm_finishes_what_runs(world: World) -> None:
    """A Prepare that runs when SIGTERM comes is finished and answered; no socket is left, the slices are."""
    async with over_http(world) as settings:
        slow = {**settings, "simulation.profile": slow_profile(world, 1.0)}
        async with node_process(slow) as process:
            await world.published()
            ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(world.prepare(GPU, ref))
                await until(lambda: ref.uid in world.records())
                code = group.create_task(terminate(process))
    assert (code.result(), world.sockets(), len(await world.slices())) == (0, [], 2)
    assert (answers.result()[0].error, world.records()[ref.uid].phase) == ("", "DONE")


async def breaks(world: World, ref: ClaimRef) -> bool:
    """Tell whether the connection broke in the middle of a Prepare."""
    try:
        await world.prepare(GPU, ref)
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return True
    return False


@pytest.mark.timeout(60)
async def test_an_api_server_that_is_away_at_start(world: World) -> None:
    """The process lives, keeps trying, is not ready and says why; SIGTERM ends it with 0."""
    probes = f"127.0.0.1:{free_port()}"
    settings = {**at(world, f"http://127.0.0.1:{free_port()}"), "probes.address": probes}
    async with node_process(settings) as process, aiohttp.ClientSession() as session:
        while not any(problem.startswith("API server: ") for problem in await problems_at(session, probes)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        async with session.get(f"http://{probes}/healthz") as response:
            assert response.status == 200
        code = await terminate(process)
    assert (code, world.sockets()) == (0, [])


async def problems_at(session: aiohttp.ClientSession, probes: str) -> list[str]:
    """Return what /readyz says is in the way; nothing while nobody listens."""
    try:
        async with session.get(f"http://{probes}/readyz") as response:
            drivers = (await response.json())["drivers"]
    except aiohttp.ClientConnectorError:
        return []
    assert response.status == 503
    return [problem for driver in drivers for problem in driver["problems"]]


async def killed_in_prepare(world: World, settings: dict[str, str]) -> ClaimRef:
    """Kill a node between STARTED and DONE; returns the claim."""
    async with node_process({**settings, "simulation.profile": slow_profile(world, 60.0)}) as process:
        await world.published()
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        async with asyncio.TaskGroup() as group:
            broken = group.create_task(breaks(world, ref))
            await until(lambda: ref.uid in world.records())
            process.kill()
        assert broken.result()
    assert world.records()[ref.uid].phase == "STARTED"
    return ref


@pytest.mark.timeout(60)
async def test_killed_between_started_and_done_then_prepared(world: World) -> None:
    """The next process finishes what the killed one began."""
    async with over_http(world) as settings:
        ref = await killed_in_prepare(world, settings)
        async with world.node("pod-2") as node:
            await until_registered(node)
            (answer,) = await world.prepare(GPU, ref)
            assert (answer.error, world.records()[ref.uid].phase) == ("", "DONE")


@pytest.mark.timeout(60)
async def test_killed_between_started_and_done_then_unprepared(world: World) -> None:
    """The next process takes back what the killed one began; the killed one's sockets are cleared away."""
    async with over_http(world) as settings:
        ref = await killed_in_prepare(world, settings)
        async with world.node("pod-2") as node:
            await until_registered(node)
            (answer,) = await world.unprepare(GPU, ref)
            assert (answer.error, world.records(), world.machine()) == ("", {}, {})
            assert len(world.sockets()) == 4


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["node", "--frobnicate"], 2, "--frobnicate: unknown; allowed: --config, --set, --node-name"),
        (["node", "--node-name"], 2, "--node-name: needs a value: NAME"),
        (["node", "--node-name", "a", "--set", "gpu.drivr=x"], 2, 'gpu.drivr: unknown key (did you mean "driver"?)'),
        (["node"], 2, "nodeName: missing"),
        (["node", "--node-name", "a"], 2, "kubeconfig: missing outside of a Pod"),
        (["node", "--node-name", "a", "--kubeconfig", "/none"], 2, "kubeconfig: /none cannot be read: No such file"),
        (["node", "--node-name", "a", "--profile", "smal", "--kubeconfig", __file__], 2, 'did you mean "small"?'),
        (["release", "uid", "--set", "nodeName=a", "--set", "paths.plugins=/nowhere"], 1, "no record of claim uid"),
    ],
)
async def test_bad_input(arguments: list[str], code: int, text: str) -> None:
    """What the user wrote is named, with what is allowed; the exit code tells bad input from failure."""
    got, _, err = await call(*arguments)
    assert (got, text in err) == (code, True), err


async def test_a_probes_address_that_is_taken_is_said(world: World) -> None:
    """Another process has the port: the node ends with a clear line and leaves no sockets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with over_http(world) as settings:
            code, _, err = await call("node", *flags({**settings, "probes.address": address}))
    assert (code, f"drasim: probes.address {address}: " in err, world.sockets()) == (1, True, []), err


async def test_a_missing_folder_of_plugins_is_said(world: World) -> None:
    """Nothing is made in place of the kubelet's own folder."""
    (world.folder / "plugins").rmdir()
    async with over_http(world) as settings:
        code, _, err = await call("node", *flags(settings))
    assert (code, err) == (1, f"drasim: the kubelet's plugins folder {world.folder / 'plugins'} does not exist\n")


async def test_a_missing_registry_is_said(world: World) -> None:
    """A folder of the kubelet that is not there ends the process with a clear line."""
    (world.folder / "reg").rmdir()
    async with over_http(world) as settings:
        code, _, err = await call("node", *flags(settings))
    assert (code, err.strip().splitlines()[-1]) == (
        1,
        f"drasim: the kubelet's registration folder {world.folder / 'reg'} does not exist",
    )


async def test_help_lists_the_flags() -> None:
    """`drasim node --help` works without a configuration."""
    code, out, _ = await call("node", "--help")
    assert (code, "--kubeconfig FILE" in out, "--set KEY=VALUE" in out) == (0, True, True)


async def test_help_lists_the_commands() -> None:
    """`drasim --help` names every command, and what it says of each is whole."""
    code, out, _ = await call("--help")
    assert "..." not in out.split("Commands:")[1]
    listed = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert (code, listed >= {"node", "devices", "release", "uninstall", "version", "config"}) == (0, True), out


async def test_version() -> None:
    """The version is printed for people and for programs."""
    _, text, _ = await call("version")
    _, machine, _ = await call("version", "-o", "json")
    assert text.split() == ["drasim", json.loads(machine)["drasim"]]


@pytest.mark.timeout(60)
async def test_release_settles_an_orphaned_claim(world: World) -> None:
    """A claim whose object is gone is taken back; one that exists is refused, unless forced."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
    async with over_http(world) as settings:
        code, _, err = await call("release", ref.uid, *flags(settings))
        assert (code, "claim default/a still exists" in err) == (1, True), err
        code, out, _ = await call("release", ref.uid, "--force", "-o", "json", *flags(settings))
    assert (code, json.loads(out)["drivers"][0]["devices"]) == (0, ["gpu-0"])
    assert (world.records(), world.machine()) == ({}, {})


@pytest.mark.timeout(60)
async def test_release_settles_a_damaged_record(world: World) -> None:
    """Without the name of the claim all claims are looked through; the dry run changes nothing."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
    (world.folder / "plugins" / GPU / "claims" / f"{ref.uid}.json").write_bytes(b"{")
    async with over_http(world) as settings:
        code, out, _ = await call("release", ref.uid, "--dry-run", *flags(settings))
        assert (code, "cannot be read" in out, len(world.machine())) == (0, True, 1)
        code, _, err = await call("release", ref.uid, *flags(settings))
        assert (code, "still exists" in err) == (1, True), err
        assert (await call("release", ref.uid, "--force", *flags(settings)))[0] == 0
    assert (world.machine(), list((world.folder / "plugins" / GPU / "claims").iterdir())) == ({}, [])


@pytest.mark.timeout(60)
async def test_uninstall_removes_what_was_left(world: World) -> None:
    """Refused while a claim is prepared; then slices, specs, records and folders go."""
    async with world.node():
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.published()
        await world.prepare(GPU, ref)
    for cut in ("plugins/drasim/.machine.json.0a.tmp", f"cdi/.k8s.{GPU}-claim_{ref.uid}.json.0a.tmp"):
        (world.folder / cut).write_text("")  # as a killed process leaves it
    async with over_http(world) as settings:
        code, _, err = await call("uninstall", *flags(settings))
        assert (code, "default/a" in err, len(await world.slices())) == (1, True, 2), err
        code, out, _ = await call("uninstall", "--force", "-o", "json", *flags(settings))
    removed = json.loads(out)
    assert (code, len(removed["slices"]), await world.slices()) == (0, 2, [])
    assert left(world.folder / "plugins") == left(world.folder / "cdi") == []


@pytest.mark.timeout(60)
async def test_uninstall_spares_what_is_not_ours(world: World) -> None:
    """The folder of the machine's state is the user's choice: only our files in it go."""
    state = world.folder / "state"
    state.mkdir()
    (state / "precious").write_text("")
    async with world.node(paths__state=str(state)):
        ref = await world.claim("a", "gpu-0", parameters={"powerLimitWatts": 300})
        await world.prepare(GPU, ref)
    assert (state / "machine.json").exists()
    async with over_http(world) as settings:
        code, out, _ = await call("uninstall", "--force", *flags({**settings, "paths.state": str(state)}))
    assert (code, f"removed {state / 'machine.json'}\n" in out, left(state)) == (0, True, ["precious"])


@pytest.mark.timeout(60)
async def test_uninstall_spares_a_running_driver(world: World) -> None:
    """A driver that runs would publish again: it has to be stopped first."""
    async with over_http(world) as settings, world.node():
        await world.published()
        code, _, err = await call("uninstall", *flags(settings))
    assert (code, "is running" in err, len(await world.slices())) == (1, True, 2), err


def left(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())
