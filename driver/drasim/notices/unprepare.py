"""A failed Unprepare keeps a Pod in Terminating, silently: an Event says so."""

from collections.abc import Mapping
from contextlib import aclosing

from dra_plugin.events import Events
from dra_plugin.latest import Latest, follow
from dra_plugin.observe import CallDone, ClaimFailed, Observation
from drasim.notices.references import claim_reference, node_reference

__all__ = ["FAILED_UNPREPARE", "Notices"]

FAILED_UNPREPARE = "FailedUnprepareDynamicResources"


class Notices:
    """Remembers which claims cannot be unprepared, and tells of each once: on the claim and on the Node."""

    def __init__(self, events: Events, node_name: str) -> None:
        """Send through ``events``; nothing is sent before ``run``."""
        self._events = events
        self._node_name = node_name
        self.failures: Latest[Mapping[str, ClaimFailed]] = Latest({})

    def observe(self, observation: Observation) -> None:
        """Note a failed Unprepare, and that it succeeded at last. Never waits: calls do not pay for Events."""
        if isinstance(observation, ClaimFailed) and observation.operation == "unprepare":
            self.failures.set({**self.failures.value, observation.uid: observation})
        elif isinstance(observation, CallDone) and observation.operation == "unprepare" and observation.error is None:
            self._settled(observation.uid)

    async def run(self) -> None:
        """Send an Event for each failure that is new or has another reason than before, until cancelled."""
        told: Mapping[str, ClaimFailed] = {}
        async with aclosing(follow(self.failures)) as turns:
            async for (failures,) in turns:
                for failure in [each for uid, each in failures.items() if told.get(uid) != each]:
                    await self._tell(failure)
                told = failures

    def _settled(self, uid: str) -> None:
        if uid in self.failures.value:
            self.failures.set({other: failure for other, failure in self.failures.value.items() if other != uid})

    async def _tell(self, failure: ClaimFailed) -> None:
        about = claim_reference(failure.namespace, failure.name, failure.uid)
        note = f"{failure.driver} on {self._node_name}: {failure.error}"
        claim = f"claim {failure.namespace}/{failure.name} cannot be unprepared: "
        await self._events.emit(about, reason=FAILED_UNPREPARE, note=note)
        await self._events.emit(node_reference(self._node_name), reason=FAILED_UNPREPARE, note=claim + note)
