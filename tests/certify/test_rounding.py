"""The rounding part: exact heads in balls against every way of evaluating them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.exact import network_at
from attnfun.certify.rounding import EXP_UNITS, form_rounding, hypotheses, line_bounds, rounding_bound, weights_on_boxes
from attnfun.certify.view import HeadView, view
from attnfun.kinds.function.prove import prove
from attnfun.language import precision
from attnfun.network import Axis, Head, Layer, Network, evaluate, literal, rounded, routes
from certify.hunting import BOUNDS, Array, function, line_network
from network.networks import by_every_route
from products import THOROUGH, few

U = {"float64": 2.0**-53, "float32": 2.0**-24}


def exact(network: Network, X: Array) -> Array:
    """The network in real arithmetic at the points, rounded once to float64."""
    seen = view(network, network.low, network.high)
    with precision(200):
        return np.array([[float(v.mid()) for v in network_at(seen, x)] for x in X])


def product_network(rng: np.random.Generator, dim: int, dtype: str, far: float) -> Network:
    """A head with axes of every kind, on a box that may lie far from 0."""
    low = rng.uniform(-1, 0, dim) + far
    high = low + rng.uniform(0.5, 2, dim)
    axes, shape = [], []
    for k in range(dim):
        count = int(rng.integers(1, 12 if dim < 3 else 5))
        query = np.zeros((1, dim))
        width = high[k] - low[k]
        query[0, k] = rng.choice([1.0, 2 / width, -1.3])
        offset = -query[0, k] * (low[k] + width / 2)
        beta = 10 ** rng.uniform(-1, 3.5)
        t = np.sort(rng.uniform(-1, 1, count))
        slopes, biases = (
            (2 * beta * t, -beta * t * t) if rng.random() < 0.5 else (beta**0.5 * t, rng.normal(size=count))
        )
        axes.append(
            Axis(
                rounded(query, dtype), rounded([offset], dtype), rounded(slopes[:, None], dtype), rounded(biases, dtype)
            )
        )
        shape.append(count)
    values = rng.standard_normal((*shape, 2)) * 10 ** rng.uniform(-3, 4)
    if rng.random() < 0.3:
        values += 1e3
    head = Head("h", tuple(axes), rounded(values, dtype), ("u", "v"))
    readout = rounded(rng.standard_normal((2, dim + 2)), dtype)
    names = tuple("xyz"[:dim])
    return Network(
        names, (Layer((head,)),), readout, rounded(rng.normal(size=2), dtype), ("a", "b"), (low, high), dtype
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(24))
def test_every_route_stays_within_the_bound(seed: int, dtype: str) -> None:
    rng = np.random.default_rng([seed, 2])
    dim = 1 + seed % 3
    network = product_network(rng, dim, dtype, 0.0 if seed % 2 else 10 ** rng.uniform(0, 3))
    bound = rounding_bound(view(network, network.low, network.high), dtype)
    X = network.low + (network.high - network.low) * rng.random((60, dim))
    X[:4] = [network.low, network.high, (network.low + network.high) / 2, network.low]
    truth = exact(network, X)
    found = by_every_route(network, X)
    rounded_points = X.astype(dtype).astype(np.float64)
    if (rounded_points >= network.low).all() and (rounded_points <= network.high).all():
        for form in ("cross", "self"):
            found[form] = literal(network, form).run(X)
    for route, values in found.items():
        assert np.abs(values.astype(np.float64) - truth).max() <= bound, route


def test_torch_stays_within_the_bound() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    for seed in range(12):
        rng = np.random.default_rng([seed, 5])
        dim = 1 + seed % 2
        for dtype in ("float64", "float32"):
            network = product_network(rng, dim, dtype, 0.0)
            bound = rounding_bound(view(network, network.low, network.high), dtype)
            X = network.low + (network.high - network.low) * rng.random((50, dim))
            net = network.to_torch(dtype)
            found = net(torch.tensor(X, dtype=getattr(torch, dtype))).numpy().astype(np.float64)
            assert np.abs(found.reshape(50, -1) - exact(network, X)).max() <= bound


def test_many_keys_and_large_values() -> None:
    m = 200
    rng = np.random.default_rng(1)
    biases = np.array([math.log(math.comb(m, j)) for j in range(m + 1)])
    network = line_network(np.arange(m + 1.0), biases, rng.choice([-1.0, 1.0], m + 1) * 1e6)
    bound = rounding_bound(view(network, network.low, network.high), "float64")
    X = np.linspace(-1, 1, 101)[:, None]
    worst = np.abs(evaluate(network, X) - exact(network, X)).max()
    assert 0 < worst <= bound <= 1e-4


def test_a_partition_far_from_the_origin() -> None:
    net = af.compile("sin(x)", "x=1000:1003", 0.05, method="partition")
    X = np.linspace(1000, 1003, 3001)[:, None]
    part = net.certificate.parts["rounding"]
    for route, found in by_every_route(net.network, X).items():
        assert np.abs(found - exact(net.network, X)).max() <= part, route


# ---------------------------------------------------------------- heads of one axis

KINDS = ("gaussian", "ladder", "one-sided", "lifted", "sharp", "cancelling")


def line_keys(kind: str, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Slopes, biases and values on [−1, 1] of the kinds that constructions make, and of some that they should not."""
    n = int(rng.integers(2, 24))
    t = np.sort(rng.uniform(-1.3, 1.3, n))
    c = 10 ** rng.uniform(0, 2)
    slopes, biases = 2 * c * t, -c * t * t
    values = rng.standard_normal(n) * 10 ** rng.uniform(-2, 2) + rng.choice([0.0, 30.0])
    if kind == "ladder":
        scale = 10.0 ** np.sort(rng.uniform(-1, rng.choice([4, 12]), n))
        slopes, biases = -scale, 0.3 * np.log(scale)
        values = np.log(scale) + rng.normal(size=n)
    if kind in ("one-sided", "lifted"):
        slopes = np.r_[-(10 ** rng.uniform(3, 6)), slopes]
        biases, values = np.r_[biases.max(), biases], np.r_[values[0], values]
    if kind == "lifted":  # by far more than any logit needs
        biases = biases + rng.choice([-1.0, 1.0]) * 10 ** rng.uniform(3, 5)
    if kind == "sharp":
        slopes, biases = slopes * 300, biases * 300
    if kind == "cancelling":
        values = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) * 10 ** rng.uniform(1, 4)
    return slopes, biases, values


