"""The proof of tables holds for whatever weights: random ones, spoilt ones, far keys, equal numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.table_axes import hermite, sup_errors
from attnfun.certify.view import LineAxis, Undecided
from attnfun.kinds.function.prove import prove
from attnfun.language.function import Function
from attnfun.language.table import Table
from attnfun.network import Axis, Head, Layer
from products import few

Array = Any


def softmax_at(axis: LineAxis, x: Array) -> Array:
    logits = np.longdouble(axis.w) * x[:, None] * axis.slopes + np.longdouble(axis.c) * axis.slopes + axis.biases
    terms = np.exp(logits - logits.max(axis=1, keepdims=True))
    return terms / terms.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", few(range(40), 10))
def test_random_axes_are_never_further_off_than_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, keys, columns, r = (
        int(rng.integers(2, 9)),
        int(rng.integers(1, 30)),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 3)),
    )
    knots = np.cumsum(10 ** rng.uniform(-2, 0.5, n))
    jets = rng.normal(size=(n, r, columns)) * 10 ** rng.uniform(-3, 3)
    steep = 10 ** rng.uniform(-1, 4)
    slopes = rng.permutation(np.cumsum(rng.exponential(size=keys))) * steep
    axis = LineAxis(0, float(rng.choice([-1.5, 1.0, 2.0])), float(rng.normal()), slopes, rng.normal(size=keys) * steep)
    values = rng.normal(size=(keys, columns)) * 10 ** rng.uniform(-2, 3)
    low, high = float(knots[0]), float(knots[-1])
    bound, shown, where = sup_errors(axis, values, hermite(knots, jets), knots, low, high, 0.0, False)
    x = np.concatenate([np.linspace(low, high, 20_001), knots, [where]])
    truth = np.stack([Table((knots,), jets[..., c]).at(x) for c in range(columns)], axis=1)
    off = np.abs(softmax_at(axis, x) @ values - truth)
    size = np.abs(values).max() + np.abs(truth).max()
    assert off.max() <= bound + 1e-11 * size * steep
    assert shown <= bound and bound <= 1.2 * off.max() + 1e-9 * size * steep
    together, _, _ = sup_errors(axis, values, hermite(knots, jets), knots, low, high, 0.0, True)
    assert off.sum(axis=1).max() <= together + 1e-11 * size * steep


@pytest.mark.parametrize("seed", few(range(12), 4))
def test_spoilt_heads_of_two_variables_keep_to_their_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes, Z = (np.sort(rng.uniform(0, 1, 5)), np.sort(rng.uniform(0, 1, 4))), rng.normal(size=(5, 4))
    target = af.table(axes, Z, kind=str(rng.choice(["linear", "cubic"])))
    net = af.compile(target, eps=0.05).network
    (head,) = net.layers[0].attention
    values = head.values + rng.choice([0, 1e-3, 1.0]) * rng.normal(size=head.values.shape)
    first = head.axes[0]
    moved = Axis(
        first.query,
        first.offset,
        first.slopes,
        first.biases + rng.choice([0, 1e-6, 1e-2]) * rng.normal(size=first.keys),
    )
    other = Head(head.name, (moved, head.axes[1]), values, head.writes)
    spoilt = replace(net, layers=(Layer((other,)),))
    certificate = prove(spoilt, Function.on(target, None), eps=None)
    X = Function.on(target, None).box.probe(30_000, rng)
    off = np.abs(spoilt.run(X)[:, 0] - target(*X.T)).max()
    assert certificate.status in (Status.BOUNDED, Status.UNDECIDED)
    assert certificate.status is Status.UNDECIDED or off <= certificate.error[1] + 1e-12


def test_beyond_the_knots_nothing_is_proved_of_several_variables() -> None:
    axes = np.linspace(0, 1, 4), np.linspace(0, 1, 3)
    target = af.table(axes, np.random.default_rng(1).normal(size=(4, 3)), kind="cubic")
    net = af.compile(target, eps=0.05).network
    wide = Function.on(target.graph(("x", "y")), "x=0:1;y=0:1.5")
    certificate = prove(replace(net, box=(net.low, np.array([1.0, 1.5]))), wide, eps=0.05)
    assert certificate.method != "tables" and certificate.status is not Status.PROVED


def test_keys_of_one_slope_are_undecided() -> None:
    axis = LineAxis(0, 1.0, 0.0, np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    knots = np.array([0.0, 1.0])
    with pytest.raises(Undecided):
        sup_errors(axis, np.ones((2, 1)), hermite(knots, np.zeros((2, 1, 1))), knots, 0.0, 1.0, 0.0, False)
