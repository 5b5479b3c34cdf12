"""Method cells: walls, leaks, ranges over cells, L^p norms; irregular partitions made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.cells import cells, leak, prove_by_cells, walls
from attnfun.certify.rounding import cell_rounding
from attnfun.certify.view import LineAxis, Undecided, view
from attnfun.errors import Infeasible
from attnfun.kinds.function.prove import prove
from attnfun.language import precision
from attnfun.network import Network, evaluate, literal, rounded
from certify.hunting import BOUNDS, assert_sound, function, line_network, with_arrays, worst_error
from network.networks import by_every_route


def axis(slopes: list[float], biases: list[float], w: float = 1.0, c: float = 0.0) -> LineAxis:
    return LineAxis(0, w, c, np.array(slopes), np.array(biases))


def irregular(rng: np.random.Generator, keys: int, sharp: float) -> tuple[list[float], list[float]]:
    """Tangent lines of sharp·x² at random points: any order of gaps, breakpoints at the middles."""
    t = np.sort(rng.uniform(-1, 1, keys))
    return list(2 * sharp * t), list(-sharp * t**2)


def lp_error(network: Network, target: str, p: float, points: int = 400_001) -> float:
    f = function(target)
    X = (-1 + 2 * (np.arange(points) + 0.5) / points)[:, None]
    e = np.abs(evaluate(network, X) - f.values(X))
    top = e.max(axis=0)
    return float(np.max(top * np.mean((e / top) ** p, axis=0) ** (1 / p)))


def test_walls_are_where_neighbours_meet() -> None:
    with precision(64):
        found = walls(axis([-2.0, 0.0, 4.0], [-1.0, 0.0, -2.0]))
    assert [float(t.mid()) for t in found.points] == [-0.5, 0.5]
    assert [float(g.mid()) for g in found.gaps] == [2.0, 4.0]
    assert found.least == pytest.approx(2.0)


@pytest.mark.parametrize("w", [1.0, -1.0, 0.3, -7.0])
def test_walls_follow_the_query_map(w: float) -> None:
    slopes, biases = irregular(np.random.default_rng(3), 6, 50.0)
    order = 1 if w > 0 else -1
    with precision(64):
        found = walls(axis(slopes[::order], biases[::order], w, 0.2))
    for i, t in enumerate(found.points):
        q = w * float(t.mid()) + 0.2
        s, b = slopes[::order], biases[::order]
        assert s[i] * q + b[i] == pytest.approx(s[i + 1] * q + b[i + 1], abs=1e-9)


@pytest.mark.parametrize(
    ("slopes", "biases"),
    [([0.0, 0.0], [0.0, 1.0]), ([1.0, 0.0], [0.0, 0.0]), ([0.0, 1.0, 2.0], [0.0, -5.0, 0.0])],
)
def test_what_is_no_partition_is_undecided(slopes: list[float], biases: list[float]) -> None:
    with precision(64), pytest.raises(Undecided):
        walls(axis(slopes, biases))


@pytest.mark.parametrize("g", [1e-300, 1e-17, 1e-13, 5e-13, 1e-12, 1e-9, 1e-3, 1.0, 50.0, 1e4])
def test_the_leak_is_never_below_its_formula(g: float) -> None:
    """1 − e^−g for a tiny g is rounding error, of either sign, unless expm1 is used."""
    with precision(64):
        w = walls(axis([-1.0, 0.0, 1.0], [0.0, 0.0, -g]))
    assert 0 < w.least <= g * (1 + 1e-9)
    for lam in (6.0, 38.0):
        exact = 2 * math.exp(-lam) / -math.expm1(-w.least)
        assert exact <= leak(w, lam) <= exact * (1 + 1e-9) or leak(w, lam) == math.inf


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("value", [1e-11, 5e-11, 1e-10, 1e-9])
@pytest.mark.parametrize("gap", [1e-13, 3e-13, 1e-12])
def test_nearly_coincident_breakpoints_prove_nothing_small(norm: float, value: float, gap: float) -> None:
    network = line_network([-50.0, 0.0, 50.0], [0.0, 0.0, -gap], [0.0, value, 2 * value])
    f = function("0.5 + 0.1*x")
    certificate = prove(network, f, norm=norm, eps=0.1)
    assert certificate.status not in BOUNDS
    assert certificate.error[1] >= 0.4


def test_the_leak_bounds_the_weight_of_foreign_cells() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        slopes, biases = irregular(rng, int(rng.integers(2, 12)), 10 ** rng.uniform(0, 4))
        a = axis(slopes, biases)
        with precision(64):
            w = walls(a)
            for lam in (6.0, 12.0):
                grid = cells(w, -1.0, 1.0, lam)
                x = np.concatenate([np.linspace(-1, 1, 4001), [float(t.mid()) for t in w.points]])
                x = x[(x >= -1) & (x <= 1)]
                logits = np.outer(x, slopes) + biases
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                p /= p.sum(axis=1, keepdims=True)
                inside = np.zeros_like(p, dtype=bool)
                core = np.zeros_like(p, dtype=bool)
                for j, lo, hi, ca, cb in zip(
                    grid.index, grid.low, grid.high, grid.core_low, grid.core_high, strict=True
                ):
                    inside[:, j] = (x >= lo) & (x <= hi)
                    core[:, j] = (x >= ca) & (x <= cb)
                assert inside.any(axis=1).all()
                assert ((p * ~inside).sum(axis=1) <= leak(w, lam) * (1 + 1e-9)).all()
                alone = core.any(axis=1)
                assert (core.sum(axis=1) <= 1).all()
                assert ((p * ~core).sum(axis=1)[alone] <= leak(w, lam) * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("norm", [1.0, 2.0, 7.0, math.inf])
def test_irregular_partitions(seed: int, norm: float) -> None:
    rng = np.random.default_rng([seed, 1])
    slopes, biases = irregular(rng, int(rng.integers(1, 15)), 10 ** rng.uniform(1, 4))
    target = str(rng.choice(["sin(3*x)", "abs(x) - 0.3", "x**2", "sign(x - 0.2)" if norm < math.inf else "cos(2*x)"]))
    f = function(target)
    middles = [s / 2 / max(slopes[-1] - slopes[0], 1e-9) for s in slopes]
    network = line_network(slopes, biases, f.values(np.clip(np.array(middles)[:, None], -1, 1))[:, 0])
    seen = view(network, f.box.low_array, f.box.high_array)
    bound = prove_by_cells(seen, f, norm, 0.1)
    if math.isinf(norm):
        X = np.linspace(-1, 1, 20001)[:, None]
        assert bound.low * (1 - 1e-9) <= bound.high
        assert np.abs(evaluate(network, X) - f.values(X)).max() <= bound.high + 1e-12
    else:
        found = lp_error(network, target, norm)
        assert bound.low * (1 - 1e-3) <= found <= bound.high * (1 + 1e-3)


@pytest.mark.parametrize(
    ("p", "scale"), [(1, 1.0), (1.5, 0.05), (100, 1e-6), (150, 0.05), (400, 0.05), (400, 1.0), (1e6, 0.05)]
)
def test_large_p_does_not_underflow_into_a_proof(p: float, scale: float) -> None:
    """e^p underflows for p in the hundreds; the norm itself tends to the sup norm."""
    target = f"{scale}*sin(3*x)"
    slopes = np.linspace(-1, 1, 9) * 4000
    values = function(target).values((slopes / 4000)[:, None])[:, 0]
    network = line_network(slopes, -(slopes**2) / 8000, values)
    f = function(target)
    certificate = prove(network, f, norm=p, eps=scale)
    assert certificate.status is Status.PROVED
    found = lp_error(network, target, p)
    assert certificate.error[0] * (1 - 1e-3) <= found <= certificate.error[1] * (1 + 1e-3)
    if (p, scale) == (400, 0.05):
        assert prove(network, f, norm=p, eps=found / 2).status not in BOUNDS


@pytest.mark.parametrize("domain", ["x=0:1e-170;y=0:1e-170", "x=0:1e140;y=-1e140:1e140", "x=-1:1;y=0:1e-150"])
def test_volumes_far_from_one(domain: str) -> None:
    """A volume of 1e-340 is 0 in floats; the normalised norm must not notice."""
    box = function("x", domain).box
    a, b = (h - lo for lo, h in zip(box.low, box.high, strict=True))
    f = function(f"x/{a!r} + y/{b!r}".replace("+1", "1"), domain) if max(a, b) < 1e-160 else function("3", domain)
    network = Network(box.names, (), np.zeros((1, 2)), np.zeros(1), ("f",), (box.low_array, box.high_array))
    certificate = prove(network, f, norm=2.0, eps=0.01)
    assert certificate.status not in BOUNDS


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_black_boxes_rest_on_their_lipschitz_constant(norm: float) -> None:
    net = af.compile(lambda x: abs(x) if x > 0 else -x / 2, "x=-1:1", 0.05, lipschitz=1.0, norm=norm)
    certificate = net.certificate
    assert certificate.status is Status.CONDITIONAL
    assert any("Lipschitz constant 1 " in h for h in certificate.hypotheses)
    X = np.linspace(-1, 1, 5001)[:, None]
    assert np.abs(net(X) - net.target.values(X)[:, 0]).max() <= certificate.error[1] or norm == 2.0


def test_the_whole_box_is_covered_when_cells_lie_outside() -> None:
    """Cells beyond the box, and a box that only the first cell meets."""
    slopes, biases = [0.0, 2000.0, 4000.0], [0.0, -1e4, -3e4]  # walls at 5 and 10
    f = function("x")
    for values in ([0.0, 7.0, 9.0], [0.5, 0.0, 0.0]):
        network = line_network(slopes, biases, values)
        certificate = prove(network, f)
        assert_sound(certificate, network, f)
        assert certificate.error[1] >= 1


def test_sharp_cells_reach_the_oscillation() -> None:
    net = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.2, method="partition", temperature="sharp")
    assert net.certificate.method == "cells"
    assert net.certificate.slack <= 1.1
    worse = with_arrays(net.network, {"layer0/head0/values": -net.network.heads[0].values})
    assert prove(worse, net.target, eps=0.2).status is Status.REFUTED


def test_heads_that_are_no_lookup_table_are_undecided() -> None:
    net = af.compile("abs(x)", "x=-1:1", 0.1, method="partition")
    shifted = with_arrays(net.network, {"readout_bias": np.array([0.1])})
    seen = view(shifted, net.target.box.low_array, net.target.box.high_array)
    with pytest.raises(Undecided):
        prove_by_cells(seen, net.target, math.inf, 0.1)
    assert_sound(prove(shifted, net.target), shifted, net.target)


# ---------------------------------------------------------------- as computed


def wall_points(network: Network, rng: np.random.Generator, count: int) -> np.ndarray:
    """Points at walls, a few float32 steps beside them, and points where the walls of all axes meet."""
    columns = []
    for a in network.heads[0].axes:
        k, b, c = a.slopes[:, 0], a.biases, float(a.offset[0])
        t = (b[:-1] - b[1:]) / (k[1:] - k[:-1]) - c
        x = rng.choice(t, count) * (1 + rng.integers(-6, 7, count) * 2.0**-24)
        columns.append(np.clip(x, network.low[len(columns)], network.high[len(columns)]))
    X = np.stack(columns, axis=1)
    X[::3] = network.low + (network.high - network.low) * rng.random((len(X[::3]), X.shape[1]))
    ends = np.where(rng.random(X[1::3].shape) < 0.5, network.low, network.high)
    X[1::3] = np.where(rng.random(ends.shape) < 0.3, ends, X[1::3])
    return X


def smooth_target(rng: np.random.Generator, names: str) -> str:
    return " + ".join(f"{rng.uniform(0.5, 2):.2f}*{rng.choice(['sin', 'cos', 'abs'])}(2*{n})" for n in names)


@pytest.mark.parametrize("seed", [*range(6), 33, 36])
def test_float32_partitions_are_proved_and_no_route_passes_the_bound(seed: int) -> None:
    rng = np.random.default_rng([seed, 32])
    names = "xyz"[: 1 + seed % 3]
    low, width = rng.uniform(-4, 4, len(names)), rng.uniform(1, 3, len(names))
    domain = {n: (float(a), float(a + w)) for n, a, w in zip(names, low, width, strict=True)}
    eps = float([0.01, 0.15, 0.6][len(names) - 1] * rng.uniform(1, 3))
    sharp = {"method": "partition", "temperature": "sharp"}
    net = af.compile(smooth_target(rng, names), domain, eps, dtype="float32", **sharp)
    twin = af.compile(net.target, domain, eps, **sharp) if seed < 3 else None
    assert net.certificate.status is Status.PROVED and net.certificate.error[1] <= eps
    assert twin is None or net.network.cost.keys <= 1.2 * twin.network.cost.keys
    X = wall_points(net.network, rng, 600)
    truth = net.target.values(X)
    found = by_every_route(net.network, X)
    if net.network.cost.keys <= 20_000:
        found["literal"] = literal(net.network, "cross").run(X[:100])
    for route, values in found.items():
        assert np.abs(values.astype(np.float64) - truth[: len(values)]).max() <= net.certificate.error[1], route


def test_torch_attention_in_float32_stays_within_the_bound_at_walls() -> None:
    torch = pytest.importorskip("torch")
    for target, domain, eps in (("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.2), ("sin(3*x)", "x=5:7", 0.02)):
        net = af.compile(target, domain, eps, method="partition", dtype="float32")
        X = wall_points(net.network, np.random.default_rng(4), 300)
        for form in ("self", "cross"):
            found = net.to_torch(torch.float32, form=form)(torch.tensor(X, dtype=torch.float32)).double().numpy()
            assert np.abs(found.reshape(300) - net.target.values(X)[:, 0]).max() <= net.certificate.error[1], form


@pytest.mark.parametrize("seed", range(10))
def test_computed_weights_outside_the_inflated_cells_leak_what_is_proved(seed: int) -> None:
    """The worst that the model of rounding allows: logits of bad keys up by d, of good ones down, queries off by δ."""
    rng = np.random.default_rng([seed, 8])
    slopes, biases = irregular(rng, int(rng.integers(3, 20)), 10 ** rng.uniform(6, 7))
    keys = rounded(slopes, "float32"), rounded(biases, "float32")
    network = line_network(*keys, np.arange(len(slopes)), dtype="float32")
    seen = view(network, network.low, network.high)
    d, (shift,), _ = cell_rounding(seen, seen.heads[0], "float32")
    assert d > 0.5 and shift > 0
    axis_ = seen.heads[0].axes[0]
    lam = 12 + 2 * d
    with precision(64):
        w = walls(axis_)
        grid = cells(w, -1.0, 1.0, lam, shift)
    x = np.sort(np.concatenate([rng.uniform(-1, 1, 400), grid.low, grid.high, grid.high + 1e-12, grid.low - 1e-12]))
    x = x[(x >= -1) & (x <= 1)]
    good = np.zeros((len(x), len(slopes)), dtype=bool)
    good[:, grid.index] = (x[:, None] >= grid.low) & (x[:, None] <= grid.high)
    for off in (-shift, 0.0, shift):
        logits = np.outer(x + off, axis_.slopes) + axis_.biases + np.where(good, -d, d)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        leaked = np.where(good, 0.0, p).sum(axis=1) / p.sum(axis=1)
        assert (leaked <= math.exp(2 * d) * leak(w, lam) * (1 + 1e-6)).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_spoilt_partition_is_refuted_and_a_sound_one_never(dtype: str) -> None:
    net = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.4, method="partition", dtype=dtype)
    seen = worst_error(net.network, net.target, points=1000, rounds=6)[0]
    assert prove(net.network, net.target, eps=0.5 * seen).status is Status.REFUTED
    for share in (1.0, 1.02, 1.1):
        assert prove(net.network, net.target, eps=share * net.certificate.error[1]).status is Status.PROVED
    values = net.network.heads[0].values.copy()
    values[3, 4] += 1.0
    worse = with_arrays(net.network, {"layer0/head0/values": rounded(values, dtype)})
    assert prove(worse, net.target, eps=0.4).status is Status.REFUTED


def test_what_float32_cannot_resolve_is_refused_for_that_reason() -> None:
    with pytest.raises(Infeasible, match="float32 may move walls") as refused:
        af.compile("sin(x)", "x=-3:3", 0.001, method="partition", dtype="float32")
    assert refused.value.nearest == {"dtype": "float64"}
