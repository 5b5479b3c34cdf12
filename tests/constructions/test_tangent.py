"""Heads of one variable: how few keys, how small their values, and that nothing depends on scale, load or luck."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import Infeasible
from attnfun.kinds.function.build.unary.features import features, known, values
from attnfun.kinds.function.build.unary.fit import estimate_keys, fit_unary
from attnfun.kinds.function.build.unary.keys import Fit, Keys, ladder, one_sided, tangents
from attnfun.kinds.function.build.unary.layout import layouts, problem
from attnfun.kinds.function.build.unary.project import _jacobian, _qr, columns, solve, tune
from attnfun.kinds.function.build.unary.tables import entries
from attnfun.language import Graph, parse
from attnfun.network import Head


def graph(text: str) -> Graph:
    return parse(text, ["u"])


def dense(low: float, high: float, towards: float | None = None) -> np.ndarray:
    graded = (1 - np.cos(np.linspace(0, np.pi, 999))) / 2
    u = np.concatenate([np.linspace(low, high, 4001), low + (high - low) * graded])
    if towards is not None:
        d = np.geomspace(1e-14, high - low, 2000)
        u = np.concatenate([u, towards + d, towards - d])
    return np.unique(np.clip(u, low, high))


# function, interval, where it is least smooth, most keys at 1e-6
SIZES = [
    ("u**2", -1.0, 1.0, None, 5),
    ("sin(3*u)", -1.0, 1.0, None, 7),
    ("log(u)", 1.0, 5.0, None, 8),
    ("1/u", 1.0, 5.0, None, 9),
    ("exp(u)", -5.0, 0.0, None, 7),
    ("relu(u)", -1.0, 1.0, 0.0, 8),
    ("sqrt(u)", 0.0, 1.0, 0.0, 45),
    ("log(u)", 1e-6, 1.0, 0.0, 42),
    ("1/(1 + 25*u**2)", -1.0, 1.0, None, 15),
    ("sin(20*u)", -1.0, 1.0, None, 38),
    ("tanh(50*u)", -1.0, 1.0, None, 2),
    ("abs(u)", -1.0, 1.0, 0.0, 11),
    ("abs(sin(3*u))", -1.0, 2.0, 0.0, 40),
    ("sin(10*u**2)*exp(-u)", 0.0, 2.0, None, 45),
    ("abs(u)**(1/3)", -1.0, 1.0, 0.0, 100),
]
LONG = ("sin(20*u)", "sin(10*u**2)*exp(-u)")  # many keys are tuned for seconds


@pytest.mark.parametrize(
    ("text", "low", "high", "towards", "most"),
    [pytest.param(*s, id=s[0], marks=[pytest.mark.slow] if s[0] in LONG else []) for s in SIZES],
)
def test_few_keys_and_small_values_at_1e_6(
    text: str, low: float, high: float, towards: float | None, most: int
) -> None:
    fit = fit_unary(graph(text), low, high, 1e-6)
    u = dense(low, high, towards)
    f = values(graph(text), u)
    assert fit.keys <= most
    assert float(np.abs(fit(u) - f).max()) <= 1.05e-6
    assert fit.max_value <= 100 * float(np.ptp(f))


@pytest.mark.parametrize(
    ("text", "low", "high"), [("abs(u)", -1.0, 1.0), ("sqrt(u)", 0.0, 1.0), ("1/(1 + 25*u**2)", -1.0, 1.0)]
)
@pytest.mark.parametrize("eps", [1e-3, 1e-6])
def test_the_error_is_proved(text: str, low: float, high: float, eps: float) -> None:
    net = af.compile(text, {"u": (low, high)}, eps, method="tangent")
    assert net.certificate.status == "proved"
    assert net.certificate.error[1] <= eps


def test_the_same_request_gives_the_same_bits() -> None:
    fit_unary.cache_clear()
    first = fit_unary(graph("sin(7*u) + abs(u)"), -1, 1, 1e-4)
    fit_unary.cache_clear()
    again = fit_unary(graph("sin(7*u) + abs(u)"), -1, 1, 1e-4)
    assert first is not again
    assert (first.slope, first.offset, first.error) == (again.slope, again.offset, again.error)
    for a, b in zip(first.pieces, again.pieces, strict=True):
        assert all(np.array_equal(array, b.arrays[name]) for name, array in a.arrays.items())


@pytest.mark.parametrize(
    ("text", "one", "other", "factor"),
    [
        ("u**2", (-1.0, 1.0), (994.0, 1006.0), 36.0),  # of the half width alone
        ("log(u)", (1.0, 5.0), (200.0, 1000.0), 1.0),  # of the ratio alone
        ("1/u", (1.0, 5.0), (0.01, 0.05), 100.0),
        ("sqrt(u)", (1.0, 4.0), (1e6, 4e6), 1e3),
        ("exp(u)", (-3.0, 0.0), (2.0, 5.0), math.exp(5.0)),  # of the width alone
        ("sqrt(u)", (0.0, 1.0), (0.0, 1e-4), 1e-2),
    ],
)
def test_size_depends_on_the_normal_form_alone(
    text: str, one: tuple[float, float], other: tuple[float, float], factor: float
) -> None:
    sizes = [fit_unary(graph(text), *one, 1e-6).keys, fit_unary(graph(text), *other, 1e-6 * factor).keys]
    assert abs(sizes[0] - sizes[1]) <= 1


def test_shipped_tables_hold_every_kind_and_serve_requests() -> None:
    held = entries()
    assert set(held) == {"square", "log", "power -1", "power -2", "power 1/2", "power -1/2", "exp", "root", "pinned"}
    for kind in held.values():
        assert all(np.isfinite(e.slopes).all() and np.isfinite(e.biases).all() for e in kind)


def test_affine_functions_need_no_key_and_sigmoids_two() -> None:
    assert fit_unary(graph("3*u - 7"), -1, 1, 1e-12).keys == 0
    for text in ("tanh(500*u - 3)", "sigmoid(u)", "2/(3 + exp(-40*u)) + u", "5*tanh(u)/3 - 1"):
        fit = fit_unary(graph(text), -2, 2, 1e-12)
        assert fit.keys == 2
        assert fit.error <= 1e-13


def test_a_constant_side_is_constant_and_a_ladder_too() -> None:
    u = np.linspace(-1, -1e-3, 50)
    for keys in (one_sided(0.0, 1, 1.0, 5, 1.3, 0.3, 1e6), ladder(0.0, 1, 1e-9, 1.0, 12, 0.0, 0.15)):
        assert np.allclose(keys.weights(u)[:, 0], 1.0, atol=1e-12)


def test_keys_are_tangent_lines_of_a_convex_potential() -> None:
    t = np.array([0.0, 1.0, 1.5, 4.0])
    slopes, biases = tangents(t, 0.4)
    assert np.all(np.diff(slopes) > 0)
    crossings = -np.diff(biases) / np.diff(slopes)
    assert np.allclose(crossings, (t[:-1] + t[1:]) / 2)


def test_slopes_of_a_deep_ladder_keep_their_flat_end() -> None:
    keys = ladder(0.0, 1, 1e-19, 1.5, 60, 0.0, 0.15)
    assert keys.slopes.min() < -1e17
    assert -1.0 < keys.slopes[-2] < 0.0
    assert keys.slopes[-1] == 0.0


def test_the_quick_qr_is_that_of_numpy() -> None:
    """Bit for bit; where NumPy has it under no name that is known, it is NumPy's own."""
    rng = np.random.default_rng(0)
    for shape in ((7, 5), (104, 6), (300, 40), (3, 3)):
        system = rng.normal(size=shape)
        system[:, 0] *= 1e-200
        for ours, numpys in zip(_qr()(system), np.linalg.qr(system), strict=True):
            assert np.array_equal(ours, numpys)


