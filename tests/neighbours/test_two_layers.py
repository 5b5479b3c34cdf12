"""Votes, tallies and scores: predicted and measured, and what is proved of every point."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.build import majority_vote, scores, tally
from attnfun.kinds.neighbours.measure import OVER_DRAWS

VOTES = {  # dim: right for H = d+1, 4d+1, d²+1, 4d²+1, 16d²+1, and d²+1 given a margin of 0.5/√d
    8: (0.709, 0.807, 0.854, 0.922, 0.960, 0.954),
    16: (0.694, 0.798, 0.886, 0.941, 0.970, 0.982),
    64: (0.684, 0.790, 0.939, 0.969, 0.985, 0.9996),
}


@pytest.mark.parametrize("dim", VOTES)
def test_accuracy_of_votes(dim: int) -> None:
    sizes = (dim + 1, 4 * dim + 1, dim**2 + 1, 4 * dim**2 + 1, 16 * dim**2 + 1)
    for heads, right in zip(sizes, VOTES[dim], strict=False):
        found, doubt = majority_vote.accuracy(dim, heads)
        assert abs(found - right) <= 0.6e-3 and doubt <= 1e-9
        assert abs(majority_vote.closed_accuracy(dim, heads) - found) <= (0.0025 if dim == 64 else 0.021)
    given, _ = majority_vote.accuracy(dim, dim**2 + 1, 0.5 / math.sqrt(dim))
    assert abs(given - VOTES[dim][5]) <= 0.6e-3


def test_accuracy_of_votes_is_the_mean_of_a_binomial_tail() -> None:
    t = 2 * np.random.default_rng(0).beta(3.5, 3.5, 400_000) - 1
    wrong = stats.binom.cdf(32, 65, 0.5 + np.arcsin(np.abs(t)) / math.pi)
    found, _ = majority_vote.accuracy(8, 65)
    assert abs(found - (1 - wrong.mean())) <= 4 * wrong.std() / math.sqrt(len(t))


def test_the_vote_of_the_network_is_the_vote_of_signs() -> None:
    net = af.neighbours(16, 3, "majority_vote", heads=129, seed=4)
    points = sphere.uniform_points(np.random.default_rng(1), 1000, 3, 16)
    q = majority_vote.directions(16, 129, 4)
    tallied = np.sign((points[:, 0] - points[:, 1]) @ q.T) * np.sign(points[:, 2] @ q.T)
    first = tallied.sum(axis=1) < 0
    expected = np.where(first[:, None], points[:, 0], points[:, 1])
    assert np.mean(np.abs(net(points) - expected).max(axis=1) <= 1e-6) >= 0.999  # softness at 1e8 shows at near ties
    seen = net.measured(6_000, seed=2)
    assert abs(seen.accuracy - (net.predicted.accuracy or 0)) <= 0.01
    assert net.cost.heads == 130 and net.cost.rank == 2


def test_votes_of_many_directions_are_as_often_right_as_predicted() -> None:
    rng = np.random.default_rng(5)
    q = majority_vote.directions(64, 1025, 0)
    points = sphere.uniform_points(rng, 6000, 3, 64)
    w = points[:, 0] - points[:, 1]
    votes = (np.sign(w @ q.T) * np.sign(points[:, 2] @ q.T)).sum(axis=1)
    right = np.mean(np.sign(votes) == np.sign(np.sum(w * points[:, 2], axis=1)))
    assert abs(right - majority_vote.accuracy(64, 1025)[0]) <= 0.01


@pytest.mark.parametrize("dim", [8, 16, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", ["furthest", "nearest"])
def test_the_tally_is_right_999_times_of_1000(dim: int, which: str) -> None:
    net = af.neighbours(dim, 3, "tally", eps=1e-3, which=which)
    said = net.predicted
    assert said.accuracy_proved is not None and said.accuracy_proved >= 0.999
    assert said.proved is not None and said.error is not None and said.error <= said.proved <= 1e-3
    assert net.cost.heads == dim + 1 and net.cost.rank == 1 and net.cost.layers == 2
    seen = net.measured(5_000, seed=6)
    assert seen.accuracy >= 0.999 and seen.error <= 1e-3


@pytest.mark.parametrize(("dim", "beta"), [(8, 0.3), (16, 1.0)])
def test_the_warm_tally_is_wrong_as_often_as_predicted(dim: int, beta: float) -> None:
    net = af.neighbours(dim, 3, "tally", beta=beta)
    seen = net.measured(40_000, seed=7)
    said = net.predicted
    assert said.accuracy is not None and said.error is not None
    slack = 0.05 * (1 - said.accuracy)  # the prediction is of first order
    assert abs(seen.accuracy - said.accuracy) <= 4 * seen.accuracy_se + slack
    assert abs(seen.error - said.error) <= 4 * seen.error_se + 0.05 * said.error


@pytest.mark.parametrize("beta", [3e-6, 1e-3, 0.1])
def test_no_tally_is_farther_off_than_its_bound(beta: float) -> None:
    """Random points, and points at a few axes, where the second order is largest."""
    dim = 6
    net = af.neighbours(dim, 3, "tally", beta=beta)
    rng = np.random.default_rng(8)
    points = rng.standard_normal((3000, 3, dim)) * rng.choice([1e-3, 1.0], (3000, 3, dim), p=[0.7, 0.3])
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    at = net.network.coordinates.index("scratch")
    for one in points[:400]:
        scratch = net.network.stream(net.tokens(one[None])[0])[1][2, at]
        assert abs(-3 * scratch / beta - (one[0] - one[1]) @ one[2]) <= 3 * beta + net.predicted.details["rounding"]


@pytest.mark.parametrize(("dim", "points"), [(4, 3), (6, 12), (16, 60)])
def test_no_score_is_farther_off_than_its_bound(dim: int, points: int) -> None:
    net = af.neighbours(dim, points, "scores", beta=100.0)
    rng = np.random.default_rng(9)
    at = net.network.coordinates.index("scratch")
    for _ in range(20):
        x = rng.standard_normal((points, dim)) * rng.choice([1e-3, 1.0], (points, dim), p=[0.6, 0.4])
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        found = net.network.stream(net.tokens(x[None])[0])[1][:-1, at]
        assert np.abs(found - x[:-1] @ x[-1]).max() <= scores.SCORE_ERROR + 8 * net.predicted.details["rounding"]


@pytest.mark.parametrize(
    ("dim", "points", "which"),
    [(16, 8, "furthest"), (8, 5, "nearest"), pytest.param(5, 40, "furthest", marks=pytest.mark.slow)],
)
def test_scores_have_the_error_of_a_head_of_full_rank(dim: int, points: int, which: str) -> None:
    net = af.neighbours(dim, points, "scores", eps=2e-2, which=which)
    said, seen = net.predicted, net.measured(5_000, seed=10)
    assert said.error is not None and said.proved is not None
    assert abs(seen.error - said.error) <= 4 * seen.error_se + said.uncertainty
    assert said.proved <= 2e-2
    assert net.cost.rank == 1 and net.cost.layers == 2 and net.cost.heads == 2 * dim + 1


def test_votes_for_an_error_and_what_they_cannot_do() -> None:
    net = af.neighbours(8, 3, "majority_vote", eps=0.3)
    heads = net.request["heads"]
    assert 2 * (1 - majority_vote.accuracy(8, heads)[0]) <= 0.3
    assert 2 * (1 - majority_vote.accuracy(8, int(heads * 0.97) | 1)[0]) > 0.3
    with pytest.raises(af.Infeasible) as refused:
        af.neighbours(8, 3, "majority_vote", eps=1e-3)
    assert refused.value.nearest is not None
    assert af.neighbours(8, 3, "tally", eps=1e-3).predicted.proved is not None  # where the tally does
    with pytest.raises(af.Infeasible) as drowned:
        af.neighbours(8, 3, "tally", eps=1e-9)
    assert drowned.value.nearest is not None
    nearest = drowned.value.nearest["eps"]
    assert tally.beta_for(8, nearest) >= tally.LEAST_BETA
    af.neighbours(8, 3, "tally", eps=nearest)


@pytest.mark.parametrize("which", ["furthest", "nearest"])
def test_scores_put_out_what_a_head_of_full_rank_does(which: str) -> None:
    points = sphere.uniform_points(np.random.default_rng(12), 100, 30, 8)
    one = af.neighbours(8, 30, "scores", beta=300.0, which=which)(points)
    other = af.neighbours(8, 30, "full_rank", beta=300.0, which=which)(points)[:, -1]
    assert np.abs(one - other).max() <= 300 * (scores.SCORE_ERROR + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_said_of_a_majority_vote_is_about_draws_and_not_about_this_network(seed, capsys):
    """One integral for all draws; what each gets right differs, so no line may call the integral its own."""
    rng = np.random.default_rng(seed)
    dim, heads = int(rng.integers(3, 12)), 2 * int(rng.integers(8, 40)) + 1
    one, other = (af.neighbours(dim, 3, "majority_vote", heads=heads, seed=int(s)) for s in rng.integers(1, 99, 2))
    assert one.predicted.error == other.predicted.error and one.predicted.of == OVER_DRAWS
    assert main(["neighbours", "--dim", str(dim), "--method", "majority-vote", "--heads", str(heads)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "mean over draws" in out and "exact integral" not in out
