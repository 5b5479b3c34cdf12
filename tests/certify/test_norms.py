"""Norms as one node: the pinned bound and the norm's own modulus hold for the stored weights, spoilt ones included."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from flint import arb

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.exact import network_at
from attnfun.certify.norms import Component, Pinned, Square, norm_shift, prove_pinned, root_slope
from attnfun.certify.view import HeadView, LineAxis, View
from attnfun.kinds.function.build.unary.fit import fit_unary
from attnfun.kinds.function.prove import prove
from attnfun.language import Builder, Graph, parse, precision
from attnfun.language.enclosures import abs_upper
from attnfun.language.squares import is_square
from attnfun.network import Axis, Head, Label, Labels, Layer, Network
from certify.hunting import assert_sound, function, with_arrays
from products import few

SQUARE = parse("u**2", ["u"])


def view_of(low: float, high: float, eps: float, pinned: bool, spoil: float = 0.0, graded: bool = False) -> View:
    fit = fit_unary(SQUARE, low, high, eps, pinned=pinned, graded=graded)
    views = []
    for piece in fit.pieces:
        (axis,), values = piece.axes, piece.values.copy()
        line = LineAxis(0, axis.query[0, 0], axis.offset[0], axis.slopes[:, 0], axis.biases)
        values[0] += spoil
        head = Head("square", (axis,), values, ("z",))
        views.append(HeadView("square", (line,), values, np.ones((1, 1)), head))
    return View(np.array([low]), np.array([high]), np.array([[fit.slope]]), np.array([fit.offset]), tuple(views))


def square_of(seen: View, *apart: float) -> Square:
    """The step of these heads; the second piece's query may be off by `apart` and so on."""
    pieces = tuple(zip(seen.heads, (0.0, *apart, *[0.0] * (len(seen.heads) - 1 - len(apart))), strict=True))
    return Square(seen, SQUARE, pieces, True, {})


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-120.0, 21.0), (0.0, 3.0), (0.5, 2.0), (-1e-3, 1e-4)])
@pytest.mark.parametrize("spoil", [0.0, 1e-12, 1e-6])
@pytest.mark.parametrize("pinned", [True, False])
def test_the_pinned_bound_holds(low: float, high: float, spoil: float, pinned: bool) -> None:
    seen = view_of(low, high, 1e-6 * max(-low, high) ** 2, pinned, spoil)
    found = prove_pinned(square_of(seen), "float64")
    if found is None:
        assert spoil * 1e3 > max(-low, high) ** 2  # only a head that is spoilt beyond its size may be refused
        return
    reach = max(-low, high)
    u = np.concatenate(
        [np.linspace(low, high, 401), reach * np.geomspace(1e-12, 1, 60), -reach * np.geomspace(1e-12, 1, 60)]
    )
    with precision(128):
        for t in np.clip(u, low, high):
            off = network_at(seen, np.array([t]))[0] - arb(float(t)) ** 2
            assert abs_upper(off) <= (found.a + found.rho * t * t) * (1 + 1e-9)
    if pinned and not spoil:
        assert found.a < 1e-14 * reach**2 and found.rho < 1e-5


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-120.0, 21.0), (-1e-3, 2e-4)])
@pytest.mark.parametrize(("eps", "spoil"), few(product([1e-7, 1e-9, 1e-12], [0.0, 1e-30, 1e-15]), 3))
def test_graded_squares_follow_the_square_down_to_0_as_computed(
    low: float, high: float, eps: float, spoil: float
) -> None:
    """In exact arithmetic with any rounding of weights that the model allows, and as NumPy computes them."""
    reach = max(-low, high)
    seen = view_of(low, high, eps * reach**2, True, spoil * reach**2, graded=True)
    apart = 1e-16 * reach
    found = prove_pinned(square_of(seen, apart), "float64")
    if found is None:
        assert spoil
        return
    assert found.computed
    if not spoil:
        assert max(math.sqrt(found.a), found.sigma, found.rho * reach / 2) < 2 * eps * reach
    small = reach * np.geomspace(1e-25, 1, 300)
    u = np.clip(np.concatenate([[0.0, low, high], small, -small]), low, high)
    allowed = found.a + found.sigma * np.abs(u) + found.rho * u**2
    one, two = (dataclasses.replace(seen, heads=(head,)) for head in seen.heads)
    for shift in (-apart, 0.0, apart):
        off = np.abs(one.floats(u) + two.floats(u + shift) - u**2)
        assert (off <= allowed * (1 + 1e-9)).all()
    with precision(192):
        for t, most in zip(u[::17].tolist(), allowed[::17].tolist(), strict=True):
            off = network_at(seen, np.array([t]))[0] - arb(t) ** 2
            assert abs_upper(off) <= most * (1 + 1e-9)


