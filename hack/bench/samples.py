"""Where measured values are collected, and what went wrong meanwhile."""

from collections import Counter, defaultdict
from typing import Any

from hack.bench.load import Result

ERROR_LENGTH = 120


class Collected:
    """Values by figure and contestant, and failures by contestant."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, figure: str, contestant: str, value: float) -> None:
        """Keep one value."""
        self.values[figure][contestant].append(value)

    def failed(self, contestant: str, result: Result) -> None:
        """Keep the errors of calls; the first words are enough, so that equal ones are counted together."""
        for error, count in result.errors.items():
            self.failures[contestant][error[:ERROR_LENGTH]] += count

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "samples": {figure: dict(values) for figure, values in self.values.items()},
            "failures": {name: dict(errors) for name, errors in self.failures.items() if errors},
        }
