"""Hardware that shows what a test puts on its stage: an implementation of the seam for tests of its followers."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from dra_plugin.latest import Latest, follow
from drasim.hardware import DeviceLost, HardwareError, Kind, Looked, Step

__all__ = ["Stage"]


class Stage:
    """The devices of the look that was ``shown`` last; settings are kept by device and claim."""

    def __init__(self, first: Looked | HardwareError, kind: Kind = "gpu") -> None:
        self.shown: Latest[Looked | HardwareError] = Latest(first)
        self.settings: dict[tuple[str, str], Step] = {}
        self._kind = kind

    @property
    def kind(self) -> Kind:
        """The kind of its devices."""
        return self._kind

    def show(self, look: Looked | HardwareError) -> None:
        """Have the next look find this; an error is raised instead."""
        self.shown.set(look)

    async def watch(self) -> AsyncIterator[Looked]:
        """Yield what is shown, at once and when it changes."""
        async with aclosing(follow(self.shown)) as turns:
            async for (shown,) in turns:
                if isinstance(shown, HardwareError):
                    raise shown
                yield shown

    async def admit(self, device: str, claim: str) -> None:  # noqa: ARG002 - the seam's signature
        """Refuse what is not there."""
        self._look(device)

    async def dismiss(self, device: str, claim: str) -> None:
        """Let go at once."""

    async def apply(self, step: Step, claim: str) -> None:
        """Keep the settings."""
        self._look(step.device)
        self.settings[step.device, claim] = step

    async def undo(self, step: Step, claim: str) -> None:
        """Forget the settings."""
        self.settings.pop((step.device, claim), None)

    def _look(self, device: str) -> None:
        shown = self.shown.value
        if isinstance(shown, HardwareError) or device not in {each.id for each in shown.devices}:
            raise DeviceLost(f"device {device} is gone")