def test_the_jacobian_is_the_derivative() -> None:
    p = problem(graph("sin(3*u) + relu(u)"), -1.0, 1.0, 1e-3, "float64")
    pieces = (one_sided(0.0, 1, 1.0, 3, 1.3, 0.3, 50.0), ladder(-1.1, 1, 0.1, 2.0, 4, 0.0, 0.15))
    sample = p.sample(8)
    now = solve(pieces, sample, 1e-6)
    x, exact, h, at = now.x, _jacobian(pieces, sample, now), 1e-6, 0
    for i, keys in enumerate(pieces):
        for name in ("slopes", "biases"):
            for j in range(keys.fixed, keys.size):
                moved = [[], []]
                for sign, store in ((h, moved[0]), (-h, moved[1])):
                    column = getattr(keys, name).copy()
                    column[j] += sign
                    changed = replace(keys, **{name: column})
                    store.append(columns((*pieces[:i], changed, *pieces[i + 1 :]), sample, sample.u) @ x)
                numeric = (moved[0][0] - moved[1][0]) / (2 * h) * sample.weight
                assert np.allclose(exact[:, at], numeric, atol=1e-7)
                at += 1


def test_tuning_never_makes_the_fit_worse() -> None:
    p = problem(graph("1/(1 + 25*u**2)"), -1.0, 1.0, 1e-6, "float64")
    pieces = (ladder(-1.5, 1, 0.1, 3.0, 8, 0.0, 0.15),)
    sample = p.sample(8)
    before = solve(pieces, sample, 1e-8).cost
    tuned, used = tune(pieces, sample, 1e-8, 20, 0.0)
    assert used <= 20
    assert solve(tuned, sample, 1e-8).cost < before


