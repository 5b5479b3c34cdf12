"""What is predicted of random directions: the mean over draws, and never said of the network that was drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.build import majority_vote
from attnfun.kinds.neighbours.measure import OVER_DRAWS, THIS_NETWORK


def own_errors(dim: int, heads: int, draws: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The error of each of many draws, 2 P(wrong), with its standard error, by counting signs of votes."""
    P = sphere.uniform_points(np.random.default_rng(0), points, 3, dim)
    w, y = P[:, 0] - P[:, 1], P[:, 2]
    right = np.sign(np.sum(w * y, axis=1))
    wrong = []
    for seed in range(draws):
        q = majority_vote.directions(dim, heads, seed)
        wrong.append(np.mean(np.sign((np.sign(w @ q.T) * np.sign(y @ q.T)).sum(axis=1)) != right))
    chance = np.array(wrong)
    return 2 * chance, 2 * np.sqrt(chance * (1 - chance) / points)


@pytest.mark.parametrize("seed", range(3))
def test_a_vote_is_predicted_in_the_mean_over_draws_and_not_for_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dim, heads = int(rng.integers(3, 6)), 2 * int(rng.integers(2, 12)) + 1
    said = majority_vote.predict(dim, heads)
    assert said.of == OVER_DRAWS and said.proved is None and "mean over draws" in said.how
    own, se = own_errors(dim, heads, 120, 5000)
    spread = own.std(ddof=1)
    # the points are the same for all draws: their share in the error of the mean is that of one network
    assert abs(own.mean() - said.error) <= 5 * (spread / np.sqrt(len(own)) + se.mean())
    assert np.abs((own - said.error) / se).max() > 5  # some network is another than the mean: the words matter


def test_a_network_that_meets_eps_in_the_mean_may_miss_it_and_says_so() -> None:
    made = [af.neighbours(3, 3, "majority_vote", eps=0.4, seed=seed) for seed in range(6)]
    assert all(net.predicted.error <= 0.4 and net.predicted.of == OVER_DRAWS for net in made)
    seen = [net.measured(3000, seed=1) for net in made]
    assert any(one.error > 0.4 + 3 * one.error_se for one in seen)
    for net in made:  # a certificate says what was measured, and nothing of eps where that is above it
        c = net.certificate
        assert c.error[1] <= 0.4 if c.status == "sampled" else "eps 0.4" in (c.reason or "")
    assert {net.certificate.status.value for net in made} == {"sampled", "undecided"}


@pytest.mark.parametrize("method", ["full_rank", "scores", "random_heads", "biased"])
def test_what_is_said_of_this_network_is_what_is_measured_of_it(method: str) -> None:
    rng = np.random.default_rng(len(method))
    dim, beta = int(rng.integers(3, 9)), float(rng.uniform(5, 40))
    options = {"heads": int(rng.integers(2, 9))} if method == "random_heads" else {"beta": beta}
    net = af.neighbours(dim, 2 if method == "biased" else 3, method, seed=int(rng.integers(99)), **options)
    assert net.predicted.of == THIS_NETWORK
    seen = net.measured(8_000, seed=3)
    assert net.predicted.error is not None
    assert abs(seen.error - net.predicted.error) <= 6 * seen.error_se + net.predicted.uncertainty + 1e-9


def test_the_command_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["neighbours", "--dim", "5", "--method", "majority-vote", "--heads", "9"]
    assert main([*words, "--queries", "200"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert OVER_DRAWS in out and "measured, not a bound" in out and "is at least" not in out
    assert "exact" not in out and "queries: 200" in out
    assert main([*words, "--queries", "0", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["predicted"]["of"] == OVER_DRAWS and record["status"] == "sampled" and record["measured"] is None
    assert main(["neighbours", "--dim", "5", "--method", "tally", "--queries", "200"]) == 0
    assert OVER_DRAWS not in capsys.readouterr().out
