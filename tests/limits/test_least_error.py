"""The least error of features of a rank: the other side of the least rank of an error, and never above a true error."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.kinds.relation.rank import error_lower, rank_lower
from attnfun.kinds.relation.target import Relation

LINE = np.linspace(0, 1, 33)


def relation(text: str, variables: int) -> Relation:
    left, right = ({f"{side}{k}": (0, 1) for k in range(variables)} for side in "xy")
    return Relation.read(text, left, right)


CASES = [
    ("exp(-2*(x0 - y0)**2)", 1),
    ("tanh(5*(x0 - y0))", 1),
    ("abs(x0 - y0)", 1),
    ("exp(x0*y0 + x1*y1)", 2),  # a product of two factors
]


@pytest.mark.parametrize(("text", "variables"), CASES)
def test_a_least_error_is_the_other_side_of_a_least_rank(text: str, variables: int) -> None:
    asked = relation(text, variables)
    for eps in (0.3, 1e-1, 1e-2):
        rank = rank_lower(asked, eps)
        assert eps >= error_lower(asked, rank)
        assert rank == 0 or error_lower(asked, rank - 1) > eps
    assert error_lower(asked, 10_000) == 0.0 and error_lower(asked, -1) == 0.0


@pytest.mark.parametrize(("text", "variables"), CASES)
def test_no_features_of_a_rank_beat_its_least_error(text: str, variables: int) -> None:
    """The best features in the mean square on a grid, which come nearest to the bound, are above it on that grid."""
    asked = relation(text, variables)
    axes = [LINE if variables == 1 else LINE[::4]] * variables
    Z = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    table = asked.table(Z, Z)
    U, s, V = np.linalg.svd(table)
    for rank in range(1, 7):
        error = np.abs(table - (U[:, :rank] * s[:rank]) @ V[:rank]).max()
        assert 0 < error_lower(asked, rank) <= error + 1e-12


@pytest.mark.parametrize(
    ("text", "rank"), [("x0*y0", 1), ("x0 + y0", 2), ("cos(5*(x0 - y0))", 2), ("(x0 - y0)**4", 5), ("1e-200*x0*y0", 1)]
)
def test_features_of_the_exact_rank_are_not_excluded(text: str, rank: int) -> None:
    asked = relation(text, 1)
    assert error_lower(asked, rank) == 0.0 <= error_lower(asked, rank - 1)


@pytest.mark.parametrize(
    "text", ["exp(700*x0*y0)", "exp(800*x0*y0)", "1e300*exp(x0*y0)", "1/(x0 - y0)", "log(x0 - y0)"]
)
def test_what_overflows_or_is_not_enclosed_excludes_nothing(text: str) -> None:
    assert error_lower(relation(text, 1), 0) == 0.0 and rank_lower(relation(text, 1), 1e-3) == 0
