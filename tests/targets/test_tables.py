"""Numbers on a grid as targets: what they mean, what is refused, and that a network for them is what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import interpolate
from scipy.interpolate import CubicSpline, RegularGridInterpolator

import attnfun as af
from attnfun.language import BallAlgebra, GradientAlgebra, Graph, NotAnalytic, SeriesAlgebra, precision, run
from attnfun.language.enclosures import ball, lower, upper
from attnfun.language.series import Kink, series_length
from attnfun.language.table import Table
from products import few

Array = Any
SPLINES: dict[str, Callable[[Array, Array], Any]] = {
    "not-a-knot": CubicSpline,
    "natural": lambda x, y: CubicSpline(x, y, bc_type="natural"),
    "clamped": lambda x, y: CubicSpline(x, y, bc_type="clamped"),
    "pchip": interpolate.PchipInterpolator,
    "akima": interpolate.Akima1DInterpolator,
    "b-spline": interpolate.make_interp_spline,
    "b-spline of lines": lambda x, y: interpolate.make_interp_spline(x, y, k=1),
}


def drawn_line(seed: int, n: int = 12) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(-2, 3, n)), rng.normal(size=n)


def drawn_grid(seed: int, *shape: int) -> tuple[tuple[Array, ...], Array]:
    rng = np.random.default_rng(seed)
    return tuple(np.sort(rng.uniform(0, 2, n)) for n in shape), rng.normal(size=shape)


def attacked(net: Any, truth: Callable[[Array], Array], seed: int = 3) -> float:
    """The largest error at random points, at the edges of the grid and close to them."""
    box, rng = net.target.box, np.random.default_rng(seed)
    X = box.probe(20_000, rng)
    for k, t in enumerate(net.target.graph.nodes[net.target.graph.outputs[0]].value.knots):
        near = np.concatenate([t + s * d for d in (0, 1e-9, 1e-6, 1e-4, 1e-2) for s in (-1, 1)])
        near = near[(near >= box.low[k]) & (near <= box.high[k])]
        Y = box.sample(4 * len(near), rng)
        Y[:, k] = np.tile(near, 4)
        X = np.concatenate([X, Y])
    return float(np.abs(net(X).reshape(len(X), -1) - truth(X).reshape(len(X), -1)).max())


@pytest.mark.parametrize("name", few(SPLINES, 3))
def test_a_spline_of_scipy_is_taken_for_what_it_computes(name: str) -> None:
    x, y = drawn_line(1)
    spline = SPLINES[name](x, y)
    net = af.compile(spline, eps=1e-2)
    assert net.certificate.status == "proved" and net.certificate.method == "tables"
    assert attacked(net, lambda X: spline(X[:, 0])) <= net.certificate.error[1] + 1e-11


@pytest.mark.parametrize("kind", ["linear", "cubic", "pchip", "akima"])
def test_a_table_of_one_variable_is_scipys_interpolant(kind: str) -> None:
    x, y = drawn_line(2)
    truth = {
        "linear": lambda u: np.interp(u, x, y), "cubic": CubicSpline(x, y),
        "pchip": interpolate.PchipInterpolator(x, y), "akima": interpolate.Akima1DInterpolator(x, y),
    }[kind]  # fmt: skip
    net = af.compile(af.table(x, y, kind=kind), eps=1e-3)
    assert attacked(net, lambda X: truth(X[:, 0])) <= net.certificate.error[1] + 1e-11
    assert net.target.domain.startswith("x=")


@pytest.mark.parametrize("seed", few(range(12), 3))
def test_random_tables_of_one_variable_keep_their_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, eps = int(rng.integers(2, 150)), 10 ** rng.uniform(-4, -1)
    x = np.cumsum(10 ** rng.uniform(-2, 1, n))
    y = np.sin(x) + rng.choice([0, 1e-3, 1]) * rng.normal(size=n)
    table = af.table(x, y, kind=str(rng.choice(["linear", "cubic", "pchip"])))
    net = af.compile(table, eps=eps)
    assert net.certificate.status == "proved" and net.certificate.error[1] <= eps
    assert attacked(net, lambda X: table(X[:, 0])) <= net.certificate.error[1] + 1e-11 * np.abs(y).max()


@pytest.mark.parametrize(("shape", "method"), [((6, 5), "linear"), ((5, 6), "cubic"), ((3, 4, 3), "linear")])
def test_a_grid_of_scipy_is_taken_for_what_it_computes(shape: tuple[int, ...], method: str) -> None:
    axes, Z = drawn_grid(4, *shape)
    given = RegularGridInterpolator(axes, Z, method=method)
    net = af.compile(given, eps=0.05)
    assert net.certificate.status == "proved" and net.cost.heads == 1
    assert attacked(net, given) <= net.certificate.error[1] + 1e-9


def test_large_tables_of_noise_are_proved_in_one_head() -> None:
    rng = np.random.default_rng(5)
    x, y = np.arange(3000.0), rng.uniform(-1, 1, 3000)
    net = af.compile(af.table(x, y), eps=1e-2)
    assert net.certificate.status == "proved" and net.cost.keys <= 2 * 2999
    assert attacked(net, lambda X: np.interp(X[:, 0], x, y)) <= net.certificate.error[1] + 1e-11


def test_smooth_tables_need_few_keys_however_long_they_are() -> None:
    x = np.linspace(0, 6, 5000)
    assert af.compile(af.table(x, np.sin(x)), eps=1e-3).cost.keys < 60


def test_columns_of_values_are_outputs_of_one_head() -> None:
    x, y = drawn_line(6)
    net = af.compile(af.table(x, np.stack([y, y**2], axis=1)), eps=1e-2)
    assert net.cost.heads == 1 and net(x).shape == (len(x), 2)
    assert np.abs(net(x) - np.stack([y, y**2], axis=1)).max() <= net.certificate.error[1] + 1e-12


def test_the_domain_is_that_of_the_table_or_a_part_of_it() -> None:
    x, y = drawn_line(7)
    assert af.compile(af.table(x, y, names=["time"]), eps=0.1).target.box == af.Box(("time",), (x[0],), (x[-1],))
    part = af.compile(af.table(x, y), (x[3], x[5] + 1e-3), 0.1)
    assert part.cost.keys < af.compile(af.table(x, y), eps=0.1).cost.keys
    with pytest.raises(af.InvalidRequest, match="the table holds x="):
        af.compile(af.table(x, y), (x[0] - 1, x[5]), 0.1)


def test_a_grid_may_be_given_by_its_rows_in_any_order() -> None:
    (a, b), Z = drawn_grid(8, 4, 5)
    rows = np.stack([g.ravel() for g in np.meshgrid(a, b, indexing="ij")], axis=1)
    order = np.random.default_rng(0).permutation(len(rows))
    long, short = af.table(rows[order], Z.ravel()[order]), af.table((a, b), Z)
    assert long == short
    columns = {"u": rows[order][:, 0], "v": rows[order][:, 1], "w": Z.ravel()[order]}
    assert af.table(columns).tables == short.tables and af.table(columns).names == ("u", "v")


def test_a_file_holds_the_table_and_proves_again(tmp_path: Path) -> None:
    axes, Z = drawn_grid(9, 4, 3)
    net = af.compile(af.table(axes, Z, kind="cubic"), eps=0.1)
    net.save(tmp_path / "t.safetensors")
    again = af.load(tmp_path / "t.safetensors")
    assert again.target == net.target and np.array_equal(again(net.target.box.low), net(net.target.box.low))
    assert af.verify(tmp_path / "t.safetensors").status == "proved"
    assert af.verify(tmp_path / "t.safetensors", target=af.table(axes, Z, kind="cubic")).status == "proved"
    with pytest.raises(af.InvalidRequest, match="not about"):
        af.verify(tmp_path / "t.safetensors", target=af.table(axes, Z))


def test_weights_of_another_table_are_refuted() -> None:
    from attnfun.kinds.function.prove import prove
    from attnfun.language.function import Function

    x, y = drawn_line(10)
    net = af.compile(af.table(x, y), eps=1e-3)
    moved = y.copy()
    moved[4] += 0.01
    certificate = prove(net.network, Function.on(af.table(x, moved), None), eps=1e-3)
    assert certificate.status == "refuted" and certificate.error[0] >= 0.0099


def test_a_table_may_stand_within_a_formula() -> None:
    x, y = drawn_line(11, 5)
    table = af.table(x, y)
    net = af.compile(lambda u: 2 * table(u) + np.sin(u), {"u": (float(x[0]), float(x[-1]))}, 0.05)
    u = np.linspace(x[0], x[-1], 5001)
    assert np.abs(net(u) - 2 * np.interp(u, x, y) - np.sin(u)).max() <= net.certificate.error[1] + 1e-12


X3, Y3 = [1.0, 2.0, 3.0], [0.0, 1.0, 0.5]
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "not sorted": (lambda: af.table([1, 3, 2], Y3), "x must increase, but 2.0 follows 3.0"),
    "twice": (lambda: af.table([1, 2, 2], Y3), "2.0 stands twice"),
    "nan value": (lambda: af.table(X3, [0, np.nan, 1]), "entry 2 is nan"),
    "infinite coordinate": (lambda: af.table([1, 2, np.inf], Y3), "entry 3 is inf"),
    "one row": (lambda: af.table([1], [1]), "1 point; two at least"),
    "no rows": (lambda: af.table([], []), "two at least"),
    "lengths": (lambda: af.table(X3, [1, 2]), "values of shape"),
    "transposed": (lambda: af.table((X3, [0, 1]), np.zeros((2, 3))), "for a grid of shape"),
    "same point": (lambda: af.table([[0, 0], [0, 1], [0, 0], [1, 1]], [1, 2, 3, 4]), "rows 1 and 3 are the same"),
    "no grid": (lambda: af.table([[0, 0], [0, 1], [1, 0]], [1, 2, 3]), r"\[1.0, 1.0\] is missing"),
    "no value": (lambda: af.table(X3), "values are missing"),
    "kind": (lambda: af.table(X3, Y3, kind="wavy"), "kind="),
    "kind of a grid": (lambda: af.table((X3, X3), np.zeros((3, 3)), kind="pchip"), "one variable"),
    "names": (lambda: af.table(X3, Y3, names=["for"]), "no names"),
    "four variables": (lambda: af.table((X3,) * 4, np.zeros((3,) * 4)), "at most 3"),
    "eps": (lambda: af.compile(af.table(X3, Y3)), "eps="),
    "jumps": (lambda: af.compile(interpolate.PPoly([[0.0, 1], [0.0, 3]], [0, 1, 2]), eps=0.1), "no continuous"),
    "degree": (lambda: af.compile(interpolate.PPoly(np.ones((5, 2)), [0, 1, 2]), eps=0.1), "degree"),
    "nearest": (
        lambda: af.compile(RegularGridInterpolator((X3, X3), np.zeros((3, 3)), method="nearest"), eps=0.1), "method"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_one_sentence(name: str) -> None:
    make, said = BAD[name]
    with pytest.raises(af.InvalidRequest, match=said) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_what_rounding_cannot_hold_is_refused_with_an_eps_that_succeeds() -> None:
    rng = np.random.default_rng(12)
    table = af.table(np.arange(400.0), rng.uniform(-1, 1, 400))
    with pytest.raises(af.Infeasible, match="round") as raised:
        af.compile(table, eps=1e-8)
    nearest = raised.value.nearest
    assert nearest is not None and af.compile(table, **nearest).certificate.status == "proved"


# ---------------------------------------------------------------- the operation


def tables(seed: int) -> list[Table]:
    x, y = drawn_line(seed, 9)
    axes, Z = drawn_grid(seed, 5, 4)
    made = [af.table(x, y), af.table(x, y, kind="akima"), af.table(axes, Z), af.table(axes, Z, kind="cubic")]
    found = [one.tables[0] for one in made]
    return [*found, *(t.derived(k) for t in found for k in range(t.dim))]


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_balls_hold_all_values_over_boxes_of_every_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for table in tables(seed):
        for _ in range(40):
            size = 10 ** rng.uniform(-9, 1)
            low = [rng.uniform(t[0] - 0.3, t[-1]) for t in table.knots]
            low = [float(rng.choice(t)) if rng.random() < 0.3 else a for t, a in zip(table.knots, low, strict=True)]
            high = [a + size * rng.random() for a in low]
            with precision(64):
                found = table.ball([ball(a, b) for a, b in zip(low, high, strict=True)])
            seen = table.at(*(a + (b - a) * rng.random(100) for a, b in zip(low, high, strict=True)))
            if found.is_finite():
                scale = 1e-12 * (1 + np.abs(seen).max()) * (1 + np.abs(table.jets).max()) ** 2
                assert lower(found) - scale <= seen.min() and seen.max() <= upper(found) + scale


def test_series_are_taylors_and_stop_at_knots() -> None:
    x, y = drawn_line(3, 8)
    spline = CubicSpline(x, y)
    made = af.table(x, y, kind="cubic")
    graph, u = made.graph(("x",)), float(x[3] + 0.3 * (x[4] - x[3]))
    with precision(128), series_length(4):
        algebra = SeriesAlgebra(4)
        (found,) = run(graph, algebra, {"x": algebra.variable(ball(u, u))})
        row = [float(v.mid()) for v in algebra.coefficients(found)]
        assert np.allclose(row, [spline(u), spline(u, 1), spline(u, 2) / 2, spline(u, 3) / 6], rtol=1e-9)
        with pytest.raises(Kink):
            run(graph, algebra, {"x": algebra.variable(ball(x[3], x[3]))})


def test_gradients_are_those_of_the_interpolant_and_hold_both_sides_of_a_knot() -> None:
    axes, Z = drawn_grid(5, 6, 5)
    made = af.table(axes, Z)
    graph = made.graph(("x", "y"))
    with precision(64):
        algebra = GradientAlgebra(BallAlgebra(), 2)
        env = algebra.variables(
            ("x", "y"), {"x": ball(axes[0][2], axes[0][2]), "y": ball(axes[1][1], axes[1][1] + 1e-3)}
        )
        (found,) = run(graph, algebra, env)
    for side in (-1e-7, 1e-7):
        step, at = 1e-8, np.array([axes[0][2] + side, axes[1][1] + 5e-4])
        slope = (made(at[0] + step, at[1]) - made(at[0] - step, at[1])) / (2 * step)
        assert lower(found.partials[0]) - 1e-5 <= slope <= upper(found.partials[0]) + 1e-5


def test_a_graph_with_a_table_is_read_back_as_it_was_and_no_other() -> None:
    graph = af.table(*drawn_line(1)).graph(("x",))
    data = json.loads(json.dumps(graph.to_json()))
    assert Graph.from_json(data) == graph
    for spoil in (
        lambda row: row.update(knots=[[1.0, 1.0]]), lambda row: row.update(shape=[3, 1]),
        lambda row: row["jets"].append(float("nan")), lambda row: row["jets"].pop(), lambda row: row.pop("jets"),
        lambda row: row.update(knots=7), lambda row: row["knots"][0].reverse(), lambda row: row["jets"].__setitem__(0,
        "1"),
    ):  # fmt: skip
        copy = json.loads(json.dumps(data))
        spoil(copy[1][2])
        with pytest.raises(af.DamagedFile):
            Graph.from_json(copy)


def test_complex_values_are_refused() -> None:
    made = af.table(*drawn_line(1))
    from attnfun.language import ArrayAlgebra, ComplexBallAlgebra

    for algebra, value in ((ArrayAlgebra(), np.array([1j])), (ComplexBallAlgebra(), 1j)):
        with pytest.raises(NotAnalytic):
            run(made.graph(("x",)), algebra, {"x": value})
