"""Method moments: Taylor forms of heads and targets on intervals, kinks included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.exact import residual_at
from attnfun.certify.moments import _head_model, _tops, prove_by_moments, residual_bound
from attnfun.certify.view import view
from attnfun.kinds.function.prove import prove
from attnfun.language import precision
from attnfun.network import evaluate
from certify.hunting import assert_sound, function, line_network


def random_head(rng: np.random.Generator, slope: float) -> tuple[list[float], list[float], np.ndarray]:
    n = int(rng.integers(1, 12))
    return list(rng.normal(size=n) * slope), list(rng.normal(size=n) * 3), rng.normal(size=n) * 10 ** rng.uniform(-2, 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_taylor_model_contains_the_head(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    slopes, biases, values = random_head(rng, 10 ** rng.uniform(-1, 4))
    network = line_network(slopes, biases, values, w=float(rng.choice([1.0, -2.0])), c=0.3)
    seen = view(network, network.low, network.high)
    c = float(rng.uniform(-0.9, 0.9))
    with precision(200):
        for radius in (0.1, 1e-3, 1e-6):
            for order in (2, 5, 12):
                model = _head_model(seen.heads[0], c, radius, order)
                if model is None:
                    continue
                (series,), (rest,) = model
                for s in (-1.0, -0.37, 0.0, 0.5, 1.0):
                    x = c + s * radius
                    step = arb(x) - arb(c)
                    if not abs(step) <= arb(radius):
                        continue
                    value, power = arb(0), arb(1)
                    for a in series:
                        value, power = value + a * power, power * step
                    f = function("0")
                    exact = -residual_at(seen, f.graph, ("x",), np.array([x]))[0]
                    assert not abs(exact - value) > rest * (1 + arb(1e-12)) + arb(1e-40)


@pytest.mark.parametrize(
    "target", ["abs(x)", "sin(5*x)", "sqrt(abs(x))", "max(sin(5*x), x**2)", "exp(3*x)/(x + 2)", "sqrt(x + 1)"]
)
@pytest.mark.parametrize("seed", range(3))
def testresidual_bounds_hold_inside(target: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 4])
    slopes, biases, values = random_head(rng, 30.0)
    network = line_network(slopes, biases, values)
    f = function(target)
    seen = view(network, network.low, network.high)
    with precision(160):
        for left, right in ((-1.0, -0.9), (-0.01, 0.01), (0.0, 1e-9), (-1.0, 1.0), (0.3, 0.5), (1 - 1e-12, 1.0)):
            bound = residual_bound(seen, f.graph, ("x",), 8, left, right)
            X = np.linspace(left, right, 301)[:, None]
            error = np.abs(evaluate(network, X) - f.values(X)).max()
            assert error <= bound + 1e-12 * (1 + np.abs(values).max())


@pytest.mark.parametrize(
    ("target", "eps"),
    [
        ("abs(x)", 0.03),
        ("abs(3*x - 1)", 0.1),
        ("max(sin(5*x), x**2)", 0.1),
        ("relu(x - 0.1)", 0.02),
        ("sqrt(abs(x))", 0.2),
    ],
)
def test_kinks_are_proved_closely(target: str, eps: float) -> None:
    net = af.compile(target, "x=-1:1", eps, method="bernstein", accept="sampled")
    seen = view(net.network, net.network.low, net.network.high)
    bound = prove_by_moments(seen, net.target.graph, ("x",), eps, eps, np.array([[0.0]]))
    X = np.linspace(-1, 1, 40001)[:, None]
    error = np.abs(evaluate(net.network, X) - net.target.values(X)).max()
    assert error * (1 - 1e-12) <= bound.high <= 1.1 * error
    assert bound.low <= bound.high


def test_several_heads_and_an_affine_part() -> None:
    one = line_network([0.0, 2.0, 4.0], [0.0, 1.0, 0.0], [0.0, 1.0, -1.0])
    head = one.layers[0].heads[0]
    both = type(one.layers[0])((head, type(head)("b", head.axes, 2 * head.values[::-1].copy(), ("w",))))
    network = type(one)(("x",), (both,), np.array([[0.5, 1.0, -3.0]]), np.array([0.25]), ("f",), one.box)
    f = function("abs(x)*sin(x)")
    certificate = prove(network, f)
    assert_sound(certificate, network, f)
    assert certificate.method == "moments" and certificate.slack < 1.1


def test_steep_slopes_and_far_keys() -> None:
    """Keys far below the largest are left out, and what they weigh is counted."""
    t = np.linspace(-1, 1, 41)
    beta = 5e4
    network = line_network(2 * beta * t, -beta * t * t, np.abs(t))
    f = function("abs(x)")
    certificate = prove(network, f)
    assert_sound(certificate, network, f)
    seen = view(network, network.low, network.high)
    bound = prove_by_moments(seen, f.graph, ("x",), 0.03, 0.03, np.array([[0.024]]))
    X = np.linspace(-1, 1, 20001)[:, None]
    assert np.abs(evaluate(network, X) - f.values(X)).max() <= bound.high <= 0.03


def test_discontinuities_never_end_in_a_proof() -> None:
    """x/sqrt(x²+1e-30) is a jump for floats; the network is continuous, so the error is about 1 somewhere."""
    f = function("x/sqrt(x**2 + 1e-30)")
    network = line_network([0.0, 40.0], [0.0, 0.0], [-1.0, 1.0])
    certificate = prove(network, f, eps=0.5)
    assert certificate.status is not Status.PROVED
    assert certificate.error[1] >= 0.99


def test_outputs_are_judged_together() -> None:
    network = line_network([0.0, 1.0], [0.0, 0.0], np.array([[0.0, 5.0], [1.0, 5.0]]))
    f = function(["abs(x)", "abs(x) + 4.5"])
    certificate = prove(network, f)
    assert_sound(certificate, network, f)
    assert math.isclose(certificate.error[1], max(1 / (1 + math.exp(-1)), 1.0, 0.5), rel_tol=0.5)


@pytest.mark.parametrize("seed", range(10))
def test_where_one_key_is_in_sight_the_model_is_its_value(seed: int) -> None:
    """Steep heads rest on one key nearly everywhere; the true head is within the model's remainder of its value."""
    rng = np.random.default_rng([seed, 7])
    t = np.sort(rng.uniform(-1, 1, 8))
    beta = 10 ** rng.uniform(4, 6)
    network = line_network(2 * beta * t, -beta * t * t, rng.normal(size=(8, 2)) * 10)
    seen = view(network, network.low, network.high)
    resting = 0
    with precision(300):
        for c in rng.uniform(-0.99, 0.99, 40):
            model = _head_model(seen.heads[0], float(c), 1e-4, 4)
            if model is None:
                continue
            nearest = int(np.argmin(np.abs(t - c)))
            for k, (series, rest) in enumerate(zip(*model, strict=True)):
                if all(a == 0 for a in series[1:]):
                    resting += 1
                    assert series[0] == arb(float(seen.heads[0].values[nearest, k]))
                for x in (c - 1e-4, c, c + 1e-4):
                    step = arb(float(x)) - arb(float(c))
                    value = sum((a * step**i for i, a in enumerate(series)), arb(0))
                    zero = function(["0", "0"])
                    exact = -residual_at(seen, zero.graph, ("x",), np.array([float(x)]))[k]
                    assert not abs(exact - value) > rest * (1 + arb(1e-9)) + arb(1e-40)
    assert resting > 0


