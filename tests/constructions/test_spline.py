"""Broken lines for one step: few units, nothing large that cancels, exact where the step is a broken line itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import Infeasible
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.spline import fit_spline, growth, rough_units, shares
from attnfun.language import ArrayAlgebra, Graph, parse, run
from attnfun.language.domain import Box
from attnfun.language.function import Function

# ∫ √|g''| du on the interval
CURVED = {
    ("u**2", -1.0, 1.0): 2 * math.sqrt(2),
    ("exp(u)", -5.0, 5.0): 2 * (math.exp(2.5) - math.exp(-2.5)),
    ("log(u)", 1e-6, 1.0): math.log(1e6),
    ("sqrt(u)", 0.0, 1.0): 2.0,
    ("u**3", -1.0, 1.0): math.sqrt(6) * 4 / 3,
}


def graph(text: str) -> Graph:
    return parse([text], ("u",))


def dense(low: float, high: float) -> np.ndarray:
    graded = np.geomspace(1e-12, 1.0, 1000)
    s = np.concatenate([np.linspace(0, 1, 6_001), graded, 1 - graded])
    return np.unique(np.clip(low + (high - low) * s, low, high))


@pytest.mark.parametrize("eps", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("case", CURVED, ids=[case[0] for case in CURVED])
def test_units_are_a_quarter_of_the_integral_over_the_root_of_eps(case: tuple[str, float, float], eps: float) -> None:
    text, low, high = case
    fit = fit_spline(graph(text), low, high, eps)
    asymptotic = CURVED[case] / 4 / math.sqrt(eps)
    assert fit.keys <= 1.06 * asymptotic + 2
    u = dense(low, high)
    error = np.abs(fit(u) - np.asarray(run(graph(text), ArrayAlgebra(), {"u": u})[0]))
    assert error.max() <= eps
    assert fit.keys <= growth(graph(text), low, high)(eps) * 1.1 + 3


@pytest.mark.parametrize("text", ["relu(u)", "abs(u - 0.3)", "max(u, 1/2 - u) - 3*u", "abs(abs(u) - 1/4)"])
def test_a_broken_line_takes_one_unit_a_kink_and_is_exact(text: str) -> None:
    kinks = {"abs(abs(u) - 1/4)": 3}.get(text, 1)
    fit = fit_spline(graph(text), -1.0, 1.0, 1e-9)
    assert fit.keys == kinks and fit.error <= 1e-15


@pytest.mark.parametrize("text", ["u**2", "exp(3*u)", "sqrt(u + 1)", "log(u + 1.000001)"])
def test_breakpoints_are_stored_exactly_and_nothing_cancels_where_g_is_convex(text: str) -> None:
    fit = fit_spline(graph(text), -1.0, 1.0, 1e-5)
    (block,) = fit.pieces
    assert set(np.abs(block.axes[0].slopes[:, 0])) == {1.0}
    assert len(set(np.sign(block.values[:, 0]))) == 1
    ends = np.array([-1.0, 1.0])
    spoken = np.abs(np.maximum(np.outer(ends, block.axes[0].slopes) + block.axes[0].biases, 0.0) @ block.values)
    f = np.asarray(run(graph(text), ArrayAlgebra(), {"u": np.linspace(-1, 1, 1001)})[0])
    assert spoken.max() <= 2 * np.ptp(f)


def test_float32_weights_are_of_float32_and_rounding_is_allowed_for() -> None:
    fit = fit_spline(graph("sin(3*u)"), -1.0, 1.0, 1e-3, dtype="float32")
    for array in (*fit.pieces[0].arrays.values(), np.array([fit.slope, fit.offset])):
        assert np.array_equal(array.astype(np.float32), array)
    with pytest.raises(Infeasible, match="float32") as why:
        fit_spline(graph("sin(20*u)"), -1.0, 1.0, 1e-4, dtype="float32")
    assert why.value.nearest is not None
    assert fit_spline(graph("sin(20*u)"), -1.0, 1.0, float(why.value.nearest["eps"]), dtype="float32").keys > 10


def test_a_straight_step_still_has_a_unit() -> None:
    fit = fit_spline(graph("2*u + 1"), 0.0, 1.0, 1e-6)
    assert fit.keys == 1 and fit.max_value == 0.0 and fit.slope == 2.0
    assert rough_units(graph("0*u + 1"), 0.0, 1.0) <= 2


def test_tolerances_are_shared_by_curvature() -> None:
    """At the optimum every step's units per unit of its share are alike: R_i/√E_i ∝ S_i E_i."""
    box = Box.parse("x=-1:1")
    request = Request(Function.read("x", box), 1e-4, math.inf, "float64", realise="mlp")
    steps = [(graph("u**2"), -1.0, 1.0), (graph("sin(20*u)"), -1.0, 1.0), (graph("abs(u)"), -1.0, 1.0)]
    weights = [1.0, 5.0, 2.0]
    tolerances = shares(steps, weights, request)
    assert sum(w * e for w, e in zip(weights, tolerances, strict=True)) <= 1e-4
    balance = [growth(*s).rate / math.sqrt(e) / (w * e) for s, w, e in zip(steps, weights, tolerances, strict=True)]
    assert balance[0] == pytest.approx(balance[1], rel=1e-9)
    assert tolerances[2] < 0.05 * tolerances[0]


def test_too_many_units_are_refused_with_an_eps_that_fits() -> None:
    for options in ({"max_keys": 40}, {"eps": 1e-13}):
        eps = float(options.pop("eps", 1e-6))
        with pytest.raises(Infeasible, match="ReLU units") as why:
            af.compile("sin(3*x)", "x=-1:1", eps, realise="mlp", **options)
        assert why.value.nearest is not None
        if "max_keys" in options:
            net = af.compile("sin(3*x)", "x=-1:1", float(why.value.nearest["eps"]), realise="mlp", **options)
            assert 20 <= net.cost.keys <= 40


def test_where_no_eps_fits_attention_is_the_nearest() -> None:
    with pytest.raises(Infeasible) as why:
        af.compile("sin(3*x)", "x=-1:1", 1e-3, realise="mlp", max_keys=0)
    assert why.value.nearest == {"realise": "attention"}


def test_a_root_of_a_kink_is_no_trouble_where_the_kink_is_exact() -> None:
    """The inner |x| must be far more exact than eps, and is."""
    net = af.compile("abs(x)**(1/3)", "x=-1:1", 1e-3, realise="mlp")
    assert net.certificate.error[1] <= 1e-3 and net.cost.keys <= 60


@pytest.mark.parametrize("method", ["tangent", "bernstein", "partition"])
def test_other_constructions_say_that_they_build_attention(method: str) -> None:
    with pytest.raises(Infeasible, match=f"{method} builds attention"):
        af.compile("sin(x)", "x=-1:1", 1e-2, method=method, realise="mlp")