def line_case(kind: str, seed: int, dtype: str) -> Network:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    slopes, biases, values = line_keys(kind, rng)
    shift = float(rounded(rng.choice([0.0, 0.3, -40.0]), dtype))
    domain = f"x={-1 - shift!r}:{1 - shift!r}"
    return line_network(rounded(slopes, dtype), rounded(biases, dtype), values, domain, c=shift, dtype=dtype)


def graded(low: float, high: float, centre: float, rng: np.random.Generator) -> Array:
    """Points everywhere, and dense near `centre`, where steep keys change places."""
    near = centre + np.concatenate([s * 10.0 ** rng.uniform(-9, 0, 400) for s in (1, -1)])
    return np.clip(np.concatenate([rng.uniform(low, high, 400), [low, high, centre], near]), low, high)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_on_an_interval_is_no_smaller_than_at_any_of_its_points(kind: str, dtype: str) -> None:
    """Weights that underflow at the centre of a box and rule elsewhere in it are not to be lost."""
    for seed in range(4 if THOROUGH else 2):
        network = line_case(kind, seed, dtype)
        seen: HeadView = view(network, network.low, network.high).heads[0]
        axis, low, high = seen.axes[0], float(network.low[0]), float(network.high[0])
        error, size = line_bounds(axis, seen, low, high, dtype, 1e-9)
        for x in graded(low, high, -axis.c, np.random.default_rng(seed))[::10]:
            at_error, at_size = line_bounds(axis, seen, float(x), float(x), dtype, 1e-9)
            # a box of no width bounds its one point from above, by at most a millionth too much
            assert at_error[0] <= error[0] * (1 + 1e-5) and at_size[0] <= size[0] * (1 + 1e-5), (seed, x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_that_the_model_allows_is_within_the_bound_and_near_it(kind: str) -> None:
    """Every weight, term and sum off by as much as the model of the docstring lets it be, signs against the head."""
    unit = U["float32"]
    for seed in range(6):
        network = line_case(kind, seed, "float32")
        if "local" in routes(network):
            continue  # that route has a count of its own
        seen: HeadView = view(network, network.low, network.high).heads[0]
        axis, n, low, high = seen.axes[0], seen.axes[0].size, float(network.low[0]), float(network.high[0])
        bound = line_bounds(axis, seen, low, high, "float32", 0.0)[0][0]
        q = graded(low, high, -axis.c, np.random.default_rng(seed))[:, None] + axis.c
        logits, v = q * axis.slopes + axis.biases, seen.values[:, 0]
        gap = logits.max(axis=1, keepdims=True) - logits
        p = np.exp(-gap)
        h = (p @ v) / p.sum(axis=1)
        d = unit * (np.abs(q * axis.slopes) + np.abs(logits) + 2 * gap + EXP_UNITS["float32"] * (1 + n // 64))
        g = (n + 8) * unit
        for sign in (1, -1):
            shifted = sign * np.where(v >= h[:, None], d, -d) - gap
            moved = np.exp(shifted - shifted.max(axis=1, keepdims=True))
            numerator = (moved * (v + sign * g * np.abs(v))).sum(axis=1)
            for tilt in (1 + g, 1 - g):
                error = np.abs(numerator / (moved.sum(axis=1) * tilt) - h)
                assert error.max() <= bound, (seed, sign)
        first = (p * d * np.abs(v - h[:, None])).sum(axis=1) + g * (p @ np.abs(v) + p.sum(axis=1) * np.abs(h))
        assert bound <= 1.2 * (first / p.sum(axis=1)).max(), seed  # the points are dense enough to come near it


@pytest.mark.parametrize("kind", KINDS)
def test_no_computation_of_a_float32_head_passes_its_bound(kind: str) -> None:
    """NumPy's routes and torch's attention, at many points and at the neighbours of the worst of them."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    for seed in range(6):
        network = line_case(kind, seed, "float32")
        bound = rounding_bound(view(network, network.low, network.high), "float32")
        module = network.to_torch("float32")
        low, high = float(network.low[0]), float(network.high[0])
        x = graded(low, high, -float(network.heads[0].axes[0].offset[0]), np.random.default_rng(seed))
        for _ in range(4):
            X = np.clip(x.astype(np.float32).astype(np.float64), low, high)[:, None]
            truth = exact_lines(network, X)
            found = list(by_every_route(network, X).values())
            found += [module(torch.tensor(X, dtype=torch.float32)).numpy().reshape(-1, 1)]
            error = np.max([np.abs(y.astype(np.float64) - truth) for y in found], axis=0)[:, 0]
            assert error.max() <= bound, (seed, kind)
            worst = X[np.argsort(error)[-30:], 0].astype(np.float32)
            x = np.concatenate([worst + k * np.spacing(worst) for k in range(-12, 13)]).astype(np.float64)


@pytest.mark.parametrize("seed", range(40))
def test_the_weights_on_a_box_are_between_their_bounds(seed: int) -> None:
    """Slopes with a common part of any size, whose mean float64 computes badly; all weights in balls."""
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(2, 60)), float(10 ** rng.uniform(-3, 1))
    common = rng.choice([0.0, 1.0, 1e6, 1e12, 1e15]) * rng.choice([1, -1])
    slope = common + 10 ** rng.uniform(-2, 2) * rng.normal(size=n)
    logits = 10 ** rng.uniform(-1, 2.5) * rng.normal(size=n)
    lag = logits.max() - logits
    p, grown, least, off = (a[0] for a in weights_on_boxes(lag[None], slope, np.array([[r]]), np.zeros((1, n))))
    tiny = arb(2.0**-1022)
    with precision(200):
        for s in (-r, r, *rng.uniform(-r, r, 3)):
            terms = [(-arb(float(g)) + arb(float(k)) * arb(float(s))).exp() for g, k in zip(lag, slope)]
            total = sum(terms, arb(0))
            for j in range(n):
                weight = terms[j] / total
                assert not weight > arb(float(grown[j])) + tiny and not weight < arb(float(least[j])) - tiny, (j, s)
        terms = [(-arb(float(g))).exp() for g in lag]
        total = sum(terms, arb(0))
        true = sum((t * arb(float(k)) for t, k in zip(terms, slope)), arb(0)) / total
        assert abs(float(p @ slope) - true) <= arb(float(off[0] * (p @ np.abs(slope))))


def exact_lines(network: Network, X: Array) -> Array:
    """The head in extended precision: far more than float32's rounding needs."""
    head = network.heads[0]
    axis = head.axes[0]
    q = X.astype(np.longdouble) * np.longdouble(axis.query[0, 0]) + np.longdouble(axis.offset[0])
    logits = q * axis.slopes[:, 0] + axis.biases
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(((e @ head.values.astype(np.longdouble)) / e.sum(axis=1, keepdims=True)), dtype=np.float64)


@pytest.mark.parametrize("seed", range(8))
def test_affine_forms_in_any_order_stay_within_their_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    row = rounded(rng.choice([0.0, 1.0, -0.25, 2.0, 0.3, -1.7, 1e-3], n), "float32")
    offset = float(rounded(rng.choice([0.0, 1.0, -3.7]), "float32"))
    sizes, fresh = rng.uniform(0.5, 40, n), rng.random(n) < 0.5
    points = rng.uniform(-sizes, sizes, (2000, n))
    points[:, ~fresh] = points[:, ~fresh].astype(np.float32)  # computed coordinates are float32 numbers
    truth = points @ row + offset
    bound = form_rounding(row, offset, sizes, fresh, float(np.abs(truth).max()), "float32")
    single = points.astype(np.float32)
    for _ in range(6):
        terms = [single[:, k] * np.float32(row[k]) for k in range(n) if row[k]] + [np.full(2000, np.float32(offset))]
        while len(terms) > 1:  # any tree of additions
            i, j = rng.choice(len(terms), 2, replace=False)
            terms = [t for m, t in enumerate(terms) if m not in (i, j)] + [terms[i] + terms[j]]
        assert terms[0].dtype == np.float32
        assert np.abs(terms[0].astype(np.float64) - truth).max() <= bound


# ---------------------------------------------------------------- the ends of the floating-point range


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 3e38), ("float32", 2e38), ("float64", 1.7e308), ("float64", 9e307)]
)
def test_sums_that_overflow_have_no_finite_bound(dtype: str, size: float) -> None:
    """Two keys of equal weight: the numerator is 2·size before it is divided by 2."""
    network = line_network([0.0, 1.0], [0.0, 0.0], rounded([size, size], dtype), dtype=dtype)
    with np.errstate(all="ignore"):
        assert not np.isfinite(evaluate(network, np.array([[0.0]]))).all()
    assert rounding_bound(view(network, network.low, network.high), dtype) == math.inf
    certificate = prove(network, function("1e300*x") if dtype == "float64" else function("1e38*x"), eps=1e308)
    assert certificate.status not in BOUNDS