@pytest.mark.parametrize("change", ["slope", "bias", "value", "query"])
def test_a_graded_square_that_is_spoilt_has_a_larger_bound_or_none(change: str) -> None:
    fit = fit_unary(SQUARE, -1.0, 1.0, 1e-9, pinned=True, graded=True)
    rng = np.random.default_rng(5)
    for _ in range(3):
        views = []
        for piece in fit.pieces:
            (axis,) = piece.axes
            arrays = {
                "slope": axis.slopes[:, 0].copy(),
                "bias": axis.biases.copy(),
                "value": piece.values.copy(),
                "query": np.array([axis.query[0, 0], axis.offset[0]]),
            }
            spoilt, place = arrays[change], int(rng.integers(len(arrays[change])))
            spoilt[place] = spoilt[place] * (1 + 10.0 ** rng.uniform(-12, -1)) + 10.0 ** rng.uniform(-25, -12)
            line = LineAxis(0, *arrays["query"].tolist(), arrays["slope"], arrays["bias"])
            head = Head(
                "square", (Axis([[line.w]], [line.c], line.slopes[:, None], line.biases),), arrays["value"], "z"
            )
            views.append(HeadView("square", (line,), arrays["value"], np.ones((1, 1)), head))
        seen = View(np.array([-1.0]), np.array([1.0]), np.zeros((1, 1)), np.zeros(1), tuple(views))
        found = prove_pinned(square_of(seen), "float64")
        if found is None:
            continue
        u = np.concatenate([[0.0], np.geomspace(1e-20, 1, 40), -np.geomspace(1e-20, 1, 40)])
        with precision(192):
            for t in u.tolist():
                off = network_at(seen, np.array([t]))[0] - arb(t) ** 2
                assert abs_upper(off) <= (found.a + found.sigma * abs(t) + found.rho * t * t) * (1 + 1e-9)


