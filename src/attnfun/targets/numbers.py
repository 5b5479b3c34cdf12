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


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1}…"
    return f"{value!r:.40}"
