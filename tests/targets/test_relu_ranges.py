"""Ranges of the units of ReLU networks: no point leaves them, not even in exact arithmetic at the ends they claim."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from attnfun.language import ArrayAlgebra, parse, run_all
from attnfun.language.domain import Box
from attnfun.language.mlp import Linear, Mlp
from attnfun.language.relu_ranges import ReluRanges


def random_mlp(sizes: list[int], seed: int, scale: float = 1.0) -> Mlp:
    rng = np.random.default_rng(seed)
    pairs = pairwise(sizes)
    maps = tuple(Linear(scale * rng.normal(size=(b, a)) / np.sqrt(a), scale * rng.normal(size=b) / 3) for a, b in pairs)
    return Mlp(maps, (True,) * (len(maps) - 1) + (False,))


@pytest.mark.parametrize("seed", range(12))
def test_no_point_leaves_the_ranges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 6)), *(int(v) for v in rng.integers(2, 20, size=int(rng.integers(1, 5)))), 2]
    mlp = random_mlp(sizes, seed, scale=float(rng.choice([0.3, 1.0, 3.0])))
    middle, half = rng.normal(size=sizes[0]), rng.choice([1e-3, 0.1, 1.0, 10.0], size=sizes[0])
    box = mlp.box([(m - h, m + h) for m, h in zip(middle, half, strict=True)])
    graph = mlp.graph(box.names)
    ranges = ReluRanges.of(graph, box)
    assert ranges is not None
    X = box.probe(4000, rng)
    values = run_all(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})
    signs = 0
    for unit in ranges.network.units:
        z = np.asarray(values[unit.argument])
        low, high = ranges(unit.argument)
        slack = 1e-13 * max(abs(low), abs(high))  # of the floating-point values
        assert low - slack <= z.min()
        assert z.max() <= high + slack
        sign = ranges.sign(unit.argument)
        signs += sign != 0
        assert sign == 0 or (sign * z >= -slack).all()
    for output in graph.outputs:
        low, high = ranges(output)
        slack = 1e-13 * max(abs(low), abs(high))
        assert low - slack <= np.min(values[output])
        assert np.max(values[output]) <= high + slack


@pytest.mark.parametrize("seed", range(20))
def test_ends_hold_in_exact_arithmetic(seed: int) -> None:
    """One layer attains its ends at corners: rational arithmetic there must not pass them, whatever cancels."""
    rng = np.random.default_rng(seed)
    d = 4
    weight = rng.normal(size=(6, d)) * 10.0 ** rng.uniform(-12, 12, size=(6, d))
    bias = rng.normal(size=6) * 10.0 ** rng.uniform(-12, 12, size=6)
    mlp = Mlp((Linear(weight, bias), Linear(np.ones((1, 6)), np.zeros(1))), (True, False))
    ends = [(float(a), float(a + abs(b) + 1e-3)) for a, b in rng.normal(size=(d, 2))]
    box = mlp.box(ends)
    ranges = ReluRanges.of(mlp.graph(box.names), box)
    assert ranges is not None
    rows = {tuple(sorted(unit.form.weights.values())): unit for unit in ranges.network.units}
    for w, b in zip(weight, bias, strict=True):
        unit = rows[tuple(sorted(Fraction(float(v)) for v in w))]
        found = [
            Fraction(float(b)) + sum(Fraction(float(v)) * Fraction(x) for v, x in zip(w, corner, strict=True))
            for corner in product(*ends)
        ]
        low, high = ranges(unit.argument)
        assert Fraction(low) <= min(found)
        assert max(found) <= Fraction(high)
        size = sum(abs(v) * max(abs(a), abs(c)) for v, (a, c) in zip(w, ends, strict=True)) + abs(b)
        assert high - float(max(found)) <= 1e-12 * size  # and it is tight


def test_a_unit_that_only_touches_zero_keeps_its_sign() -> None:
    box = Box.parse("x=0:1;y=0:1")
    ranges = ReluRanges.of(parse("relu(x + y) + relu(-2*x) + relu(x - y) + relu(x + y - 1e-30)", box.names), box)
    assert ranges is not None
    signs = {ranges.network.graph.text(unit.argument): ranges.sign(unit.argument) for unit in ranges.network.units}
    assert signs["x - y"] == 0
    assert signs["x + y - 1e-30"] == 0  # it is negative at the origin


def test_huge_weights_give_no_bound_rather_than_a_wrong_one() -> None:
    box = Box.parse("x=-1e100:1e100")
    ranges = ReluRanges.of(parse("relu(1e250*relu(1e250*x) - 1e250*x)", box.names), box)
    assert ranges is not None
    low, high = ranges(ranges.network.units[-1].argument)
    assert not low > 0
    assert high == np.inf


def test_relaxations_beat_plain_intervals() -> None:
    mlp = random_mlp([8, 32, 32, 1], 0)
    box = mlp.box((-1, 1))
    ranges = ReluRanges.of(mlp.graph(box.names), box)
    assert ranges is not None
    first, second = mlp.maps[0], mlp.maps[1]
    reach = np.abs(first.weight).sum(axis=1)
    top, bottom = np.maximum(first.bias + reach, 0), np.maximum(first.bias - reach, 0)
    plain = np.maximum(second.weight * top, second.weight * bottom).sum(axis=1) + second.bias
    found = [ranges.high[j] for j, unit in enumerate(ranges.network.units) if ranges.network.levels[unit.node] == 2]
    assert sum(found) < 0.8 * plain.sum()