def test_the_norm_follows_its_components() -> None:
    """Worst cases by hand: components moved by their shifts, squares off by a + σ|u| + ρu², the sum by its mismatch."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 4))
        parts = [
            Component(
                float(rng.choice([0.5, 1, 4])),
                Pinned(10.0 ** rng.uniform(-14, -3), 10.0 ** rng.uniform(-9, -1), 10.0 ** rng.uniform(-8, -0.5)),
                10.0 ** rng.uniform(-9, -1),
                10.0 ** rng.uniform(-14, -3),
            )
            for _ in range(n)
        ]
        m, theta = 10.0 ** rng.uniform(-14, -3), 10.0 ** rng.uniform(-16, -1)
        u = rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 0)
        beta = np.array([c.beta for c in parts])
        true = float(beta @ u**2)
        moved = norm_shift(parts, (m, theta), true)
        if max(c.pinned.rho for c in parts) * (1 + theta) + theta >= 0.5:
            assert moved is None
            continue
        assert moved is not None
        for _ in range(20):
            signs = rng.choice([-1.0, 1.0], size=(2, n))
            seen = u + signs[0] * np.array([c.shift for c in parts])
            squares = seen**2 + signs[1] * np.array(
                [
                    c.pinned.a + c.extra + c.pinned.sigma * abs(s) + c.pinned.rho * s * s
                    for c, s in zip(parts, seen, strict=True)
                ]
            )
            off = m + theta * float(beta @ np.abs(squares))
            total = float(beta @ squares) + off * rng.choice([-1.0, 1.0])
            assert total >= -moved[1] * (1 + 1e-9)
            assert abs(math.sqrt(max(total, 0.0)) - math.sqrt(true)) <= moved[0] * (1 + 1e-9)


def test_root_slopes() -> None:
    with precision(128):
        assert root_slope(parse("sqrt(u)", ["u"]), 4.0) == pytest.approx(1.0, rel=1e-6)
        assert root_slope(parse("exp(-3*sqrt(u))", ["u"]), 4.0) == pytest.approx(3.0, rel=0.1)
        assert root_slope(parse("cos(sqrt(u))", ["u"]), 9.0) == pytest.approx(1.0, rel=0.1)
        assert root_slope(parse("u**(1/4)", ["u"]), 1.0) == math.inf
    assert is_square(SQUARE) and not is_square(parse("2*u**2", ["u"])) and not is_square(parse("u**4", ["u"]))


TARGETS = {
    "plane": ("sqrt(x**2 + y**2)", "x=-1:1;y=-1:1", 1e-5),
    "plane, finely": ("sqrt(x**2 + y**2)", "x=-1:1;y=-1:1", 1e-9),
    "weights that are rounded": ("sqrt(x**2/3 + 0.7*(y - x)**2 + 1e-7)", "x=-1:1;y=-1:1", 1e-10),
    "cosines": ("sqrt(a**2 + b**2 - 2*a*b*cos(s - t))", "a=1:2;b=1:2;s=0:1;t=0:1", 1e-4),
    "function of a norm": ("exp(-sqrt(x**2 + (y - z)**2))", "x=-1:1;y=0:1;z=0:1", 1e-4),
}


@cache
def compiled(name: str) -> af.Approximant:
    target, domain, eps = TARGETS[name]
    return af.compile(target, domain, eps, method="compose")


@pytest.mark.parametrize("name", few(TARGETS, 2))
def test_norms_are_proved(name: str) -> None:
    net = compiled(name)
    assert net.certificate.status is Status.PROVED
    assert_sound(net.certificate, net.network, net.target)
    box = net.target.box  # at and near the zeros of the norm
    rng = np.random.default_rng(0)
    X = box.sample(2000, rng)
    scale = 10.0 ** rng.uniform(-17, -1, (2, len(X)))
    if name == "cosines":
        X[:, 1], X[:, 3] = X[:, 0] + scale[0], X[:, 2] - scale[1]
    else:
        X[:, 0], X[:, 1] = scale[0], (X[:, 2] if box.dim > 2 else X[:, 0] if "rounded" in name else 0.0) + scale[1]
    X = np.clip(X, box.low_array, box.high_array)
    true = net.target.values(X)[:, 0]
    if name == "cosines":  # as written it cancels in floats
        a, b, s, t = X.T
        true = np.sqrt((a - b) ** 2 + 4 * a * b * np.sin((s - t) / 2) ** 2)
    assert np.abs(net(X) - true).max() <= net.certificate.error[1]


@pytest.mark.parametrize(("name", "size"), few(product(TARGETS, [1e-13, 1e-9, 1e-5]), 1))
def test_spoilt_squares(name: str, size: float) -> None:
    """One value of one square off: what is pinned no longer is, and the bound knows."""
    net = compiled(name)
    network: Network = net.network
    arrays = dict(network.arrays())
    rng = np.random.default_rng(3)
    for key in rng.permutation([k for k in arrays if k.endswith("values")])[:1]:
        changed = arrays[key].copy()
        changed[int(rng.integers(len(changed)))] += size
        bad = dataclasses.replace(with_arrays(network, {key: changed}), labels=network.labels)
        assert_sound(prove(bad, net.target, eps=TARGETS[name][2]), bad, net.target)


def test_a_square_that_cannot_be_widened_is_not_pinned() -> None:
    """x + 1 varies by less than a box may; a mismatch carries û past it, onto a key that is silent inside."""
    target = function("sqrt((x + 1)**2 + y**2)", "x=-2e-13:2e-13;y=0:20")
    jump, eta = 1e6, 2.5e-14
    fits = fit_unary(SQUARE, -1.0, 1.01, 1e-3, pinned=True), fit_unary(SQUARE, -20.0, 20.0, 1e-2, pinned=True)
    fits = *fits, fit_unary(parse("sqrt(u)", ["u"]), 1.0, 401 + 1.01 * jump, 20.0)
    (p,), (r,), (s,) = (fit.pieces for fit in fits)
    one, two, root = (piece.axes[0] for piece in (p, r, s))
    (w, c), (w_two, c_two), (w_root, c_root) = ((axis.query[0, 0], axis.offset[0]) for axis in (one, two, root))
    assert all(fit.slope == 0 for fit in fits[:2])  # so that the read of U below is p + r and a constant
    build = Builder()
    x, y = build.var("x"), build.var("y")
    u = build.apply("add", x, build.const(1))
    squares = build.apply("powi", u, value=2), build.apply("powi", y, value=2)
    total = build.apply("add", *squares)
    graph = build.graph([build.apply("sqrt", total), *squares, u, y, total])
    f, a, b, first, second, argument = graph.outputs
    labels = Labels(
        Graph(graph.nodes, (f,)),
        (
            Label("p", a, first, 0.0, fits[0].offset),
            Label("r", b, second, 0.0, fits[1].offset),
            Label("s", f, argument, fits[2].slope, fits[2].offset),
        ),
    )
    biases = one.biases + one.slopes[:, 0] * (w + c)  # q = w (u − 1), off by w η y
    steep = 6e14 / w
    keys = np.append(one.slopes, steep), np.append(biases, biases.max() - steep * w * 3.5e-13)
    constant = fits[0].offset + fits[1].offset
    heads = [
        Head(
            "p",
            (Axis([[w, w * eta]], [0.0], keys[0][:, None], keys[1]),),
            np.append(p.values, jump)[:, None],
            ("p",),
        ),
        Head("r", (Axis([[0.0, w_two]], [c_two], two.slopes, two.biases),), r.values, ("r",)),
    ]
    query = np.array([[0.0, 0.0, w_root, w_root]])
    last = Head(
        "s",
        (Axis(query, [w_root * constant + c_root], root.slopes, root.biases),),
        s.values,
        ("s",),
    )
    readout = np.array([[0.0, 0.0, fits[2].slope, fits[2].slope, 1.0]])
    bias = np.array([fits[2].slope * constant + fits[2].offset])
    box = target.box.low_array, target.box.high_array
    network = Network(("x", "y"), (Layer(tuple(heads)), Layer((last,))), readout, bias, ("f",), box, labels=labels)
    certificate = prove(network, target)
    assert_sound(certificate, network, target)
    assert certificate.error[0] > 100  # the jump is reached
