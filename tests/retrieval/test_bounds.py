"""The formulas of retrieval: attained by adversaries, violated by nobody, rounded outward, and odd requests refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import attnfun as af
from attnfun.kinds.retrieval.prove_bounds import clopper_pearson, uniform_failure, winner_and_losers
from attnfun.language import precision
from products import drawn

BITS = 300


def softmax(scores: list[arb], beta: float) -> list[arb]:
    top = max(scores, key=float)
    terms = [(arb(beta) * (s - top)).exp() for s in scores]
    total = sum(terms, arb(0))
    return [t / total for t in terms]


def adversary(n: int, margin: float, error: float) -> tuple[list[arb], list[arb]]:
    """Utilities and scores: the best key is marked down by the error, every other one marked up."""
    m, e = arb(margin), arb(error)
    return [arb(0)] + [-m] * (n - 1), [-e] + [e - m] * (n - 1)


@pytest.mark.parametrize(
    ("n", "margin", "error", "beta"),
    [(2, 0.1, 0.01, 30.0), (64, 0.5, 0.2, 3.0), (1024, 1e-3, 1e-4, 17297.0), (9, 0.3, 0.0, 1e-3), (5, 0.1, 0.2, 7.0)],
)
def test_an_adversary_attains_the_winner_weight(n: int, margin: float, error: float, beta: float) -> None:
    bound = af.retrieval_certificate(n, margin, error, beta)
    with precision(BITS):
        weight = softmax(adversary(n, margin, error)[1], beta)[0]
        assert bound.winner_weight is not None and bound.value_error is not None
        assert arb(bound.winner_weight) <= weight
        assert abs(arb(bound.winner_weight) - weight) < 1e-12
        assert arb(bound.value_error) >= 1 - weight
        assert abs(arb(bound.value_error) - (1 - weight)) < 1e-12


@pytest.mark.parametrize(("error", "beta"), [(0.01, 30.0), (0.2, 3.0), (1e-4, 17297.0), (1e-9, 1.0), (0.5, 50.0)])
def test_an_adversary_attains_the_total_variation(error: float, beta: float) -> None:
    bound = af.retrieval_certificate(2, None, error, beta, spread=3.0)
    with precision(BITS):
        half = arb(error) / 2
        p, q = softmax([-half, half], beta), softmax([half, -half], beta)
        tv = sum((abs(a - b) for a, b in zip(p, q, strict=True)), arb(0)) / 2
        assert arb(bound.tv) >= tv and abs(arb(bound.tv) - tv) < 1e-12
        moved = abs(3 * p[0] - 3 * q[0])  # the values 3 and 0
        assert arb(bound.softmax_error) >= moved and abs(arb(bound.softmax_error) - moved) < 1e-12


def test_the_regret_of_the_pick_is_attained() -> None:
    """Two keys 2e apart whose scores tie: picking the wrong one loses 2e."""
    assert af.retrieval_certificate(2, None, 0.125, 1.0).regret == 0.25


def violations(rng: np.random.Generator) -> int:
    n = int(rng.integers(1, 25))
    beta, error = float(10.0 ** rng.uniform(-2, 4)), float(10.0 ** rng.uniform(-6, 0))
    true = np.sort(rng.normal(size=n) * 10.0 ** rng.uniform(-4, 0))[::-1]
    off = error * (rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else rng.uniform(-1, 1, n))
    values = rng.normal(size=n)
    with precision(200):
        a = [arb(float(v)) for v in true]
        scores = [x + arb(float(o)) for x, o in zip(a, off, strict=True)]
        spread = math.nextafter(float(np.ptp(values)), math.inf)
        margin = float(true[0] - true[1]) * (1 - 1e-15) if n > 1 else math.inf
        bound = af.retrieval_certificate(n, margin, error, beta, spread=spread)
        w, exact = softmax(scores, beta), softmax(a, beta)
        pick = max(range(n), key=lambda j: float(scores[j]))
        loss = sum((p * (a[0] - x) for p, x in zip(w, a, strict=True)), arb(0))
        tv = sum((abs(p - q) for p, q in zip(w, exact, strict=True)), arb(0)) / 2
        out, other = (sum((p * arb(float(v)) for p, v in zip(ws, values, strict=True)), arb(0)) for ws in (w, exact))
        assert bound.winner_weight is not None and bound.value_error is not None
        broken = [
            w[0] < bound.winner_weight,
            abs(out - arb(float(values[0]))) > bound.value_error,
            a[0] - a[pick] > bound.regret,
            loss > bound.softmax_regret,
            tv > bound.tv,
            abs(out - other) > bound.softmax_error,
        ]
        if bound.beta_needed is not None and bound.beta_needed <= beta:
            broken.append(1 - w[0] > bound.delta)
    return sum(map(bool, broken))


def test_two_thousand_random_trials_without_a_violation() -> None:
    rng = np.random.default_rng(11)
    assert sum(violations(rng) for _ in range(2000)) == 0


@drawn(150)
@given(
    n=st.integers(1, 10**9),
    margin=st.floats(0, 1e300),
    error=st.floats(0, 1e300),
    beta=st.floats(1e-300, 1e300),
    delta=st.floats(1e-12, 0.999),
)
def test_bounds_are_never_nan_and_stay_in_their_range(
    n: int, margin: float, error: float, beta: float, delta: float
) -> None:
    bound = af.retrieval_certificate(n, margin, error, beta, delta=delta)
    assert bound.winner_weight is not None and bound.value_error is not None and bound.beta_needed is not None
    assert 0 <= bound.winner_weight <= 1 and 0 <= bound.value_error <= 1 and 0 <= bound.tv <= 1
    assert bound.winner_weight + winner_and_losers(n, margin, error, beta)[1] <= 1 + 2.0**-52
    assert bound.regret >= 0 and bound.softmax_regret >= 0 and bound.beta_needed >= 0
    assert 0 <= bound.failure_uniform <= 1


@drawn(60)
@given(n=st.integers(2, 10**6), margin=st.floats(1e-6, 10), share=st.floats(0, 0.49), delta=st.floats(1e-9, 0.5))
def test_the_needed_beta_gives_the_winner_its_weight(n: int, margin: float, share: float, delta: float) -> None:
    bound = af.retrieval_certificate(n, margin, share * margin, delta=delta)
    assert winner_and_losers(n, margin, share * margin, bound.beta)[1] <= delta * (1 + 1e-14)


def test_the_beta_of_the_worked_example() -> None:
    """n = 1024, m = 1e-3, e = 1e-4, δ = 1e-3: log(1023·999)/8e-4."""
    bound = af.retrieval_certificate(1024, 1e-3, 1e-4)
    assert bound.beta_needed == pytest.approx(math.log(1023 * 999) / 8e-4, rel=1e-12)
    assert round(bound.beta_needed or 0) == 17297


@pytest.mark.parametrize(("n", "error"), [(2, 0.1), (128, 1e-3), (20, 0.02)])
def test_the_failure_probability_of_uniform_utilities_is_what_is_seen(n: int, error: float) -> None:
    u = np.sort(np.random.default_rng(0).random((15_000, n)), axis=1)
    seen = int(np.count_nonzero(u[:, -1] - u[:, -2] <= 2 * error))
    low, high = clopper_pearson(seen, len(u), 1 - 1e-7)
    assert low <= uniform_failure(n, error) <= high


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_cover_every_probability_often_enough(confidence: float) -> None:
    """Exact coverage: the chance that the interval of a binomial count holds p is at least the confidence."""
    N = 13
    ends = [clopper_pearson(k, N, confidence) for k in range(N + 1)]
    for p in np.linspace(0, 1, 101):
        held = sum(math.comb(N, k) * p**k * (1 - p) ** (N - k) for k, (a, b) in enumerate(ends) if a <= p <= b)
        assert held >= confidence - 1e-12


@pytest.mark.parametrize(("k", "N"), [(0, 1), (1, 1), (0, 4000), (80, 4000), (4000, 4000), (5, 10**6)])
def test_intervals_agree_with_scipy_and_never_lie_inside(k: int, N: int) -> None:
    from scipy.stats import binomtest

    low, high = clopper_pearson(k, N, 0.95)
    other = binomtest(k, N).proportion_ci(0.95, method="exact")
    assert low == pytest.approx(other.low, rel=1e-8, abs=1e-12) and high == pytest.approx(other.high, rel=1e-8)
    assert 0 <= low <= k / N <= high <= 1


def test_one_key_wins_always() -> None:
    bound = af.retrieval_certificate(1, None, 0.5, 1.0)
    assert (bound.tv, bound.regret, bound.softmax_regret, bound.softmax_error) == (0, 0, 0, 0)
    assert af.retrieval_certificate(1, math.inf, 0.5, 1.0).winner_weight == 1


def test_no_margin_above_twice_the_error_means_no_beta() -> None:
    assert af.retrieval_certificate(5, 0.2, 0.1, 3.0).beta_needed == math.inf
    with pytest.raises(af.InvalidRequest, match="beta cannot be chosen"):
        af.retrieval_certificate(5, 0.2, 0.1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 0},
        {"n": 2.5},
        {"n": True},
        {"n": "3"},
        {"margin": -1.0},
        {"margin": math.nan},
        {"error": math.nan},
        {"error": math.inf},
        {"error": -1e-9},
        {"beta": 0.0},
        {"beta": math.nan},
        {"beta": math.inf},
        {"beta": 10**400},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"spread": math.nan},
        {"failures": 3},
        {"failures": 3, "queries": 2},
        {"failures": -1, "queries": 2},
        {"failures": 1, "queries": 2, "confidence": 1.0},
        {"failures": 1, "queries": 2, "confidence": math.nan},
    ],
)
def test_what_means_nothing_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(af.InvalidRequest) as why:
        af.retrieval_certificate(**{"n": 4, "margin": 0.1, "error": 0.01, "beta": 5.0, **arguments})  # type: ignore[arg-type]
    assert "\n" not in str(why.value)
