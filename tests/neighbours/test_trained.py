"""Layers trained on two candidates never fall below what is proved of all layers of their shape."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

SHAPES = ((8, 8, 1), (8, 4, 2), (8, 1, 8))  # rank × heads = 8 in all: the same number of weights in K and Q
STEPS, COUNT = 300, 20_000


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark as a module: it lies in no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "two_candidates.py"
    spec = importlib.util.spec_from_file_location("benchmark_two_candidates", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(bench: ModuleType) -> list[Any]:
    return [bench.row_of(*shape, steps=STEPS, count=COUNT) for shape in SHAPES]


def test_no_trained_error_is_below_its_bound(bench: ModuleType, rows: list[Any]) -> None:
    for row in rows:
        assert 0 < row.error_se < 0.01
        assert row.error >= row.layer_any - 3 * row.error_se
        assert row.error >= row.softmax_any - 3 * row.error_se
        assert row.error < 0.5  # better than the midpoint, which ignores the query
    assert all(row.bound > 0 for row in rows if row.rank < 8)
    assert bench.verdict(rows).startswith("every point is on or above the proved bound")


def test_full_rank_beats_half_rank_by_far(rows: list[Any]) -> None:
    full, half = rows[0], rows[1]
    assert (full.dim, full.rank) == (8, 8) and half.rank == 4
    assert 2 * full.error < half.error
    assert half.error - full.error > 30 * (full.error_se + half.error_se)


def test_training_is_deterministic(bench: ModuleType, rows: list[Any]) -> None:
    assert bench.row_of(*SHAPES[1], steps=STEPS, count=COUNT) == rows[1]
    assert bench.row_of(*SHAPES[1], steps=STEPS, count=COUNT, seed=1).error != rows[1].error


@pytest.mark.parametrize("place", [1, 2])
def test_a_falsified_table_gets_the_opposite_verdict(bench: ModuleType, rows: list[Any], place: int) -> None:
    row = rows[place]
    shape = f"d={row.dim} r={row.rank} H={row.heads}"
    for change in (
        {"error": row.bound - 3.5 * row.error_se},
        {"layer_any": row.error + 4 * row.error_se},
        {"softmax_any": row.error + 4 * row.error_se},
        {"error": float("nan")},
        {"error_se": float("inf")},
    ):
        forged = [*rows[:place], replace(row, **change), *rows[place + 1 :]]
        said = bench.verdict(forged)
        assert said.startswith("1 of 3 points are not on or above") and shape in said
    scalar = replace(row, softmax_scalar=row.error + 1, layer_scalar=row.error + 1)
    assert bench.verdict([scalar]).startswith("every point")  # a bound for scalar V says nothing of free V
    assert not bench.verdict([]).startswith("every point")


def test_the_layer_is_two_way_softmax_attention(bench: ModuleType) -> None:
    import torch

    generator = torch.Generator().manual_seed(5)
    K, Q = (torch.randn((3, 6, 2), generator=generator, dtype=torch.float64) for _ in range(2))
    V = torch.randn((3, 6, 6), generator=generator, dtype=torch.float64)
    w, x2, y, f = bench.samples(torch, generator, 50, 6, torch.float64)
    out = bench.output(torch, K, Q, V, w, x2, y)
    for n in range(50):
        tokens = torch.stack([w[n] + x2[n], x2[n]])
        weights = [torch.softmax(tokens @ K[h] @ (Q[h].T @ y[n]), 0) for h in range(3)]
        assert torch.allclose(out[n], sum(weights[h] @ tokens @ V[h] for h in range(3)), atol=1e-12)
        assert torch.allclose(f[n], tokens[(tokens - y[n]).norm(dim=1).argmax()], atol=1e-15)
        assert torch.allclose(tokens.norm(dim=1), torch.ones(2, dtype=torch.float64))
