"""The load client: calls a driver's DRA socket as the kubelet does. The same client, in its own process, for all.

python -m hack.bench.load < order.json > result.json
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import grpc

from dra_plugin._proto import dra_v1_pb2 as pb
from dra_plugin._proto.dra_v1_pb2_grpc import DRAPluginStub

Ref = tuple[str, str, str]
"""A claim: namespace, UID, name."""
DEADLINE = 45.0
PREPARE, UNPREPARE = "prepare", "unprepare"


@dataclass(frozen=True)
class Order:
    """What to call: each caller goes through its claims, phase by phase, again and again.

    Callers share the claims out among them; where there are fewer claims than callers, several call for the same.
    """

    socket: str
    claims: Sequence[Ref]
    callers: int = 1
    cycles: int = 1
    phases: Sequence[str] = (PREPARE, UNPREPARE)


@dataclass
class Result:
    """Seconds of each call by phase, seconds of all together, and how often each error came."""

    prepare: list[float] = field(default_factory=list)
    unprepare: list[float] = field(default_factory=list)
    wall: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Return how many calls were made."""
        return len(self.prepare) + len(self.unprepare)


def share(claims: Sequence[Ref], caller: int, callers: int) -> Sequence[Ref]:
    """Return the claims of one caller: its own part, or one that it has in common with others."""
    return claims[caller::callers] or [claims[caller % len(claims)]]


async def run(order: Order) -> Result:
    """Carry out an order."""
    result = Result()
    async with grpc.aio.insecure_channel(f"unix:{order.socket}") as channel:
        stub = DRAPluginStub(channel)
        await stub.NodePrepareResources(pb.NodePrepareResourcesRequest(), timeout=DEADLINE)  # connects
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for caller in range(order.callers):
                group.create_task(_caller(stub, order, share(order.claims, caller, order.callers), result))
        result.wall = time.perf_counter() - begin
    return result


async def _caller(stub: DRAPluginStub, order: Order, claims: Sequence[Ref], result: Result) -> None:
    calls = {PREPARE: (_prepare, result.prepare), UNPREPARE: (_unprepare, result.unprepare)}
    for phase, ref in steps(order, claims):
        call, times = calls[phase]
        begin = time.perf_counter()
        error = await call(stub, ref)
        times.append(time.perf_counter() - begin)
        if error:
            result.errors[error] = result.errors.get(error, 0) + 1


def steps(order: Order, claims: Sequence[Ref]) -> Iterator[tuple[str, Ref]]:
    """Yield what a caller with these claims does, in order."""
    for _ in range(order.cycles):
        for phase in order.phases:
            yield from ((phase, ref) for ref in claims)


async def _prepare(stub: DRAPluginStub, ref: Ref) -> str:
    request = pb.NodePrepareResourcesRequest(claims=[_claim(ref)])
    try:
        answer = await stub.NodePrepareResources(request, timeout=DEADLINE)
    except grpc.aio.AioRpcError as error:
        return f"{PREPARE}: {error.code().name} {error.details()}"
    entry = answer.claims[ref[1]]
    return entry.error or ("" if entry.devices else f"{PREPARE}: no devices")


async def _unprepare(stub: DRAPluginStub, ref: Ref) -> str:
    request = pb.NodeUnprepareResourcesRequest(claims=[_claim(ref)])
    try:
        answer = await stub.NodeUnprepareResources(request, timeout=DEADLINE)
    except grpc.aio.AioRpcError as error:
        return f"{UNPREPARE}: {error.code().name} {error.details()}"
    return answer.claims[ref[1]].error


def _claim(ref: Ref) -> pb.Claim:
    namespace, uid, name = ref
    return pb.Claim(namespace=namespace, uid=uid, name=name)


def decode(text: str) -> Result:
    """Return the result that the client's process printed."""
    return Result(**json.loads(text))


def main() -> None:
    """Read an order, carry it out, write the result."""
    order = Order(**json.load(sys.stdin))
    json.dump(asdict(asyncio.run(run(order))), sys.stdout)


if __name__ == "__main__":
    main()
