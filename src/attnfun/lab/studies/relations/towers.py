"""What the studies of relations share: points, towers trained on a relation, and sup errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.tables import Row

if TYPE_CHECKING:
    from attnfun.lab.studies.relations.inner_products import InnerProduct

NODES = {1: 48, 2: 13}
"""Training points a variable, by the variables of a side; they lie denser at the ends, where errors are largest."""
FINE = {1: 301, 2: 31}
"""Points a variable at which sup errors are measured."""


def relation_of(text: str, d: int, side: tuple[float, float] = (0.0, 1.0), symmetric: bool = False) -> af.Relation:
    """The relation of x1 … xd and y1 … yd, each variable in `side`."""
    left, right = ({f"{v}{k + 1}": side for k in range(d)} for v in "xy")
    return af.Relation.read(text, left, right, symmetric=symmetric)


def built_row(target: af.Relation, found: Any) -> Row:
    """Rank, the largest error seen and the bound proved of constructed towers."""
    error = max(sup_error(target, found), found.certificate.error[0])
    return {"rank": found.rank, "error": error, "proved": found.certificate.error[1]}


def product_grid(box: af.Box, line: Callable[[float, float], Any]) -> Any:
    """(n, variables): the product of a line of points for every variable."""
    axes = [line(a, b) for a, b in zip(box.low, box.high, strict=True)]
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)


def lobatto(box: af.Box, count: int) -> Any:
    """Chebyshev points with the ends, a product grid."""
    t = np.cos(np.pi * np.arange(count) / (count - 1))
    return product_grid(box, lambda a, b: np.clip((a + b) / 2 + (b - a) / 2 * t, a, b))


def fine_grid(box: af.Box) -> Any:
    return product_grid(box, lambda a, b: np.linspace(a, b, FINE[box.dim]))


def sup_error(relation: af.Relation, scores: Callable[[Any, Any], Any]) -> float:
    """The largest |scores − relation| over all pairs of two fine grids: a lower end of the true sup error."""
    X, Y = fine_grid(relation.left), fine_grid(relation.right)
    return float(np.abs(scores(X, Y) - relation.table(X, Y)).max())


def train_on(relation: af.Relation, rank: int, width: int, *, steps: int, seed: int, **options: Any) -> InnerProduct:
    """Towers of one hidden layer fitted to the relation on Chebyshev points; a quarter more steps are LBFGS."""
    from attnfun.lab.studies.relations.inner_products import train_inner_product

    X, Y = lobatto(relation.left, NODES[relation.left.dim]), lobatto(relation.right, NODES[relation.right.dim])
    table = relation.table(X, Y)
    return train_inner_product((X, Y), table, rank, width, steps=steps, polish=steps // 4, seed=seed, **options)