def test_an_eps_close_to_the_error_is_reached() -> None:
    """Where eps is a percent above the true error the search goes on until it is below eps, and no further."""
    t = np.linspace(-1, 1, 9)
    network = line_network(2 * 44.0 * t, -44.0 * t * t, np.abs(t))
    f = function("abs(x)")
    X = np.linspace(-1, 1, 400_001)[:, None]
    error = float(np.abs(evaluate(network, X) - f.values(X)).max())
    certificate = prove(network, f, eps=1.01 * error)
    assert certificate.status is Status.PROVED and certificate.method == "moments"
    assert error * (1 - 1e-9) <= certificate.error[1] <= 1.01 * error
    assert_sound(certificate, network, f)
    assert prove(network, f, eps=0.99 * error).status is Status.REFUTED


@pytest.mark.parametrize("seed", range(30))
def test_the_top_of_a_polynomial_is_never_below_its_values(seed: int) -> None:
    """Vertex inside, outside, at the rim; coefficients known exactly, or as balls that may hold 0."""
    rng = np.random.default_rng([seed, 11])
    radius = float(10 ** rng.uniform(-8, 2))
    size = int(rng.integers(1, 7))
    scale = 10 ** rng.uniform(-6, 3, size)
    middle = [float(v) for v in rng.normal(size=size) * scale / radius ** np.arange(size)]
    if seed % 3 == 0 and size > 2:
        middle[1] = -2 * middle[2] * radius * float(rng.choice([1.0, 1 - 1e-15, 1 + 1e-15, 0.5, 0.0]))
    spread = [abs(v) * float(rng.choice([0.0, 1e-20, 0.3, 2.0])) for v in middle]
    balls = [arb(m, s) for m, s in zip(middle, spread, strict=True)]
    for top_of, sign in zip(_tops(balls, radius), (1, -1), strict=True):
        for _ in range(20):
            inside = rng.uniform(-1, 1, size)
            exact = [arb(m) + arb(s) * float(t) for m, s, t in zip(middle, spread, inside, strict=True)]
            for t in np.concatenate([[-1.0, 1.0, 0.0], rng.uniform(-1, 1, 30)]):
                value = sum((c * (arb(radius) * float(t)) ** i for i, c in enumerate(exact)), arb(0))
                assert not sign * value > top_of


def test_the_top_of_a_polynomial_is_close() -> None:
    """A parabola's is its maximum; where the curvature is lost in uncertainty, the straight line's."""
    top, bottom = _tops([arb(1), arb(0.5), arb(-1)], 1.0)
    assert float(top) == pytest.approx(1.0625) and float(bottom) == pytest.approx(0.5)
    top, _ = _tops([arb(1), arb(0, 1e-30), arb(-1e-300)], 1.0)
    assert float(top) == pytest.approx(1.0)
    assert all(math.isnan(float(v)) for v in _tops([arb("nan"), arb(1), arb(-1)], 1.0))