@pytest.mark.parametrize("method", [pytest.param("partition", marks=pytest.mark.slow), "bernstein"])
def test_compile_does_not_promise_what_overflows(method: str) -> None:
    try:
        net = af.compile("3e38*sin(x)", "x=-1:1", 1.5e37, dtype="float32", method=method)
    except af.AttnfunError:
        return
    X = np.linspace(-1, 1, 20001)[:, None]
    assert np.abs(net(X) - net.target.values(X)[:, 0]).max() <= net.certificate.error[1]


def test_logits_and_queries_that_overflow() -> None:
    for slopes, w, domain in (([0.0, 1e300], 1.0, "x=-1e10:1e10"), ([0.0, 1.0], 1e300, "x=-1e10:1e10")):
        network = line_network(slopes, [0.0, 0.0], [0.0, 1.0], domain, w=w)
        assert rounding_bound(view(network, network.low, network.high), "float64") == math.inf
    network = line_network([0.0, 2.0**100], [0.0, 0.0], [0.0, 1.0], "x=-1e10:1e10", dtype="float32")
    assert rounding_bound(view(network, network.low, network.high), "float32") == math.inf


@pytest.mark.parametrize("scale", few([1e-42, 1e-44, 1e-40, 1e-38], 2))
def test_float32_values_that_underflow(scale: float) -> None:
    rng = np.random.default_rng(3)
    values = rounded(rng.standard_normal(9) * scale, "float32")
    network = line_network(np.arange(9.0), np.zeros(9), values, dtype="float32")
    bound = rounding_bound(view(network, network.low, network.high), "float32")
    X = np.linspace(-1, 1, 501).astype(np.float32).astype(np.float64)[:, None]
    truth = exact(network, X)
    for route in ("auto", *routes(network)):
        assert np.abs(evaluate(network, X, route).astype(np.float64) - truth).max() <= bound
    for eps in (2e-44, 1e-44):
        try:
            net = af.compile("1e-42*sin(3*x)", "x=-1:1", eps, dtype="float32", method="bernstein")
        except af.AttnfunError:
            continue
        assert np.abs(net(X) - net.target.values(X)[:, 0]).max() <= net.certificate.error[1]


