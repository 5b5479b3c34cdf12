"""Numbers that a request names: whole ones within bounds, or one sentence that says what is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int from `least` to `most`, or an InvalidRequest that names it; of any size without `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or int(value) < least:
        raise InvalidRequest(f"{name}={_shown(value)}: a whole number of at least {least} is needed")
    if most is not None and int(value) > most:
        raise InvalidRequest(f"{name}={_shown(value)}: at most {most:,}")
    return int(value)


def positive_or_none(name: str, value: Any) -> float | None:
    """`value` as a positive double, None as None, or an InvalidRequest that names it."""
    if value is None:
        return None
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0 < value < 2.0**1023):  # NaN must not pass
        raise InvalidRequest(f"{name}={_shown(value)}: a positive number is needed")
    return float(value)


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}…"
    return f"{value!r:.40}"
