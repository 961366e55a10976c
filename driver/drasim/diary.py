"""What happens, in the log. Whoever watches reads Events and metrics; this is for afterwards."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from dra_plugin.latest import Latest, follow
from dra_plugin.observe import CallDone, FieldsDropped, Observation, PoolCorrected, PoolSynced, SliceWritten
from drasim import logs
from drasim.hardware import device_name
from drasim.problems import Problem, describe, standing
from drasim.state import NodeState

__all__ = ["narrate", "narrate_faults", "narrate_readiness", "note"]

PATIENCE = 1.0
"""Seconds for which something must keep a driver from serving until it is worth a line: each write of a slice does."""


_Told = Mapping[tuple[str, str, str], Problem]  # by device, kind and code


async def narrate(
    driver: str, state: Latest[NodeState], unpublished: Latest[frozenset[str]], lost: Latest[str | None]
) -> None:
    """Log each problem that begins or is over, and what is left out of the pool, until cancelled.

    ``lost`` is why nothing is known of before the restart. Problems are damped, which keeps the log short.
    """
    told: _Told = {}
    log = logs.get(driver=driver)
    reason, left_out = None, frozenset[str]()
    async with aclosing(follow(state, unpublished, lost)) as turns:
        async for now, out, why in turns:
            if why and why != reason:
                log.warning("what was wrong with devices before is not known", reason=why)
            if out - left_out:
                log.warning("the server keeps no taints: sick devices are left out of the pool", devices=sorted(out))
            elif left_out - out:
                log.info("devices that were left out are in the pool again", devices=sorted(left_out - out))
            told, reason, left_out = _tell(driver, told, now), why, out


def _tell(driver: str, told: _Told, state: NodeState) -> _Told:
    holding = dict(_holding(state))
    for (device, _, _), problem in _without(holding, told):
        logs.get(driver=driver, device=device).warning("device has a problem", problem=describe(problem))
    for (device, _, _), problem in _without(told, holding):
        logs.get(driver=driver, device=device).info("problem is over", problem=describe(problem))
    return holding


def _holding(state: NodeState) -> Iterator[tuple[tuple[str, str, str], Problem]]:
    known = {**state.missing, **state.devices}
    for name, problems in state.problems.items():
        device = device_name(known[name]) if name in known else name
        for problem in standing(problems):
            yield (device, problem.kind, problem.code), problem


def _without(some: _Told, others: _Told) -> Iterator[tuple[tuple[str, str, str], Problem]]:
    yield from ((key, problem) for key, problem in some.items() if key not in others)


async def narrate_readiness(driver: str, found: Callable[[], tuple[str, ...]], *changes: Latest[Any]) -> None:
    """Log what keeps a driver from serving, and that nothing does any more, until cancelled.

    ``found`` is asked whenever one of ``changes`` is another one. What passes by itself at once is not told.
    """
    log, loop = logs.get(driver=driver), asyncio.get_running_loop()
    told: tuple[str, ...] | None = None
    since: float | None = None
    async with aclosing(follow(*changes, until=lambda: None if since is None else since + PATIENCE)) as turns:
        async for _ in turns:
            problems = found()
            if problems == told:
                since = None
                continue
            since = loop.time() if since is None else since
            if problems and loop.time() < since + PATIENCE:
                continue
            told, since = problems, None
            if problems:
                log.warning("not ready", problems=problems)
            else:
                log.info("ready")


async def narrate_faults(problems: Latest[Mapping[str, str]]) -> None:
    """Log what keeps faults from being done, and that nothing does any more, until cancelled."""
    told: Mapping[str, str] = {}
    async with aclosing(follow(problems)) as turns:
        async for (found,) in turns:
            for about in found.keys() - {about for about, problem in told.items() if found.get(about) == problem}:
                logs.get().warning("faults", about=about, problem=found[about])
            for about in told.keys() - found.keys():
                logs.get().info("faults", about=about, problem=None)
            told = found


def note(observation: Observation) -> None:
    """Write what happened to the log, for people who look for a claim or a slice."""
    match observation:
        case CallDone(driver=driver, operation=operation, uid=uid, error=None, seconds=seconds):
            logs.get(driver=driver).info(f"{operation}d", uid=uid, seconds=round(seconds, 4))
        case CallDone(driver=driver, operation=operation, uid=uid, error=error):
            logs.get(driver=driver).warning(f"{operation} failed", uid=uid, error=error)
        case SliceWritten(driver=driver, pool=pool, verb=verb, generation=generation):
            logs.get(driver=driver).info("slice written", pool=pool, verb=verb, generation=generation)
        case PoolSynced(driver=driver, pool=pool, error=str(error)):
            logs.get(driver=driver).warning("pool not written", pool=pool, error=error)
        case FieldsDropped(driver=driver, pool=pool, fields=()):
            logs.get(driver=driver).info("no field is dropped by the server any more", pool=pool)
        case FieldsDropped(driver=driver, pool=pool, fields=fields, gates=gates):
            logs.get(driver=driver).warning("fields dropped by the server", pool=pool, fields=fields, gates=gates)
        case PoolCorrected(driver=driver, pool=pool, problems=corrected):
            logs.get(driver=driver).warning("parts of the pool were left out or changed", pool=pool, problems=corrected)
