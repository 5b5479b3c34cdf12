"""Which cases of a test are quick: a few of a list, a few of a product, a quarter of what is drawn at random.

Every claim keeps quick cases. `make test-slow` runs all the others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

THOROUGH = bool(os.environ.get("ATTNFUN_THOROUGH"))  # set by `make test-slow`


def few(cases: Iterable[Any], quick: int) -> list[Any]:
    """All cases, of which `quick`, spread evenly over the list, are quick and the rest is slow."""
    listed = list(cases)
    chosen = {round(k * (len(listed) - 1) / max(quick - 1, 1)) for k in range(quick)}
    return [one if k in chosen else _slow(one) for k, one in enumerate(listed)]


def _slow(case: Any) -> Any:
    """The case, one value or several or `pytest.param` of them, marked slow."""
    values, marks = getattr(case, "values", None), getattr(case, "marks", ())
    own = case if values is None else values
    return pytest.param(*(own if isinstance(own, tuple) else (own,)), marks=[*marks, pytest.mark.slow])


def drawn(many: int) -> Callable[[Any], Any]:
    """A property test that draws a quarter of `many` examples in the quick run, and all of them in `make test-slow`."""
    count = many if THOROUGH else math.ceil(many / 4)
    examples = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: pytest.mark.drawn(examples(test))


def pairs(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Every (a, b), slow but for max(len(one), len(other)) of them, which hold every a and every b.

    Both are read round and round, side by side, so the quick pairs are distinct and neighbours change in both.
    """
    quick = {(k % len(one), k % len(other)) for k in range(max(len(one), len(other)))}
    return [
        pytest.param(a, b, marks=[] if (i, j) in quick else [pytest.mark.slow])
        for i, a in enumerate(one)
        for j, b in enumerate(other)
    ]
