"""Products of parameters: a few of the pairs hold every value of both, and the rest of the product is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


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
