"""Looks at a small machine, and sequences of such, for the tests of what is made of them."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from drasim.config import ProblemsConfig, Seconds
from drasim.hardware import Gpu, Looked, Nic, Sign
from drasim.state import NodeState, fold
from tests.driver.machines import machine

__all__ = ["FALLEN", "FULL", "GPUS", "HOT", "NICS", "POLICY", "after", "look", "looks"]

GPUS, NICS = machine().gpus, machine().nics
POLICY = ProblemsConfig(clear_after=Seconds(5), clear_after_most=Seconds(20))
FALLEN = Sign(kind="xid", code="79", message="GPU has fallen off the bus")
FULL = Sign(kind="xid", code="48", message="double bit ECC error")
HOT = Sign(kind="thermal", message="clocks are slowed down")

_SIGNS = (FALLEN, FULL, HOT, Sign(kind="xid", code="13"), Sign(kind="lost"), Sign(kind="ecc-uncorrectable"))


def look(
    at: float,
    signs: Mapping[int, tuple[Sign, ...]] | None = None,
    *,
    silent: Mapping[int, float] | None = None,
    devices: tuple[Gpu | Nic, ...] = GPUS,
) -> Looked:
    """Return a look; ``signs`` and ``silent`` are by index."""
    identity = {device.index: device.id for device in devices}
    return Looked(
        at=at,
        devices=devices,
        signs={identity[index]: found for index, found in (signs or {}).items()},
        silent={identity[index]: since for index, since in (silent or {}).items()},
    )


def after(*seen: Looked, policy: ProblemsConfig = POLICY) -> NodeState:
    """Return the state after these looks."""
    state = NodeState()
    for each in seen:
        state = fold(state, each, policy)
    return state


@st.composite
def _look(draw: st.DrawFn, at: float) -> Looked:
    """Return a look at ``at`` at two GPUs: each may be out, silent, or show any signs."""
    devices = draw(st.lists(st.sampled_from(GPUS[:2]), unique_by=lambda gpu: gpu.id).map(tuple))
    signs: dict[str, Any] = {}
    silent: dict[str, float] = {}
    for device in devices:
        if draw(st.integers(0, 4)) == 0:
            silent[device.id] = at - 3
        else:
            signs[device.id] = tuple(draw(st.lists(st.sampled_from(_SIGNS), unique=True, max_size=3)))
    return Looked(at=at, devices=devices, signs=signs, silent=silent)


@st.composite
def looks(draw: st.DrawFn, most: int = 12) -> list[Looked]:
    """Return looks in the order of their times, from a fraction of a second to half a minute apart."""
    pauses = draw(st.lists(st.sampled_from((0.25, 1.0, 4.9, 5.0, 11.0, 30.0)), min_size=1, max_size=most))
    at, seen = 1000.0, []
    for pause in pauses:
        at += pause
        seen.append(draw(_look(at)))
    return seen
