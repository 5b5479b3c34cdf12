"""One head of full rank: constants, the exact error against the network, and the bound that is proved for every β."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate

import attnfun as af
from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.bounds import full_rank_error
from attnfun.kinds.neighbours.build import full_rank
from products import few

# published figures of the first-order law: (dim, points): C, p0
CONSTANTS = {(64, 16): (5.260, 14.05), (16, 8): (1.955, 5.45), (64, 3): (1.720, 4.49), (8, 3): (0.547, 1.53)}


@pytest.mark.parametrize(("dim", "points"), CONSTANTS)
def test_the_constant_of_the_first_order_law(dim: int, points: int) -> None:
    C, p0, doubt = full_rank.first_order(dim, points)
    assert abs(C - CONSTANTS[dim, points][0]) <= 0.6e-3 and abs(p0 - CONSTANTS[dim, points][1]) <= 0.6e-2
    n = points - 1

    def integrand(t: float) -> float:
        at = np.array(t)
        return float(sphere.density(dim, at) ** 2 * sphere.above(dim, at) ** (n - 2) * (1 - t * t))

    by_scipy = integrate.quad(integrand, -1, 1, epsabs=1e-12, limit=200)[0]
    assert abs(C - (2 * math.log(2) - 1) * n * (n - 1) * by_scipy) <= 1e-8 + doubt


@pytest.mark.parametrize(
    ("dim", "points", "beta", "which"),
    few(
        [
            (64, 16, 64.0, "furthest"),
            (64, 16, 256.0, "furthest"),
            (64, 16, 1024.0, "furthest"),
            (4, 4, 2.0, "furthest"),
            (3, 5, 1.0, "nearest"),
            (16, 8, 30.0, "nearest"),
            (5, 3, 1.5, "furthest"),
        ],
        4,
    ),
)
def test_the_integral_is_the_error_of_the_network(dim: int, points: int, beta: float, which: str) -> None:
    net = af.neighbours(dim, points, "full_rank", beta=beta, which=which)
    seen = net.measured(20_000, seed=11)
    said = net.predicted
    assert said.error is not None and said.proved is not None
    assert abs(seen.error - said.error) <= 4 * seen.error_se + said.uncertainty
    assert said.error <= said.proved
    if (dim, points) == (64, 16):
        assert abs(seen.error - said.details["first_order"]) <= 0.1 * said.details["first_order"]


@pytest.mark.parametrize(
    ("shape", "own"),
    few(itertools.product([(3, 3), (3, 20), (8, 3), (16, 8), (64, 16), (200, 5), (5, 300)], [True, False]), 4),
)
def test_the_proved_bound_is_never_below_the_integral_and_becomes_sharp(shape: tuple[int, int], own: bool) -> None:
    dim, points = shape
    for beta in (1.0, 30.0, 1e5):
        exact = full_rank.exact_error(dim, points, beta, own)
        coarse = full_rank.exact_error(dim, points, beta, own, nodes=8)
        assert exact - 10 * abs(exact - coarse) <= full_rank_error(dim, points, beta, own)
    C, _, _ = full_rank.first_order(dim, points)
    assert C <= 1e7 * full_rank_error(dim, points, 1e7, own) <= 1.05 * C


def test_many_points_on_a_small_sphere_stay_below_the_bound() -> None:
    for beta in (10.0, 1e3, 1e5):  # here the bound is not sharp
        assert full_rank.exact_error(3, 1500, beta, True) <= full_rank_error(3, 1500, beta, True)


def test_the_upper_sum_is_above_its_integral_and_close() -> None:
    """The part of the bound that a sum of cells gives, against quadrature of the same integrand."""
    dim, points, beta = 16, 8, 500.0
    n = points - 1
    G = math.log(4e4 * (n - 1) * beta) / (2 * beta)

    def integrand(t: float) -> float:
        best = min(max(0.0, t), min(1.0, t + G))
        f, g, s = (sphere.density(dim, np.array([v]))[0] for v in (t, best, 0.0))
        assert g <= s
        return float(f * g * sphere.above(dim, np.array([t]))[0] ** (n - 2) * (1 - t * t + abs(t) * G))

    squares = (2 * math.log(2) - 1) * n * (n - 1) / beta * integrate.quad(integrand, -1, 1, limit=400, epsabs=1e-12)[0]
    least = squares + 1e-4 / beta
    most = least + n * (n - 1) * sphere.peak(dim) ** 2 * (math.log(4 / 3) / beta**2 + beta**-4)  # f ≤ f(0) in pairs
    assert least <= full_rank_error(dim, points, beta, False) <= 1.01 * most


def test_the_constants_of_the_bound() -> None:
    def sigma(x: float) -> float:
        return 1 / (1 + math.exp(x))

    squares = integrate.quad(lambda x: sigma(x) ** 2, 0, 60)[0]
    pairs = integrate.dblquad(lambda u, v: 1 / (1 + u + v) ** 2, 0, 1, 0, 1)[0]
    own = integrate.quad(lambda x: 2 * x * sigma(x) ** 2 + 4 * x * sigma(x), 0, 60)[0]
    assert abs(squares - (math.log(2) - 0.5)) <= 1e-9
    assert abs(pairs - math.log(4 / 3)) <= 1e-9
    assert 3.5 <= own <= 3.56


def test_a_thousandth_is_proved_and_measured_at_the_predicted_temperature() -> None:
    net = af.neighbours(64, 16, "full_rank", eps=1e-3)
    assert net.predicted.proved is not None and net.predicted.proved <= 1e-3
    assert net.cost.rank == 64 and net.cost.heads == 1 and net.cost.layers == 1
    first = net.predicted.details["C"] / 1e-3
    assert first <= net.request["beta"] <= 1.1 * first  # what the first-order law asks for, and little more
    seen = net.measured(20_000, seed=3)
    assert abs(seen.error - (net.predicted.error or 0)) <= 4 * seen.error_se


@pytest.mark.slow
def test_a_thousandth_is_measured_on_a_million_queries() -> None:
    seen = af.neighbours(64, 16, "full_rank", eps=1e-3).measured(1_200_000, seed=3)
    assert seen.error <= 1e-3 and seen.error_se <= 2e-5


@pytest.mark.parametrize("which", ["furthest", "nearest"])
def test_a_cold_head_picks_the_very_point(which: str) -> None:
    net = af.neighbours(6, 5, beta=1e9, which=which)
    points = sphere.uniform_points(np.random.default_rng(0), 50, 5, 6)
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=3)
    at = np.arange(5)
    distances[:, at, at] = -1.0 if which == "furthest" else 9.0
    right = distances.argmax(axis=2) if which == "furthest" else distances.argmin(axis=2)
    assert np.array_equal(net.chosen(points), right)
    assert np.allclose(net(points), np.take_along_axis(points, right[:, :, None], axis=1), atol=1e-6)
    assert net.cost.rank == (6 if which == "furthest" else 11)
