"""The load client, against a driver that only counts."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import grpc
import pytest

from dra_plugin._proto import dra_v1_pb2 as pb
from dra_plugin._proto.dra_v1_pb2_grpc import DRAPluginServicer, add_DRAPluginServicer_to_server
from hack.bench.load import PREPARE, UNPREPARE, Order, Ref, decode, run, share

ROOT = Path(__file__).resolve().parent.parent.parent
CLAIMS: list[Ref] = [("bench", f"uid-{n}", f"claim-{n}") for n in range(8)]


class Counting(DRAPluginServicer):
    """Answers every claim with one device, `refused` ones with an error."""

    def __init__(self, refused: str = "") -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.refused = refused

    async def NodePrepareResources(  # noqa: N802 - the name comes from the kubelet
        self, request: pb.NodePrepareResourcesRequest, context: object
    ) -> pb.NodePrepareResourcesResponse:
        del context
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            self.calls[PREPARE, claim.uid] += 1
            if claim.uid == self.refused:
                answer.claims[claim.uid].error = "no such card"
            else:
                answer.claims[claim.uid].devices.add(device_name="gpu-0")
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - the name comes from the kubelet
        self, request: pb.NodeUnprepareResourcesRequest, context: object
    ) -> pb.NodeUnprepareResourcesResponse:
        del context
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.calls[UNPREPARE, claim.uid] += 1
            answer.claims[claim.uid].error = ""
        return answer


@asynccontextmanager
async def serving(driver: Counting, path: Path) -> AsyncIterator[str]:
    """Serve the driver on a socket."""
    server = grpc.aio.server()
    add_DRAPluginServicer_to_server(driver, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield str(path)
    finally:
        await server.stop(0)


async def test_one_caller_goes_through_all_claims(tmp_path: Path) -> None:
    """Each claim is prepared and unprepared once in each cycle, and each call is timed."""
    driver = Counting()
    async with serving(driver, tmp_path / "dra.sock") as path:
        result = await run(Order(path, CLAIMS, cycles=3))
    assert driver.calls == Counter({(phase, ref[1]): 3 for phase in (PREPARE, UNPREPARE) for ref in CLAIMS})
    assert (len(result.prepare), len(result.unprepare), result.calls) == (24, 24, 48)
    assert sum(result.prepare) + sum(result.unprepare) <= result.wall
    assert not result.errors


async def test_more_callers_than_claims_call_for_the_same(tmp_path: Path) -> None:
    """No caller is idle."""
    driver = Counting()
    async with serving(driver, tmp_path / "dra.sock") as path:
        result = await run(Order(path, CLAIMS, callers=16, phases=(PREPARE,)))
    assert driver.calls == Counter({(PREPARE, ref[1]): 2 for ref in CLAIMS})
    assert (result.calls, result.unprepare) == (16, [])


async def test_errors_are_counted_by_their_text(tmp_path: Path) -> None:
    """A refused claim does not end the measurement."""
    async with serving(Counting(refused="uid-3"), tmp_path / "dra.sock") as path:
        result = await run(Order(path, CLAIMS, cycles=2))
    assert result.errors == {"no such card": 2}


async def test_a_driver_that_went_away_is_an_error(tmp_path: Path) -> None:
    """Without a driver there is nothing to measure."""
    with pytest.raises(grpc.aio.AioRpcError):
        await run(Order(str(tmp_path / "nobody.sock"), CLAIMS))


@pytest.mark.parametrize(
    ("claims", "callers", "expected"),
    [(8, 2, [4, 4]), (8, 3, [3, 3, 2]), (2, 4, [1, 1, 1, 1]), (1, 1, [1])],
)
def test_share(claims: int, callers: int, expected: Sequence[int]) -> None:
    """Claims are shared out evenly; all of them are somebody's."""
    shares = [share(CLAIMS[:claims], caller, callers) for caller in range(callers)]
    assert [len(own) for own in shares] == expected
    assert {ref for own in shares for ref in own} == set(CLAIMS[:claims])


async def test_an_order_and_its_result_pass_through_a_process(tmp_path: Path) -> None:
    """The client in a process of its own reads an order as JSON, and what it prints is the result."""
    driver = Counting(refused="uid-3")
    async with serving(driver, tmp_path / "dra.sock") as path:
        order = Order(path, CLAIMS, callers=2, phases=(PREPARE,))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hack.bench.load"), cwd=ROOT, stdin=PIPE, stdout=PIPE
        )
        printed, _ = await process.communicate(json.dumps(asdict(order)).encode())
    result = decode(printed.decode())
    assert (process.returncode, len(result.prepare), result.errors) == (0, 8, {"no such card": 1})
    assert driver.calls.total() == 8
