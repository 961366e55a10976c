"""Looking: keeps what is known of one driver's hardware. Looks, time, and what was known before the restart.

What is new is on the disk before anybody hears of it, so that no restart can take back a taint.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from dra_plugin.latest import Latest, follow
from drasim.config import ProblemsConfig
from drasim.hardware import Hardware, HardwareError, Looked
from drasim.memory import Memory
from drasim.state import NodeState, fold, forgotten, next_settling, settled, unanswered

__all__ = ["Looking"]

LOOK_AGAIN = 5.0
"""Seconds until hardware that cannot be looked at as a whole is tried again."""


class Looking:
    """Looks at the hardware of one driver while ``run`` runs.

    Attributes:
        state: what is known. Nothing of it is of this process while ``looked_at`` is 0.
        blind: what keeps the hardware from being looked at.
        forgetful: what keeps the state from being remembered over a restart.
        lost: why nothing is known of before the restart, when that cannot be read.
    """

    def __init__(
        self, hardware: Hardware, memory: Memory, config: ProblemsConfig, look_again: float = LOOK_AGAIN
    ) -> None:
        """Look at ``hardware``; nothing is read before ``run``."""
        self.state = Latest(NodeState())
        self.blind: Latest[str | None] = Latest(None)
        self.forgetful: Latest[str | None] = Latest(None)
        self.lost: Latest[str | None] = Latest(None)
        self._hardware, self._memory, self._config = hardware, memory, config
        self._look_again = look_again

    async def run(self, looked: Callable[[], None]) -> None:
        """Look until cancelled; ``looked`` is called in the same turn of the loop, after each look and each change."""
        state, reason = self._memory.load()
        self.lost.set(reason)
        self.state.set(state)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look(looked), name=f"look at {self._hardware.kind}")
            group.create_task(self._settle(looked), name=f"settle {self._hardware.kind}")

    def forget(self, held: frozenset[str]) -> None:
        """Forget devices that are gone for long and held by no claim (``held``: hardware identities)."""
        self._know(forgotten(self.state.value, time.time(), held))

    async def _look(self, looked: Callable[[], None]) -> None:
        """Look. Hardware that fails as a whole for longer than a probe may take is devices that do not answer."""
        loop = asyncio.get_running_loop()
        patient_until = math.inf
        while True:
            try:
                async for observation in self._hardware.watch():
                    patient_until = math.inf
                    self.blind.set(None)
                    self._see(observation, looked)
            except HardwareError as error:
                self.blind.set(str(error))
                patient_until = min(patient_until, loop.time() + self._config.silent_after)
            if loop.time() >= patient_until and self.state.value.looked_at:
                self._see(unanswered(self.state.value, time.time()), looked)
            await asyncio.sleep(self._look_again)

    def _see(self, observation: Looked, looked: Callable[[], None]) -> None:
        self._know(fold(self._before(observation), observation, self._config))
        looked()

    def _before(self, observation: Looked) -> NodeState:
        """Return what was known before the look. Looks come in order: if one seems older, the clock was set back."""
        state = self.state.value
        return msgspec.structs.replace(state, looked_at=0.0) if observation.at < state.looked_at else state

    async def _settle(self, looked: Callable[[], None]) -> None:
        """Let time do its part: what was gone for long enough is over at its moment, not at the next look."""
        async with aclosing(follow(self.state, until=self._next)) as states:
            async for (state,) in states:
                after = settled(state, time.time(), self._config)
                if after is not state:
                    self._know(after)
                    looked()

    def _next(self) -> float | None:
        """Return the time of the loop at which something is settled."""
        due = next_settling(self.state.value, self._config)
        return None if due is None else asyncio.get_running_loop().time() + max(0.0, due - time.time())

    def _know(self, state: NodeState) -> None:
        """Remember, then tell. A full disk is no reason to let claims have a sick device: it is said."""
        if state is self.state.value:
            return
        try:
            self._memory.keep(state)
            self.forgetful.set(None)
        except OSError as error:
            self.forgetful.set(f"problems of devices are not remembered over a restart: {error}")
        self.state.set(state)
