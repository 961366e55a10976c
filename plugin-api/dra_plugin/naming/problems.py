"""Problem: what broke a limit, where, and what is published in its place."""

import msgspec

__all__ = ["Problem", "Problems"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the API would not take as it was.

    Attributes:
        device: name of the device (or ``counter set NAME``); empty when it is about the pool.
        field: the field, as in the API: ``attributes[model]``.
        value: what was asked for, shortened.
        rule: the rule that it breaks.
        used: what is published in its place; None means that it is left out.
    """

    device: str
    field: str
    value: str
    rule: str
    used: str | None = None

    def __str__(self) -> str:
        """Return one line for people."""
        place = f"{self.device}: {self.field}" if self.device else self.field
        outcome = "left out" if self.used is None else f"published as {self.used!r}"
        return f"{place}: {self.value!r} {outcome}: {self.rule}"


class Problems:
    """The problems of one device, collected while it is looked at."""

    __slots__ = ("device", "found")

    def __init__(self, device: str, found: list[Problem]) -> None:
        """Add to ``found`` what is wrong with ``device``."""
        self.device = device
        self.found = found

    def add(self, field: str, value: object, rule: str, used: str | None = None) -> None:
        """Note one problem."""
        text = _printable(str(value))
        short = text if len(text) <= 100 else f"{text[:97]}..."  # noqa: PLR2004 - enough to recognise it
        place, device = _printable(field), _printable(self.device)
        self.found.append(Problem(device=device, field=place, value=short, rule=rule, used=used))


def _printable(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot hold (lone surrogates) escaped, so that any log takes it."""
    return text.encode("utf-8", "backslashreplace").decode()
