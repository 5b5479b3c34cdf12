"""Products of factors of very unequal sizes: what underflows on the way must not be missing from a bound."""

from __future__ import annotations

import mpmath
import numpy as np

import attnfun as af
from attnfun.kinds.relation.features import Block, Features
from attnfun.kinds.relation.prove_features import side_errors
from attnfun.kinds.relation.prove_towers import tower_errors
from attnfun.kinds.relation.towers import Keys, TowerWeights, tower_network
from attnfun.network import evaluate

SIZES = (1e-200, 1e-200, 1e300)  # 1e-100 together, and 0 in float64 from left to right


def test_factors_whose_bounds_underflow() -> None:
    left = {"a": (380, 380.1), "b": (380, 380.1), "m": (700, 700.1)}
    right = {"c": (1, 1.001), "d": (1, 1.001), "f": (1, 1.0001)}
    try:
        found = af.relation("exp(-a*c)*exp(-b*d)*exp(m*f)", left, right, 1e-30, features_only=True)
    except af.Infeasible:
        return  # honest
    X, Y = (box.probe(20, np.random.default_rng(0)) for box in (found.target.left, found.target.right))
    seen = found.pairs(X[:20], Y[:20])
    with mpmath.workprec(200):
        for x, y, one in zip(X, Y, seen, strict=False):
            a, b, m, c, d, f = (mpmath.mpf(float(v)) for v in (*x, *y))
            assert abs(mpmath.exp(m * f - a * c - b * d) - mpmath.mpf(float(one))) <= found.certificate.error[1]


def constants() -> Features:
    """Three left variables that are not used, a constant factor each."""
    box = np.zeros(3), np.ones(3)
    blocks = tuple(Block((k,), (k,), np.full((1, 1), s), np.ones((1, 1))) for k, s in enumerate(SIZES))
    return Features(blocks, np.zeros((1, 3), dtype=np.int64), box, box)


def test_features_whose_products_underflow() -> None:
    off, size = side_errors(constants(), "left")
    assert constants().side("left", np.zeros((1, 3)))[0, 0] == 0.0
    assert off[0] >= 1e-100 and size[0] >= 1e-100


def test_heads_whose_values_underflow() -> None:
    one = Keys(1.0, 0.0, np.zeros(1), np.zeros(1))
    weights = TowerWeights((one,) * 3, tuple(np.full((1, 1), s) for s in SIZES))
    network = tower_network(constants(), "left", weights, ("a", "b", "c"))
    assert evaluate(network, np.zeros((1, 3)))[0, 0] == 0.0
    off, size = tower_errors(constants(), "left", weights, ("a", "b", "c"))
    assert off[0] >= 1e-100 and size[0] >= 1e-100


def test_two_layers_whose_scales_underflow() -> None:
    one = Keys(1.0, 0.0, np.zeros(1), np.zeros(1))
    blocks = (*constants().blocks[:2], Block((), (2,), np.array([1e300]), np.ones((1, 1))))
    box = np.zeros(2), np.ones(2)
    features = Features(blocks, np.zeros((1, 3), dtype=np.int64), box, (np.zeros(3), np.ones(3)))
    values = (np.full((1, 1), np.arctanh(0.5)),) * 2
    weights = TowerWeights((one,) * 2, values, None, ((0,), (1,)), np.full(2, 0.5e200))
    assert evaluate(tower_network(features, "left", weights, ("a", "b")), np.zeros((1, 2)))[0, 0] == 0.0
    off, size = tower_errors(features, "left", weights, ("a", "b"))
    assert off[0] >= 1e-100 and size[0] >= 1e-100
