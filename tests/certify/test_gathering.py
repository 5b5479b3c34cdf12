"""Gather heads: the soft maximum's constant is attained, and no bound is below what a hunt finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.kinds.sequence.network import GatherHead
from attnfun.kinds.sequence.prove_gathering import Known, aggregate, copies, largest_lack, widened

BETA = 50.0


@pytest.mark.parametrize("n", [2, 3, 6, 64])
def test_what_the_soft_maximum_lacks_is_attained(n: int) -> None:
    c = largest_lack(n)
    gaps = np.full(n - 1, 1 + c)
    lack = float((gaps * np.exp(-gaps)).sum() / (1 + np.exp(-gaps).sum()))
    assert lack <= c
    assert lack == pytest.approx(c, rel=1e-12)
    rng = np.random.default_rng(n)
    for scale in (0.1, 1.0, 5.0):
        t = scale * rng.exponential(size=(4000, n - 1))
        assert ((t * np.exp(-t)).sum(1) / (1 + np.exp(-t).sum(1))).max() <= c


def head(key: Any, value: Any, offset: float = 0.0, scores: Any = None) -> GatherHead:
    key, value = np.array(key, dtype=float), np.array(value, dtype=float)
    return GatherHead("h", ("out",), scores, key, value[:, None], np.array([offset]))


def known(low: float, high: float, error: float = 0.0) -> Known:
    return widened(low, high, error, False, False)


AGGREGATES = {
    "mean": (head([0, 0], [1, 0]), lambda s, v: v.mean(1)),
    "sum": (head([0, 0], [5, 0]), lambda s, v: v.sum(1)),
    "max": (head([BETA, 0], [1, 0], largest_lack(5) / (2 * BETA)), lambda s, v: v.max(1)),
    "min": (head([-BETA, 0], [1, 0], -largest_lack(5) / (2 * BETA)), lambda s, v: v.min(1)),
    "softmax_mean": (head([0, 1], [1, 0]), lambda s, v: (np.exp(s) * v).sum(1) / np.exp(s).sum(1)),
}


@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("spoil", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_no_aggregate_is_farther_off_than_its_bound(kind: str, spoil: float, error: float) -> None:
    """Values in [-1, 1], scores in [-2, 2], both off by up to `error`, weights spoilt (zeros among them)."""
    one, truth = AGGREGATES[kind]
    rng = np.random.default_rng(3)
    shaken = GatherHead(
        "h", ("out",), None, one.key * (1 + spoil) + spoil * 0.3, one.value * (1 - spoil) + spoil, one.offset
    )
    places = (1, 0) if kind == "softmax_mean" else (0,)
    stream = [known(-1, 1, error), known(-2, 2, error)]
    found = aggregate(shaken, kind, places, stream, "float64", 5, 10)
    v, s = rng.uniform(-1, 1, (6000, 5)), rng.uniform(-2, 2, (6000, 5))
    v[:2000] = np.sign(v[:2000])
    v[2000:4000] = v[2000:4000, :1] - rng.uniform(0, 4 / BETA, (2000, 5))
    v = np.clip(v, -1, 1)
    v[4000:5000, 1:] = np.clip(v[4000:5000, :1] - (1 + largest_lack(5)) / BETA, -1, 1)
    Z = np.stack([v + error * rng.choice([-1, 1], v.shape), s + error * rng.choice([-1, 1], s.shape)], axis=2)
    worst = float(np.abs(shaken.run(Z)[:, :, 0] - truth(s, v)[:, None]).max())
    assert worst <= found.error
    assert found.error <= 12 * worst + 1e-13
    computed = shaken.run(Z)
    assert found.least <= computed.min() and computed.max() <= found.most


def test_a_copy_is_read_from_its_weights() -> None:
    scores = np.full((3, 3), -900.0)
    scores[[0, 1, 2], [1, 0, 2]] = 0.0
    good = GatherHead("h", ("a", "b"), scores, np.zeros(2), np.eye(2), np.zeros(2))
    sources, found = copies(good, [known(-1, 1), known(0, 4)], 2, "float64", 3, 0)
    assert sources == (1, 0, 2)
    assert max(one.error for one in found) < 1e-13
    soft = GatherHead("h", ("a", "b"), scores / 900, np.zeros(2), np.eye(2), np.zeros(2))
    _, found = copies(soft, [known(-1, 1), known(0, 4)], 2, "float64", 3, 0)
    Z = np.random.default_rng(0).choice([0.0, 1.0], (200, 3, 2)) * [2, 4] - [1, 0]
    assert np.abs(soft.run(Z) - Z[:, [1, 0, 2]]).max() <= found[1].error


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (head([0, 0], [0, 1]), "mean"),  # another coordinate
        (head([-BETA, 0], [1, 0]), "max"),  # looks for the minimum
        (head([0, 0], [1, 0]), "max"),  # does not look at all
        (head([0, 0], [1, 0], scores=np.zeros((5, 5))), "mean"),  # positions in an aggregate
        (head([math.inf, 0], [1, 0]), "max"),
        (head([1e305, 0], [1, 0]), "max"),
        (head([math.nan, 0], [1, 0]), "max"),
        (head([0, 3], [1, 0]), "mean"),  # far from uniform
    ],
)
def test_heads_that_are_no_such_aggregate_are_undecided(bad: GatherHead, kind: str) -> None:
    with pytest.raises(Undecided):
        aggregate(bad, kind, (0,), [known(-1, 1), known(-1e3, 1e3)], "float64", 5, 0)


def test_averages_of_numbers_that_are_not_negative_are_not_either() -> None:
    """So that a root of a mean is defined, however the mean is rounded."""
    net = af.sequence("sqrt(mean(x))", tokens=3, domain={"x": (0, 1)}, eps=1e-3)
    assert net.certificate.status == "proved"
    X = np.zeros((1, 3, 1))
    assert np.abs(net(X) - net.target.values(X)).max() <= net.certificate.error[1]