@pytest.mark.parametrize(("low", "high", "eps"), [(-1.0, 1.0, 1e-6), (-5.0, 5.0, 1e-4), (-0.5, 2.0, 1e-8)])
def test_a_pinned_square_has_a_relative_error(low: float, high: float, eps: float) -> None:
    fit = fit_unary(graph("u**2"), low, high, eps, pinned=True)
    reach = max(-low, high)
    u = np.concatenate([[0.0], np.geomspace(1e-9, 1, 4000) * reach])
    off = np.abs(fit(u) - u**2)
    assert off[0] <= 1e-14 * fit.max_value
    assert np.all(off <= 1e-13 * fit.max_value + eps / reach**2 * (u**2 + 1e-3 * reach**2))
    assert fit.slope == 0.0


def test_only_squares_can_be_pinned() -> None:
    with pytest.raises(Infeasible, match="pinned"):
        fit_unary(graph("sin(u)"), -1, 1, 1e-3, pinned=True)


@pytest.mark.parametrize(
    ("text", "low", "high"), [("u**2", -1.0, 1.0), ("log(u)", 1.0, 5.0), ("abs(u)", -1.0, 1.0), ("sqrt(u)", 0.0, 1.0)]
)
def test_float32_heads_hold_small_values_and_work_in_float32(text: str, low: float, high: float) -> None:
    fit = fit_unary(graph(text), low, high, 1e-4, dtype="float32")
    u = dense(low, high)
    f = values(graph(text), u)
    assert fit.max_value <= 25 * float(np.ptp(f))
    for piece in fit.pieces:
        for array in piece.arrays.values():
            assert np.array_equal(array.astype(np.float32), array)
    assert float(np.abs(_in_float32(fit, u) - f).max()) <= 1.1e-4


def _in_float32(fit: Fit, u: np.ndarray) -> np.ndarray:
    def head(p: Head) -> np.ndarray:
        query, offset, slopes, biases, values = (array.astype(np.float32) for array in p.arrays.values())
        logits = np.outer(query[0, 0] * u.astype(np.float32) + offset[0], slopes) + biases
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (e @ values[:, 0]) / e.sum(axis=1)

    total = np.float32(fit.slope) * u.astype(np.float32) + np.float32(fit.offset)
    return sum((head(p) for p in fit.pieces), total)


def test_what_float32_cannot_hold_is_refused() -> None:
    with pytest.raises(Infeasible, match="reached"):
        fit_unary(graph("1/u"), 0.01, 1, 1e-5, dtype="float32")


