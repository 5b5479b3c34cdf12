"""What `relation` promises: ranks, refusals with witnesses, compositions, both kinds of towers, torch."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.kinds.relation.definiteness import checked, negative_direction
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from products import few

ONE = {"x": (0, 1)}, {"y": (0, 1)}


def cube(d: int) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    return {f"x{k}": (0, 1) for k in range(d)}, {f"y{k}": (0, 1) for k in range(d)}


def gauss(d: int) -> str:
    return "exp(-2*(" + "+".join(f"(x{k}-y{k})**2" for k in range(d)) + "))"


def dot(d: int) -> str:
    return "exp(" + "+".join(f"x{k}*y{k}" for k in range(d)) + ")"


@pytest.mark.parametrize(
    ("d", "eps", "most"),
    few(
        [
            (1, 1e-2, 3),
            (1, 1e-4, 5),
            (1, 1e-8, 8),
            (2, 1e-2, 13),
            (2, 1e-4, 24),
            (2, 1e-8, 50),
            (3, 1e-2, 56),
            (3, 1e-4, 124),
        ],
        4,
    ),
)
def test_gaussians_need_few_features(d: int, eps: float, most: int) -> None:
    found = af.relation(gauss(d), *cube(d), eps, symmetric=True)
    assert found.certificate.status is Status.PROVED and found.certificate.error[1] <= eps
    assert found.rank_lower <= found.rank <= most


@pytest.mark.parametrize(
    ("d", "eps", "most"),
    few([(1, 1e-2, 3), (1, 1e-4, 4), (1, 1e-8, 6), (2, 1e-2, 8), (2, 1e-4, 13), (2, 1e-8, 26), (3, 1e-4, 47)], 4),
)
def test_exponentials_of_inner_products_need_few_features(d: int, eps: float, most: int) -> None:
    found = af.relation(dot(d), *cube(d), eps)
    assert found.certificate.error[1] <= eps and found.rank_lower <= found.rank <= most


def test_five_variables_are_reached_by_products_of_features() -> None:
    found = af.relation(gauss(5), *cube(5), 1e-4, symmetric=True)
    assert found.rank <= 2600 and not found.features_only and found.certificate.status is Status.PROVED
    assert found.left.network.cost.layers == 2
    X, Y = (box.probe(300, np.random.default_rng(0)) for box in (found.target.left, found.target.right))
    assert np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max() <= found.certificate.error[1] <= 1e-4


@pytest.mark.parametrize("method", ["chebyshev", "cholesky"])
def test_every_method_is_proved(method: str) -> None:
    found = af.relation("exp(-2*(x-y)**2)", *ONE, 1e-6, symmetric=True, method=method)
    assert found.method == method and found.certificate.error[1] <= 1e-6


@pytest.mark.parametrize(
    "text", ["-abs(x-y)", "tanh(4*x*y-1)", "cos(3*(x+y))", "exp(-2*(x-y)**2) - 1e-10*cos(40*(x+y))"]
)
def test_what_is_not_positive_semidefinite_is_refused_with_a_checked_witness(text: str) -> None:
    with pytest.raises(af.NotPositive) as refused:
        af.relation(text, *ONE, 1e-4, symmetric=True)
    seen = refused.value.witness
    assert refused.value.nearest == {"signed": True}
    assert seen.form < 0 < seen.distance
    relation = Relation.read(text, *ONE, True)
    again = checked(relation, seen.points, seen.vector)
    assert again is not None and again.form == seen.form
    # the same sum in rationals, with the entries of K as float64 shows them, to a rounding that is far smaller
    K = relation.table(seen.points, seen.points)
    v = [Fraction(float(c)) for c in seen.vector]
    form = sum(v[i] * v[j] * Fraction(float(K[i, j])) for i in range(len(v)) for j in range(len(v)))
    slack = sum(abs(c) for c in v) ** 2 * Fraction(1, 10**14)
    assert form < 0 and abs(form - Fraction(seen.form)) <= slack


@pytest.mark.parametrize("text", ["exp(-2*(x-y)**2)", "cos(6*(x-y))", "exp(x*y)", "1 + x*y"])
def test_what_is_positive_semidefinite_is_not_refused(text: str) -> None:
    assert negative_direction(Relation.read(text, *ONE, True)) is None
    assert af.relation(text, *ONE, 1e-4, symmetric=True).certificate.status is Status.PROVED


def test_a_witness_that_shows_nothing_is_none() -> None:
    relation = Relation.read("exp(-2*(x-y)**2)", *ONE, True)
    assert checked(relation, np.array([[0.1], [0.9]]), np.array([1.0, -1.0])) is None


@pytest.mark.parametrize("text", ["cos(3*(x+y))", "tanh(4*x*y-1)"])
def test_the_signed_split_has_one_tower_and_signs(text: str) -> None:
    found = af.relation(text, *ONE, 1e-3, symmetric=True, signed=True)
    X = found.target.left.probe(500, np.random.default_rng(0))
    assert set(found.signs.tolist()) == {-1.0, 1.0} or (found.signs < 0).any()
    assert np.allclose(found.right(X), found.left(X) * found.signs, atol=1e-14)
    assert np.abs(found(X[:60], X[:60]) - found.target.table(X[:60], X[:60])).max() <= found.certificate.error[1]


def test_a_relation_that_is_not_symmetric_is_refused_with_a_pair() -> None:
    with pytest.raises(af.InvalidRequest, match="not symmetric"):
        af.relation("x - y", *ONE, 1e-3, symmetric=True)


def test_jumps_and_kinks_are_refused() -> None:
    with pytest.raises(af.AttnfunError, match="jump"):
        af.relation("sign(x-y)", *ONE, 1e-3)
    with pytest.raises(af.Infeasible, match="kink"):
        af.relation("abs(x-y)", *ONE, 1e-5)


@pytest.mark.parametrize("d", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_rank_follows_the_inner_dimension(d: int) -> None:
    rng = np.random.default_rng(d)
    W, b = rng.normal(size=(3, d)) / np.sqrt(d), rng.normal(size=3)

    def u(name: str) -> str:
        rows = [
            "tanh(" + "+".join(f"({w:.3f})*{name}{k}" for k, w in enumerate(row)) + f"+({c:.3f}))"
            for row, c in zip(W, b)
        ]
        return "sigmoid(" + "+".join(rows) + ")"

    left, right = cube(d)
    found = af.relation(f"tanh(5*({u('x')} - {u('y')}))", left, right, 1e-3)
    low, high = found.core.left.low[0], found.core.left.high[0]
    other = af.relation(
        "tanh(5*(s - t))", {"s": (low, high)}, {"t": (found.core.right.low[0], found.core.right.high[0])}, 1e-3
    )
    assert found.rank <= 1.2 * other.rank
    assert found.certificate.status is Status.PROVED and found.left.network.inputs == found.target.left.names
    X, Y = (box.probe(300, rng)[:800] for box in (found.target.left, found.target.right))
    assert np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max() <= found.certificate.error[1]


def test_a_relation_of_relations_has_the_rank_of_the_outer_one() -> None:
    found = af.relation("exp(-(sin(a*b) - (c+d)/2)**2)", {"a": (0, 1), "b": (0, 1)}, {"c": (0, 1), "d": (0, 1)}, 1e-5)
    assert found.core.left.dim == found.core.right.dim == 1 and found.rank <= 8


@pytest.mark.parametrize("text", ["exp(-2*(x-y)**2)", "tanh(3*(x-y))", "exp(x*y)"])
def test_the_lower_bound_is_never_above_what_is_reached(text: str) -> None:
    relation = Relation.read(text, *ONE)
    for eps in (1e-1, 1e-3, 1e-6):
        assert rank_lower(relation, eps) <= af.relation(text, *ONE, eps, features_only=True).rank


def test_the_lower_bound_knows_exact_ranks() -> None:
    left, right = cube(2)
    assert rank_lower(Relation.read("x0*y0 + x1*y1", left, right), 1e-6) == 2
    assert rank_lower(Relation.read("(1 + x*y)**3", *ONE), 1e-9) == 4
    assert rank_lower(Relation.read("x*y", *ONE), 2.0) == 0


@pytest.mark.parametrize(("text", "symmetric"), [("exp(-2*(x-y)**2)", True), ("exp(x*y)", False)])
def test_torch_runs_the_towers(text: str, symmetric: bool) -> None:
    torch = pytest.importorskip("torch")
    for eps in (1e-3, 1e-8):
        found = af.relation(text, *ONE, eps, symmetric=symmetric)
        X = found.target.left.probe(300, np.random.default_rng(0))
        Y = X[::-1].copy()
        truth = found.target.values(X, Y)
        for dtype, slack in ((torch.float64, 0.0), (torch.float32, 2e-6)):
            a, b = (t.to_torch(dtype)(torch.tensor(p, dtype=dtype)) for t, p in ((found.left, X), (found.right, Y)))
            score = (a * b).sum(dim=1).double().numpy()
            assert np.abs(score - truth).max() <= (found.certificate.error[1] if not slack else eps + slack)


def test_bad_requests_are_one_sentence() -> None:
    for arguments in (
        {"eps": 0.0},
        {"eps": 1e-3, "method": "guess"},
        {"eps": 1e-3, "realise": "paper"},
        {"eps": 1e-3, "signed": True},
        {"eps": 1e-3, "method": "cholesky"},
    ):
        with pytest.raises(af.InvalidRequest):
            af.relation("x*y", *ONE, **arguments)
    with pytest.raises(af.InvalidRequest):
        af.relation("x*x", {"x": (0, 1)}, {"x": (0, 1)}, 1e-3)
    with pytest.raises(af.InvalidRequest):
        af.relation("x*y", {"x": (0, 1)}, {"y": (0, 2)}, 1e-3, symmetric=True)


def test_the_command_prints_one_json_object(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    asked = ["relation", "-x*y + 1", "--left", "x=0:1", "--right", "y=0:1", "--eps", "1e-4", "--json", "-o", str(path)]
    assert main(asked) == 0
    record = json.loads(capsys.readouterr().out)
    assert {"status", "error", "rank", "rank_lower", "method", "keys", "seconds"} <= set(record)
    assert record["status"] == "proved" and record["rank"] == record["rank_lower"] == 2
    assert main(["verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == record["error"]
    assert main(["show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rank"] == 2
    asked = [
        "relation",
        "cos(3*(x+y))",
        "--left",
        "x=0:1",
        "--right",
        "y=0:1",
        "--eps",
        "1e-4",
        "--symmetric",
        "--json",
    ]
    assert main(asked) == 3
    refused = json.loads(capsys.readouterr().out)
    assert (
        refused["status"] == "infeasible" and refused["nearest"] == {"signed": True} and refused["witness"]["form"] < 0
    )
    assert main(["eval", str(path), "--at", "x=0"]) == 2


def test_a_jump_is_met_outside_a_band_of_known_measure() -> None:
    with pytest.raises(af.AttnfunError):
        af.relation("sign(x-y)", *ONE, 0.1)
    found = af.relation("3*sign(x-y)/2 + x*y", *ONE, 0.1, band=0.2)
    assert found.band is not None and found.certificate.error[1] <= 0.05
    X, Y = (
        box.probe(3000, np.random.default_rng(k))[:3000]
        for k, box in enumerate((found.target.left, found.target.right))
    )
    truth = 1.5 * np.sign(X - Y)[:, 0] + (X * Y)[:, 0]
    outside = np.abs(X - Y)[:, 0] >= 0.2
    assert outside.any() and np.abs(found.pairs(X, Y) - truth)[outside].max() <= 0.1
    assert 2 * 0.2 - 0.2**2 <= found.band.measure <= 1.1 * (2 * 0.2 - 0.2**2)
    for text in ("x*sign(x-y)", "x*y", "exp(sign(x-y))"):
        with pytest.raises(af.InvalidRequest):
            af.relation(text, *ONE, 0.1, band=0.2)


def test_quantisation_takes_as_many_cells_as_its_proof_needs() -> None:
    from attnfun.kinds.relation.view import voronoi_cells

    relation = Relation.read("exp(x*y)", *ONE)
    left, right = voronoi_cells(relation, 1e-4)
    assert 2.7e4 <= left <= 3.2e4 and left == right  # e/1e-4, the gradient being at most e on either side
    rng = np.random.default_rng(0)
    X, Y = rng.random((2000, 1)), rng.random((2000, 1))
    near = [(np.floor(p * left) + 0.5) / left for p in (X, Y)]
    assert np.abs(relation.values(X, Y) - relation.values(*near)).max() <= 1e-4
    assert left > 1e3 * af.relation("exp(x*y)", *ONE, 1e-4, features_only=True).rank
