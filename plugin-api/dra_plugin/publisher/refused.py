"""What the server stored differs from what was sent: remembered, so that it is not written again and again."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from dra_plugin.resources import ResourceSlice, ResourceSliceSpec
from dra_plugin.slices import carried, dropped, same

__all__ = ["Refused", "gates_for"]

_GATES = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "sharedCounters": "DRAPartitionableDevices",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "compatibilityGroups": "DRADeviceCompatibilityGroups",
    "bools": "DRAListTypeAttributes",
    "ints": "DRAListTypeAttributes",
    "strings": "DRAListTypeAttributes",
    "versions": "DRAListTypeAttributes",
}


def gates_for(fields: Iterable[str]) -> tuple[str, ...]:
    """Return the feature gates that are probably off when the server removed ``fields``; unknown fields add none."""
    names = {part.removesuffix("[]") for field in fields for part in field.split(".")}
    return tuple(sorted({_GATES[name] for name in names & _GATES.keys()}))


class _Answer(msgspec.Struct, frozen=True):
    stored: ResourceSliceSpec
    sent: ResourceSliceSpec
    fields: tuple[str, ...]


class Refused:
    """The slices of one pool that the server stores otherwise than they were sent."""

    def __init__(self) -> None:
        """Nothing differs yet."""
        self._answers: dict[str, _Answer] = {}

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the server did not keep, each once, sorted."""
        return tuple(sorted({field for answer in self._answers.values() for field in answer.fields}))

    def note(self, sent: ResourceSlice, stored: ResourceSlice) -> None:
        """Remember the answer to a write if it differs from what was sent."""
        name = stored.metadata.name or ""
        sent = carried(sent, stored)
        if same(sent.spec, stored.spec):
            self._answers.pop(name, None)
        else:
            self._answers[name] = _Answer(stored.spec, sent.spec, dropped(sent, stored))

    def hide(self, stored: Sequence[ResourceSlice]) -> tuple[ResourceSlice, ...]:
        """Return ``stored`` as if the server had kept what was sent, unless somebody changed it since."""
        if not self._answers:
            return tuple(stored)
        names = {each.metadata.name for each in stored}
        self._answers = {name: answer for name, answer in self._answers.items() if name in names}
        return tuple(map(self._as_sent, stored))

    def forget(self) -> bool:
        """Forget everything, so that it is tried again; tell whether there was anything."""
        had = bool(self._answers)
        self._answers.clear()
        return had

    def _as_sent(self, each: ResourceSlice) -> ResourceSlice:
        answer = self._answers.get(each.metadata.name or "")
        return replace(each, spec=answer.sent) if answer and answer.stored == each.spec else each