def test_settling_returns_the_best_float32_can_do() -> None:
    """A few keys more and small values: far below what the fewest keys cost, and the same for every smaller request."""
    square = graph("u**2")
    best = fit_unary(square, -1, 1, 1e-9, dtype="float32", settle=True)
    assert best is fit_unary(square, -1, 1, 1e-10, dtype="float32", settle=True)
    coarse = fit_unary(square, -1, 1, 1e-4, dtype="float32")
    u = dense(-1, 1).astype(np.float32).astype(np.float64)
    error = {fit.keys: float(np.abs(_in_float32(fit, u) - u**2).max()) for fit in (best, coarse)}
    assert best.keys > coarse.keys and error[best.keys] < 0.1 * error[coarse.keys]
    assert best.max_value < coarse.max_value


@pytest.mark.parametrize("text", ["u**2", "log(u)", "1/u"])
def test_levelled_keys_are_the_same_head_with_smaller_logits(text: str) -> None:
    keys = layouts(problem(graph(text), 1.0, 5.0, 1e-5, "float32"))[0](1.0)[0]
    u = dense(1.0, 5.0)
    level = keys.levelled(u)
    assert np.abs(level.weights(u) - keys.weights(u)).max() <= 1e-12

    def size(k: Keys) -> float:
        q = k.query(u)[:, None]
        logits = q * k.slopes + k.biases
        return float((k.weights(u) * (np.abs(q * k.slopes) + np.abs(logits))).sum(axis=1).max())

    assert size(level) < size(keys)


def test_neighbouring_numbers_too_far_apart_in_value_are_refused() -> None:
    with pytest.raises(Infeasible, match=r"singular point 0\.3"):
        fit_unary(graph("abs(u - 0.3)**(1/3)"), -1, 1, 1e-7)
    assert fit_unary(graph("abs(u - 0.3)**(1/3)"), -1, 1, 1e-3).error <= 1e-3


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("abs(sin(3*u))", -1.0, 2.0, [(0.0, True), (math.pi / 3, True)]),
        ("abs(u - 0.3)**(1/3)", -1.0, 1.0, [(0.3, False)]),
        ("sqrt(u)*max(u, 0.5)", 0.0, 1.0, [(0.0, False), (0.5, True)]),
        ("log(u)", 1e-6, 1.0, [(0.0, False)]),
        ("asin(u)", -1.0, 1.0, [(-1.0, False), (1.0, False)]),
        ("exp(sin(u))", -1.0, 1.0, []),
    ],
)
def test_singular_points_are_read_from_the_expression(
    text: str, low: float, high: float, expected: list[tuple[float, bool]]
) -> None:
    found = features(graph(text), low, high)
    assert [f.kink for f in found] == [kink for _, kink in expected]
    assert np.allclose([f.at for f in found], [at for at, _ in expected], atol=1e-15)


def test_one_operation_under_affine_maps_is_recognised() -> None:
    form = known(graph("3 - 2*exp(4*u + 1)/5 + u"))
    assert form is not None
    assert (form.op, form.w, form.c) == ("exp", 4.0, 1.0)
    assert math.isclose(form.scale, -0.4) and (form.slope, form.offset) == (1.0, 3.0)
    assert known(graph("sin(u)*exp(u)")) is None


@pytest.mark.parametrize(("text", "low", "high"), [s[:3] for s in SIZES], ids=[s[0] for s in SIZES])
def test_estimates_are_near_the_truth(text: str, low: float, high: float) -> None:
    truth = fit_unary(graph(text), low, high, 1e-6).keys
    assert truth / 3 - 2 <= estimate_keys(graph(text), low, high, 1e-6) <= 3 * truth + 4


def test_removable_singularities_are_no_obstacle() -> None:
    assert fit_unary(graph("sin(u)/u"), -1, 1, 1e-6).error <= 1e-6


def test_several_outputs_share_one_layer() -> None:
    net = af.compile(["sin(3*x)", "abs(x)", "2*x + 1"], {"x": (-1, 1)}, 1e-5, method="tangent")
    assert net.cost.layers == 1
    assert net.certificate.error[1] <= 1e-5


def test_auto_prefers_it_in_one_variable() -> None:
    net = af.compile("sin(3*x)", {"x": (-1, 1)}, 1e-6)
    assert net.certificate.construction in ("tangent", "compose")
    assert net.cost.keys <= 7
