"""Quantities: what the API accepts, compared by value."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.quantity import Quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("80Gi", str(80 * 1024**3)),
        ("1500m", "1.5"),
        ("1.5Gi", str(1024**3 * 3 // 2)),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", str(10**18)),
        ("1Ei", str(1024**6)),
        ("+.5", "0.5"),
        ("5.", "5"),
        ("-2k", "-2000"),
        ("7n", "0.000000007"),
    ],
)
def test_a_quantity_has_the_value_that_the_api_gives_it(text: str, number: str) -> None:
    """Every suffix and exponent form of the API is read, and the text stays as it was."""
    assert Quantity(text).number == Decimal(number)
    assert str(Quantity(text)) == text


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1K", "1e", "1e1.5", "--1", "1Gi ", "٣", "0x1", "nan", ".", "1e99999999999"]
)
def test_other_texts_are_refused(text: str) -> None:
    """What the API would refuse raises, and the error says what is allowed."""
    with pytest.raises(ValueError, match="not a quantity"):
        Quantity(text)


def test_equal_amounts_are_equal_however_written() -> None:
    """81920Mi is 80Gi, also as a key; other types are never equal."""
    assert Quantity("81920Mi") == Quantity("80Gi")
    assert len({Quantity("81920Mi"), Quantity("80Gi"), Quantity("80G")}) == 2
    assert Quantity("1") != 1
    assert repr(Quantity("1k")) == "Quantity('1k')"


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.sampled_from(["", "m", "k", "Ki"]))
def test_quantities_are_ordered_by_value(one: int, other: int, suffix: str) -> None:
    """The order of equally scaled quantities is the order of their numbers."""
    assert (Quantity(f"{one}{suffix}") < Quantity(f"{other}{suffix}")) == (one < other)
    assert (Quantity(one) >= Quantity(other)) == (one >= other)
