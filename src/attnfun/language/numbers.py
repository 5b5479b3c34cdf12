"""Numbers and words that a request names, or one sentence that says what is needed; rounded fractions."""

import math
from collections.abc import Callable, Collection
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest


def at_most(value: float, digits: int = 4) -> str:
    """An upper bound in words: 0.12341 is at most 0.1235. No digit that is left out makes it smaller."""
    return _directed(value, digits, ROUND_CEILING)


def at_least(value: float, digits: int = 4) -> str:
    """A lower bound in words: 0.12349 is at least 0.1234."""
    return _directed(value, digits, ROUND_FLOOR)


def _directed(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(value)
    rounded = Context(digits, rounding).create_decimal(Decimal(value))
    text = f"{float(rounded):.{digits}g}"
    return text if Decimal(text) == rounded else str(rounded)  # the least doubles have fewer digits


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int from `least` to `most`, or an InvalidRequest that names it; of any size without `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or int(value) < least:
        raise InvalidRequest(f"{name}={_shown(value)}: a whole number of at least {least} is needed")
    if most is not None and int(value) > most:
        raise InvalidRequest(f"{name}={_shown(value)}: at most {most:,}")
    return int(value)


def number(name: str, value: Any) -> float:
    """`value` as a double, or an InvalidRequest that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidRequest(f"{name}={_shown(value)}: a number is needed")
    try:
        return float(value)
    except OverflowError:
        raise InvalidRequest(f"{name}={_shown(value)}: too large") from None


def positive_or_none(name: str, value: Any) -> float | None:
    """`value` as a positive double, None as None, or an InvalidRequest that names it."""
    return None if value is None else positive(name, value)


def positive(name: str, value: Any) -> float:
    """`value` as a positive double, or an InvalidRequest that names it."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0 < value < 2.0**1023):  # NaN must not pass
        raise InvalidRequest(f"{name}={_shown(value)}: a positive number is needed")
    return float(value)


def one_of(name: str, value: Any, options: Collection[str]) -> None:
    """InvalidRequest that lists the words, unless `value` is one of them."""
    if not isinstance(value, str) or value not in options:
        raise InvalidRequest(f"{name}={value!r:.40}: write {', '.join(options)}")


def bisected(low: int, high: int, good: Callable[[int], bool]) -> int:
    """The least number in (low, high] that is good, if all above a good one are; `high` is one."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def above(value: Fraction) -> float:
    """The least double at or above a fraction."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def below(value: Fraction) -> float:
    """The largest double at or below it."""
    return 0.0 - above(-value)


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}…"
    return f"{value!r:.40}"
