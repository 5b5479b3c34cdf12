"""Bounds in words: what is printed of an upper bound is not below it, of a lower bound not above it."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from attnfun.language.numbers import at_least, at_most
from products import drawn


@drawn(400)
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), st.integers(1, 9))
def test_what_is_printed_of_a_bound_is_on_its_safe_side_and_near_it(value: float, digits: int) -> None:
    low, high = Fraction(at_least(value, digits)), Fraction(at_most(value, digits))
    assert low <= Fraction(value) <= high
    assert high - low <= abs(Fraction(value)) * Fraction(10) ** (1 - digits)


def test_what_has_few_digits_is_printed_as_it_is() -> None:
    assert (at_most(0.5), at_least(0.5), at_most(0.0), at_most(float("inf"))) == ("0.5", "0.5", "0", "inf")
