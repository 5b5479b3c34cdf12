"""Layers of the studies of rank and heads: what they compute, and that nothing trained falls below what is excluded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.lab.studies.separations import two_candidates
from attnfun.lab.studies.study import REFUTED
from attnfun.learn import generator
from products import few

torch = pytest.importorskip("torch")

from attnfun.lab.studies.separations import layers  # noqa: E402

SHAPES = ((8, 8, 1), (8, 4, 2), (8, 1, 8))  # rank × heads = 8 in all: the same number of weights in K and Q
STEPS, COUNT = 300, 20_000


@pytest.mark.parametrize(("rank", "heads", "value_rank"), [(6, 1, None), (2, 3, None), (1, 5, 1), (3, 2, 3)])
def test_a_layer_is_scaled_dot_product_attention(rank: int, heads: int, value_rank: int | None) -> None:
    block = layers.start(layers.Shape(6, rank, heads, value_rank=value_rank), seed=3)[0]
    x = layers.sphere_points(generator(0, 1), 10, 7, 6)
    seen = torch.nn.functional.scaled_dot_product_attention(
        x[:, None] @ block["Q"], x[:, None] @ block["K"], x[:, None].expand(10, heads, 7, 6), scale=1.0
    )
    wanted = (seen @ layers.values(block)).sum(1)
    assert x.dtype == torch.float32 and torch.allclose(layers.run([block], x), wanted, atol=2e-6)
    assert value_rank is None or np.all(np.linalg.matrix_rank(layers.values(block).detach().numpy()) == value_rank)


def test_the_target_is_the_furthest_other_point() -> None:
    x = layers.sphere_points(generator(5), 20, 6, 4, dtype=torch.float64)
    found = layers.furthest(x)
    for points, chosen in zip(x, found, strict=True):
        for i in range(6):
            others = [points[j] for j in range(6) if j != i]
            assert torch.equal(chosen[i], max(others, key=lambda other: float((other - points[i]).norm())))
    assert torch.allclose(x.norm(dim=-1), torch.ones(20, 6, dtype=torch.float64))


def test_a_stack_of_one_layer_starts_as_the_layer_and_deeper_ones_have_all_their_parts() -> None:
    x = layers.sphere_points(generator(1), 3, 5, 6)
    blocks = layers.start(layers.Shape(6, 2, 3, layers=3, hidden=7), seed=0)
    assert [float(block["skip"].detach()) for block in blocks] == [1.0, 1.0, 0.0]
    layers.run(blocks, x).square().sum().backward()
    used = {
        name for block in blocks for name, part in block.items() if part.grad is not None and part.grad.abs().max() > 0
    }
    assert used == {"K", "Q", "V", "W", "b", "U", "c", "skip", "gain"}


@pytest.mark.parametrize(("points", "rank", "heads"), few([(3, 1, 1), (5, 1, 2), (5, 3, 1)], 2))
def test_thin_layers_trained_on_few_or_more_points_stay_above_what_is_excluded(
    points: int, rank: int, heads: int
) -> None:
    shape = layers.Shape(8, rank, heads, value_rank=rank)
    blocks = layers.trained(shape, points, steps=150, seed=0, lr=0.03)
    error, error_se = layers.measured(blocks, points, sets=1000, seed=0)
    least = af.bounds.neighbours(8, points - 1, rank, heads, value_rank=rank).lower
    assert 0.15 < least <= error + 3 * error_se < 1


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    size = {"points": [list(shape) for shape in SHAPES], "seeds": 1, "steps": STEPS, "samples": COUNT}
    return [row for unit in two_candidates.units(size) for row in two_candidates.STUDY.rows(unit)]


def test_no_trained_error_is_below_its_bound(rows: list[Any]) -> None:
    for row in rows:
        assert 0 < row["error_se"] < 0.01
        assert row["error"] >= row["layer_any"] - 3 * row["error_se"]
        assert row["error"] >= row["softmax_any"] - 3 * row["error_se"]
        assert row["error"] < 0.5  # better than the midpoint, which ignores the query
        assert two_candidates.allowed(row)
    assert all(two_candidates.bound(row) > 0 for row in rows if row["rank"] < 8)
    full, half = rows[0], rows[1]
    assert (full["rank"], half["rank"]) == (8, 4) and 2 * full["error"] < half["error"]
    assert half["error"] - full["error"] > 30 * (full["error_se"] + half["error_se"])


def test_training_is_deterministic() -> None:
    once, again, other = (two_candidates.trained(*SHAPES[1], 30, 2000, seed=seed) for seed in (0, 0, 1))
    assert once == again and once[0] != other[0]


@pytest.mark.parametrize("place", [1, 2])
def test_a_falsified_table_gets_the_opposite_verdict(rows: list[Any], place: int) -> None:
    rows = [{**row, "error": min(row["error"], 0.05)} if row["rank"] == 8 else row for row in rows]
    assert two_candidates.STUDY.judge(rows).kind != REFUTED
    row = rows[place]
    shape, low, se = f"d=8 r={row['rank']} H={row['heads']}", two_candidates.bound(row), row["error_se"]
    for change in (
        {"error": low - 3.5 * se},
        {"layer_any": row["error"] + 4 * se},
        {"softmax_any": row["error"] + 4 * se},
        {"error": float("nan")},
        {"error_se": float("inf")},
    ):
        said = two_candidates.STUDY.judge([*rows[:place], {**row, **change}, *rows[place + 1 :]])
        assert said.kind == REFUTED and f"1 layers are not on or above the proved bound: {shape}" in said.words
    scalar = {**row, "softmax_scalar": row["error"] + 1, "layer_scalar": row["error"] + 1}
    said = two_candidates.STUDY.judge([rows[0], scalar])  # a bound for scalar V says nothing of free V
    assert said.kind != REFUTED and "1 are below the bound for scalar V" in said.words


def test_the_pair_layer_is_two_way_softmax_attention() -> None:
    source = torch.Generator().manual_seed(5)
    K, Q = (torch.randn((3, 6, 2), generator=source, dtype=torch.float64) for _ in range(2))
    V = torch.randn((3, 6, 6), generator=source, dtype=torch.float64)
    w, x2, y, f = two_candidates.samples(source, 50, 6, torch.float64)
    out = two_candidates.output((K, Q, V), w, x2, y)
    for n in range(50):
        tokens = torch.stack([w[n] + x2[n], x2[n]])
        weights = [torch.softmax(tokens @ K[h] @ (Q[h].T @ y[n]), 0) for h in range(3)]
        assert torch.allclose(out[n], sum(weights[h] @ tokens @ V[h] for h in range(3)), atol=1e-12)
        assert torch.allclose(f[n], tokens[(tokens - y[n]).norm(dim=1).argmax()], atol=1e-15)
        assert torch.allclose(tokens.norm(dim=1), torch.ones(2, dtype=torch.float64))


def test_the_closed_form_of_random_heads_is_that_of_the_constructed_network() -> None:
    from attnfun.kinds.neighbours.build.random_heads import hard_heads, overlap
    from attnfun.lab.studies.separations.random_features import closed_form, floors

    found = hard_heads(8, 24, "compromise", seed=0)
    k, q = found.keys[:, :, 0], found.queries[:, :, 0]
    alone, averaged, _ = closed_form(k, q, overlap(8, np.sum(k * q, axis=1))[0])
    assert averaged == pytest.approx(found.error, abs=1e-10) and alone > averaged
    seen = af.neighbours(8, method="random_heads", heads=24, sampler="compromise", seed=0).measured(8_000, seed=2)
    assert abs(seen.error - averaged) < 4 * seen.error_se
    for dim, floor in ((8, 0.1735), (16, 0.1780), (64, 0.1808)):  # computed elsewhere, by another quadrature
        assert floors(dim)[0] == pytest.approx(floor, abs=6e-5)
