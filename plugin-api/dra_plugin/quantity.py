"""Quantities of the Kubernetes API: parse, compare by value (apimachinery ``resource.Quantity``)."""

import re
from decimal import Decimal
from functools import total_ordering

__all__ = ["Quantity"]

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?")
_BINARY: dict[str, int] = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@total_ordering
class Quantity:
    """An amount such as ``80Gi`` or ``1500m``. Equal amounts are equal however they are written."""

    __slots__ = ("_text", "number")

    def __init__(self, text: str | int) -> None:
        """Parse ``text``; raises ValueError when it is no quantity."""
        self._text = str(text)
        self.number = _parse(self._text)

    def __str__(self) -> str:
        """Return the text as it was written."""
        return self._text

    def __repr__(self) -> str:
        """Return a form for people who debug."""
        return f"Quantity({self._text!r})"

    def __eq__(self, other: object) -> bool:
        """Compare by value: ``81920Mi`` equals ``80Gi``."""
        return isinstance(other, Quantity) and self.number == other.number

    def __lt__(self, other: "Quantity") -> bool:
        """Compare by value."""
        return self.number < other.number

    def __hash__(self) -> int:
        """Equal amounts hash alike."""
        return hash(self.number)


def _parse(text: str) -> Decimal:
    match = _FORM.fullmatch(text)
    if not match:
        raise ValueError(f"not a quantity: {text!r} (allowed: a number and one of Ki Mi Gi Ti Pi Ei n u m k M G T P E)")
    number, binary, decimal, exponent = match.groups()
    try:
        if binary:
            return Decimal(number) * _BINARY[binary]
        return Decimal(number).scaleb(int(exponent) if exponent else _DECIMAL.get(decimal, 0))
    except ArithmeticError:
        raise ValueError(f"not a quantity: {text!r} is beyond any amount") from None
