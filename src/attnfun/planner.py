"""`plan`: which (rank, heads, layers) a task excludes, which are constructed, and where nobody knows.

| task | excluded by | constructed |
| --- | --- | --- |
| furthest-neighbour | `bounds.rank`, one layer | one head of full rank; 2d heads of rank 1, then one (two layers) |
| matching, order 2 | nothing is known | one head of rank 2 (`matching`) |
| matching, order 3 | `bounds.matching`, one layer, by bits | third-order attention: outside the grid of plain heads |
| sparse-averaging | the bits of the query, one layer | `sparse_average`, one head or several |
| relation | the rank of the score matrix (`rank_of`) | one head of the rank found |

A cell is "impossible" with the bound that says so, "constructed" with the construction and its size, or "unknown".
Parameters of a cell are those of W_Q and W_K: 2 · dim · rank · heads · layers. More heads, rank or layers than a
construction needs may stand idle. Which way the pressure goes is a matter of the family of tasks, so the answer in one
sentence names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.plan_tasks import Family, family_of
from attnfun.targets.numbers import whole_number

TASKS = ("furthest-neighbour", "matching", "sparse-averaging", "relation")
VERDICTS = ("impossible", "constructed", "unknown")
_MOST_CELLS = 4000


@dataclass(frozen=True)
class Cell:
    """`heads` heads of rank `rank` in each of `layers` layers; `why`: the bound or the construction."""

    rank: int
    heads: int
    layers: int
    parameters: int
    verdict: str
    why: str


@dataclass(frozen=True)
class Plan:
    """The map of a task; `cells` are those within the budget."""

    task: str
    dim: int
    context: int
    eps: float
    bits: int
    budget: int | None
    cells: tuple[Cell, ...]
    answer: str
    family: str
    constructions: tuple[str, ...]
    hypotheses: tuple[str, ...]
    sources: tuple[str, ...]

    def verdict(self, rank: int, heads: int, layers: int = 1) -> Cell | None:
        """The cell of the grid, None if it is not on it or over the budget."""
        return next((c for c in self.cells if (c.rank, c.heads, c.layers) == (rank, heads, layers)), None)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        counts = {verdict: sum(c.verdict == verdict for c in self.cells) for verdict in VERDICTS}
        return {
            "task": self.task,
            "dim": self.dim,
            "context": self.context,
            "eps": self.eps,
            "bits": self.bits,
            "budget": self.budget,
            "answer": self.answer,
            "family": self.family,
            "counts": counts,
            "cells": [vars(cell) for cell in self.cells],
            "constructions": list(self.constructions),
            "hypotheses": list(self.hypotheses),
            "sources": list(self.sources),
        }

    to_json = record

    def plot(self, path: Any = None) -> Any:
        """The map of rank × heads in three colours, one panel a number of layers."""
        from attnfun.plots.plan import draw_plan

        return draw_plan(self, path)


def plan(
    task: str,
    *,
    dim: int = 64,
    context: int = 16,
    eps: float = 0.1,
    budget: int | None = None,
    bits: int = 32,
    order: int = 3,
    q: int = 4,
    matrix: Any = None,
    setting: str = "softmax-any-v",
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """What rank, heads and layers `task` needs at error `eps`: tokens of width `dim`, `context` tokens.

    `task`: "furthest-neighbour", "matching" (with `order` 2 or 3), "sparse-averaging" (with `q`) or "relation" (with
    `matrix`, the scores that a head must have within eps). `budget`: the most parameters of W_Q and W_K. `bits`: of a
    number, for the bounds by bits. `setting`: of `bounds.rank`.
    """
    if task not in TASKS:
        raise InvalidRequest(f"task={task!r:.40}: write {', '.join(TASKS)}")
    d, n = whole_number("dim", dim, 2), whole_number("context", context, 2)
    p = whole_number("bits", bits, 1)
    most = None if budget is None else whole_number("budget", budget, 1)
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating)) or not 0 < eps < math.inf:
        raise InvalidRequest(f"eps={eps!r:.40}: a positive number is needed")
    if (matrix is not None) != (task == "relation"):
        raise InvalidRequest("a score matrix belongs to task 'relation', and that task needs one")
    family = family_of(task, d, n, float(eps), p, order, q, matrix, setting, progress or (lambda _: None))
    cells = _cells(family, most)
    if not cells:
        raise InvalidRequest(f"budget={most}: the thinnest head has {2 * family.dim} parameters")
    return Plan(
        task,
        family.dim,
        n if family.context is None else family.context,
        float(eps),
        p,
        most,
        cells,
        family.answer,
        family.name,
        family.constructions,
        family.hypotheses,
        family.sources,
    )


def _cells(family: Family, budget: int | None) -> tuple[Cell, ...]:
    ranks = _steps(family.most_rank, family.ranks)
    heads = _steps(family.most_heads, family.heads)
    while len(ranks) * len(heads) * len(family.layers) > _MOST_CELLS:
        heads = heads[::2]
    out = []
    for layers in family.layers:
        for rank in ranks:
            for count in heads:
                parameters = 2 * family.dim * rank * count * layers
                if budget is None or parameters <= budget:
                    verdict, why = family.judge(rank, count, layers)
                    out.append(Cell(rank, count, layers, parameters, verdict, why))
    return tuple(out)


def _steps(most: int, special: tuple[int, ...]) -> list[int]:
    """Powers of two up to `most`, `most` itself, and the sizes where something happens."""
    powers = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    return sorted({*powers, most, *(s for s in special if 1 <= s <= most)})