@pytest.mark.parametrize("scale", [1e-310, 1e-318])
def test_float64_values_that_underflow(scale: float) -> None:
    network = line_network(np.arange(9.0), np.zeros(9), np.linspace(-1, 1, 9) * scale)
    bound = rounding_bound(view(network, network.low, network.high), "float64")
    X = np.linspace(-1, 1, 201)[:, None]
    seen = view(network, network.low, network.high)
    with precision(200):
        for x, y in zip(X, evaluate(network, X)[:, 0], strict=True):
            assert abs(network_at(seen, x)[0] - float(y)) <= bound


def test_points_are_rounded_to_float32_and_that_is_counted() -> None:
    """Inputs are doubles: a float32 network rounds them first, near 1000 by 3e-5."""
    net = af.compile("sin(2*x)", "x=100:101", 0.02, dtype="float32", method="bernstein", accept="sampled")
    certificate = prove(net.network, net.target)
    X = 100 + np.random.default_rng(0).random((4000, 1))
    assert (
        np.abs(evaluate(net.network, X)[:, 0].astype(np.float64) - exact(net.network, X)[:, 0]).max()
        <= certificate.parts["rounding"]
    )


# ---------------------------------------------------------------- what is said about it


def test_hypotheses_are_printed() -> None:
    said = " ".join(hypotheses("float64"))
    assert "rounding to nearest" in said and "torch on the CPU: exp within 4 ulp in float64" in said
    assert "fused" not in said and "fused attention within 20 ulp" in " ".join(hypotheses("float32"))
    net = af.compile("sin(x)", "x=-1:1", 1e-3)
    assert set(hypotheses("float64")) <= set(net.certificate.hypotheses)
    assert set(net.certificate.parts) == {"construction", "rounding"}


def test_a_bound_that_rounding_alone_breaks_is_not_proved() -> None:
    values = np.array([1e12, -1e12] * 6)
    network = line_network(np.arange(12.0) / 8, np.zeros(12), values)
    f = function("0")
    certificate = prove(network, f, eps=1e-3)
    assert certificate.status not in BOUNDS
    quiet = prove(line_network([0.0, 1.0], [0.0, 0.0], [0.0, 0.0]), f, eps=1e-3)
    assert quiet.status is Status.PROVED and quiet.error[1] < 1e-300
