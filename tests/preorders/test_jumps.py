"""Continuity of preorders: jumps are found with witnesses that replay, and continuous utilities raise no alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from attnfun.language.domain import Box
from attnfun.limits.preorders.jumps import (
    RESOLUTION,
    lexicographic_axes,
    misorder_probability,
    probe_keys,
    probe_queries,
)
from attnfun.limits.preorders.target import Preorder
from products import few

SQUARE, CUBE = Box.parse("x=0:1;y=0:1"), Box.parse("x=0:1;y=0:1;z=0:1")
COS, SIN = float(np.cos(0.7)), float(np.sin(0.7))


def by(score: Callable[[Any], Any], box: Box = SQUARE) -> Preorder:
    return Preorder(box, None, prefers=lambda a, b: bool(score(a) >= score(b)))


JUMPING: dict[str, Preorder] = {
    "lexicographic": by(tuple),
    "reversed and permuted": by(lambda k: (-k[1], k[0])),
    "of three": by(tuple, CUBE),
    "of three, permuted": by(lambda k: (k[2], -k[0], k[1]), CUBE),
    "a step and a slope": by(lambda k: np.floor(4 * k[0]) + k[1] / 2),
    "steps": by(lambda k: np.floor(4 * k[0])),
    "rotated": by(lambda k: (COS * k[0] + SIN * k[1], COS * k[1] - SIN * k[0])),
    "rotated, of three": by(lambda k: (0.3 * k[0] + 0.5 * k[1] - 0.7 * k[2], k[0], k[1]), CUBE),
    "on circles": by(lambda k: (k[0] ** 2 + k[1] ** 2, k[0])),
    "far from 0": by(tuple, Box.parse("x=1000:1001;y=-3:5")),
}

CONTINUOUS: dict[str, Preorder] = {
    "x + y/2": by(lambda k: k[0] + 0.5 * k[1]),
    "x + 1e-3 y": by(lambda k: k[0] + 1e-3 * k[1]),
    "x + 1e-12 y": by(lambda k: k[0] + 1e-12 * k[1]),
    "max": by(max),
    "min": by(min),
    "product": by(lambda k: k[0] * k[1]),
    "rotated": by(lambda k: COS * k[0] + SIN * k[1]),
    "steep": by(lambda k: np.tanh(1000 * (k[0] - k[1]))),
    "steeper": by(lambda k: np.tanh(1e6 * (k[0] - k[1]))),
    "rounded to a constant in part": by(lambda k: np.tanh(30 * (k[0] - k[1]))),
    "cut off": by(lambda k: max(k[0], 0.5)),
    "a steep ramp": by(lambda k: min(1.0, max(0.0, 1e4 * (k[0] - 0.5)))),
    "rounding noise": by(lambda k: np.log(np.exp(k[0]) * np.exp(k[1])) - k[1]),
    "in float32": by(lambda k: np.sin(np.float32(3) * k.astype(np.float32)).sum()),
    "waves": by(lambda k: np.sin(30 * k[0]) * np.cos(20 * k[1])),
    "a cube root": by(lambda k: np.cbrt(k[0] - 0.5) + k[1]),
    "of three": by(lambda k: np.exp(-3 * (k[0] - 0.3) ** 2 - (k[1] - k[2]) ** 2), CUBE),
    "one variable with a gap": by(lambda k: k[0] + np.floor(2 * k[0]), Box.parse("x=0:1")),
    "nothing matters": by(lambda k: 0.0),
}


@pytest.mark.parametrize("name", JUMPING)
@pytest.mark.parametrize("seed", range(2))
def test_a_jump_is_found_and_its_witness_replays(name: str, seed: int) -> None:
    preorder = JUMPING[name]
    finding = probe_keys(preorder, seed)
    assert finding.status == "violated" and finding.witness is not None
    a, b, *chain = (np.array(k) for k in finding.witness.keys)
    width = preorder.keys.high_array - preorder.keys.low_array
    assert np.max(np.abs(a - b) / width) <= 2.0**-30 and preorder.keys.contains(np.stack([a, b, *chain])).all()
    assert all(preorder.compare(None, hi, lo) > 0 for hi, lo in pairwise(chain))
    assert preorder.weakly(None, a, chain[0]) and preorder.weakly(None, chain[-1], b)
    assert np.max(np.abs(chain[0] - chain[-1]) / width) >= 2.0**-5
    assert finding.witness.check(preorder)
    assert finding.probes < 150_000


@pytest.mark.parametrize("name", few(CONTINUOUS, 8))
def test_no_false_alarm(name: str) -> None:
    finding = probe_keys(CONTINUOUS[name], 0, 30)
    assert finding.status == "sampled" and finding.witness is None
    assert finding.text.startswith("sampled: no violation found in ")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_no_false_alarm_for_many_seeds(name: str) -> None:
    assert all(probe_keys(CONTINUOUS[name], seed).status == "sampled" for seed in range(1, 40))


def test_below_the_resolution_the_statement_stays_true() -> None:
    """x + τ y with τ far below 2^-45 is reported, and its Lipschitz statement holds for it."""
    tau = RESOLUTION / 64
    preorder = by(lambda k: k[0] + tau * k[1])
    finding = probe_keys(preorder, 0)
    assert finding.witness is not None and finding.witness.distance is not None
    a, b, *chain = (np.array(k) for k in finding.witness.keys)
    u = [k[0] + tau * k[1] for k in (a, b, *chain)]
    assert u[0] - u[1] >= u[2] - u[-1] > 0
    for above in (2e-13, 1e-12):
        assert probe_keys(by(lambda k, t=above: k[0] + t * k[1]), 0).status == "sampled"  # type: ignore[misc]


def test_forged_witnesses_do_not_pass() -> None:
    preorder = JUMPING["lexicographic"]
    witness = probe_keys(preorder, 0).witness
    assert witness is not None and witness.check(preorder)
    a, b, *chain = witness.keys
    assert witness.distance is not None
    forgeries = [
        replace(witness, keys=(b, a, *chain)),
        replace(witness, keys=(a, b, *chain[::-1])),
        replace(witness, keys=(a, b, chain[0], chain[0])),
        replace(witness, keys=(a, b)),
        replace(witness, distance=witness.distance / 2),
        replace(witness, kind="cycle"),
        replace(witness, kind="nonsense"),
    ]
    assert not any(forged.check(preorder) for forged in forgeries)
    assert not witness.check(CONTINUOUS["x + y/2"])


def test_a_utility_expression_has_its_witness_proved_in_balls() -> None:
    jump = Preorder.read("sign(x - 0.5) + y/2", None, "x=0:1;y=0:1", None)
    witness = probe_keys(jump, 0, 20).witness
    assert witness is not None and witness.check(jump)
    a, _, *chain = (np.array(k) for k in witness.keys)
    assert jump.gap(None, a, chain[0])[0] >= 0
    noise = Preorder.read("(x + y) - y", None, "x=0:1;y=0:1", None)
    low, high = noise.gap(None, np.array([0.1, 0.7]), np.array([0.1, 0.2]))
    assert low == 0 == high  # float64 sees a difference, balls do not


def test_lexicographic_orders_are_recognised() -> None:
    assert lexicographic_axes(JUMPING["lexicographic"], 0) == ((0, 1), (1, 1))
    assert lexicographic_axes(JUMPING["of three, permuted"], 0) == ((2, 1), (0, -1), (1, 1))
    assert lexicographic_axes(JUMPING["rotated"], 0) is None
    assert lexicographic_axes(CONTINUOUS["x + 1e-3 y"], 0) is None


def with_query(score: Callable[[Any, Any], Any]) -> Preorder:
    box = Box.parse("q=-1:1")
    return Preorder(SQUARE, box, prefers=lambda q, a, b: bool(score(q, a) >= score(q, b)))


def test_flips_of_queries_are_undecided_and_never_violations() -> None:
    flips = probe_queries(with_query(lambda q, k: (q[0] - 1 / 3) * k[0]), 0)
    assert flips.status == "undecided" and flips.witness is not None
    assert flips.witness.check(with_query(lambda q, k: (q[0] - 1 / 3) * k[0]))
    assert not flips.witness.check(with_query(lambda q, k: (q[0] - 1 / 2) * k[0]))
    calm = probe_queries(with_query(lambda q, k: -((q[0] - k[0]) ** 2) - (q[0] + k[1]) ** 2), 0)
    assert calm.status == "sampled" and calm.probes > 1000
    assert probe_queries(by(max), 0).status == "not probed"


@pytest.mark.parametrize("tau", [0.05, 0.3, 1.0])
def test_the_probability_of_a_misorder(tau: float) -> None:
    rng = np.random.default_rng(5)
    A, B = rng.random((2, 400_000, 2))
    wrong = (A[:, 0] > B[:, 0]) != (A @ [1, tau] > B @ [1, tau])
    expected = misorder_probability(tau)
    assert abs(wrong.mean() - expected) <= 5 * np.sqrt(expected / len(A))
