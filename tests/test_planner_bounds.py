"""Plans and bounds never contradict each other: random plans against every calculator that holds for them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.limits.separation.matching import average_bits

NEIGHBOURS = ("furthest-neighbour", "nearest-neighbour")
COVERS = {  # heads of the first are heads of all the others
    "softmax-any-v": ("softmax-any-v", "layer-any-v"),
    "softmax-scalar-v": ("softmax-scalar-v", "softmax-any-v", "layer-scalar-v", "layer-any-v"),
    "layer-any-v": ("layer-any-v",),
    "layer-scalar-v": ("layer-scalar-v", "layer-any-v"),
}

SEEDS = [seed if seed < 7 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(30)]


def drawn(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    task = str(rng.choice((*NEIGHBOURS, *NEIGHBOURS, "matching", "sparse-averaging", "relation")))
    asked: dict[str, Any] = {"task": task, "eps": float(10 ** rng.uniform(-2.5, -0.3))}
    asked["bits"] = int(rng.integers(1, 33))
    if task in NEIGHBOURS:
        asked |= {"dim": int(rng.integers(2, 10)), "context": int(rng.integers(3, 7))}
        asked["setting"] = str(rng.choice([s for s in COVERS if asked["dim"] > 2 or s.startswith("softmax")]))
    elif task == "matching":
        asked |= {"context": int(rng.integers(2, 3000)), "dim": int(rng.integers(2, 40))}
    elif task == "sparse-averaging":
        asked |= {"context": int(rng.integers(6, 20)), "q": int(rng.integers(1, 4)), "dim": 4}
    else:
        m, n, r = rng.integers(2, 9, size=3)
        asked["matrix"] = rng.normal(size=(m, r)) @ rng.normal(size=(r, n))
    if rng.random() < 0.5:
        asked["budget"] = int(10 ** rng.uniform(2, 5))
    return asked


@cache
def lower(dim: int, context: int, rank: int, heads: int, setting: str) -> float:
    """The largest error that a calculator proves of so many heads, with two candidates or all of them."""
    settings = [s for s in COVERS[setting] if dim > 2 or s.startswith("softmax")]
    two = max(af.bounds.rank(dim, rank, heads, setting=s).lower for s in settings)
    return max(two, af.bounds.neighbours(dim, context - 1, rank, heads).lower)


def excluded(asked: dict[str, Any], cell: af.planner.Cell) -> bool:
    """Whether a bound excludes a cell, each from its own calculator."""
    task, eps = asked["task"], asked["eps"]
    if cell.layers != 1:
        return False
    if task in NEIGHBOURS:
        return lower(asked["dim"], asked["context"], cell.rank, cell.heads, asked["setting"]) >= eps
    if task == "matching":
        return bool(af.bounds.matching(asked["context"], cell.rank, asked["bits"], cell.heads).excluded)
    if task == "sparse-averaging":
        needed = average_bits(asked["context"], asked["q"])
        return eps < 1 / (2 * asked["q"]) and cell.rank * cell.heads * asked["bits"] < needed
    return cell.rank < af.rank_of(asked["matrix"], eps).lower


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cell_is_impossible_exactly_where_a_bound_excludes_it(seed: int) -> None:
    asked = drawn(seed)
    try:
        found = af.plan(**asked)
    except af.InvalidRequest as why:
        least = int(re.search(r"write budget=(\d+)", str(why))[1])  # type: ignore[index]
        assert asked["budget"] < least
        found = af.plan(**asked | {"budget": least})
    rng = np.random.default_rng(seed)
    some = rng.choice(len(found.cells), min(len(found.cells), 40), replace=False)
    for cell in (found.cells[int(k)] for k in some):
        assert (cell.verdict == "impossible") == excluded(asked, cell), cell


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sentence_keeps_to_the_budget(seed: int) -> None:
    asked = drawn(seed)
    free = af.plan(**{**asked, "budget": None})
    built = [c.parameters for c in free.cells if c.verdict == "constructed"]
    assert (free.nearest is None) == (not built)
    assert "Within" not in free.answer
    for budget in {max(c.parameters for c in free.cells), min(c.parameters for c in free.cells), *built[:1]}:
        cut = af.plan(**{**asked, "budget": budget})
        assert cut.nearest == free.nearest and all(c.parameters <= budget for c in cut.cells)
        assert cut.answer.startswith(f"Within {budget:,} parameters ") and cut.answer.endswith(free.answer)
        assert ("construction fits:" in cut.answer) == any(c.verdict == "constructed" for c in cut.cells)
        if cut.nearest is not None:
            assert cut.nearest.parameters == min(built)
            assert f"{cut.nearest.parameters:,} parameters" in cut.answer
            if cut.nearest.parameters > budget:  # the nearest plan that fits: its own budget
                again = af.plan(**{**asked, "budget": cut.nearest.parameters})
                assert "construction fits:" in again.answer
        gone = "all that fits is proved impossible" in cut.answer
        assert gone == all(c.verdict == "impossible" for c in cut.cells)


def test_the_strongest_bound_is_the_one_named() -> None:
    """Two candidates exclude next to nothing at half the dimension, all fifteen a great deal."""
    found = af.plan("furthest-neighbour", dim=64, context=16, eps=0.1)
    needed = af.bounds.neighbours(64, 15, 32, 1, 0.1).heads_needed
    assert needed is not None and needed > 256
    row = [c for c in found.cells if c.rank == 32 and c.layers == 1]
    assert row and all(c.verdict == "impossible" and f"{needed:,} heads (bounds.neighbours" in c.why for c in row)
    assert f"heads of rank 32 at least {needed:,}" in found.answer


@pytest.mark.parametrize(("dim", "context", "eps"), [(5, 4, 0.2)])
def test_the_nearest_point_is_planned_and_its_head_is_proved(dim: int, context: int, eps: float) -> None:
    found = af.plan("nearest-neighbour", dim=dim, context=context, eps=eps)
    for method, layers, heads in (("full_rank", 1, 1), ("scores", 2, 2 * dim)):
        made = af.neighbours(dim, context, method=method, eps=eps, which="nearest")
        rank = dim + context if method == "full_rank" else 1
        assert max(head.query.shape[1] for layer in made.network.layers for head in layer.heads) >= rank
        assert made.predicted.proved is not None and made.predicted.proved <= eps
        cell = found.verdict(rank, heads, layers)
        assert cell is not None and cell.verdict == "constructed" and method in cell.why
    thin = found.verdict(dim, 1)
    assert thin is not None and thin.verdict != "constructed"
