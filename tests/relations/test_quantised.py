"""Relations by soft cells: kinks are proved, the certificate withstands attack, refusals name what would do."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.cells import Cells as Grid
from attnfun.cli import main
from attnfun.cli.records import model_record
from attnfun.kinds.relation import prove_cells
from attnfun.kinds.relation.build.chebyshev import eigen_columns, leading_columns, singular_columns
from attnfun.kinds.relation.form import Cells
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import Keys
from attnfun.search import Goal, certified
from products import few, pairs

ONE = {"x": (0.0, 1.0)}, {"y": (0.0, 1.0)}
ODD = {"x": (-0.7, 2.1)}, {"y": (-1.3, 0.4)}
TWO = {"x1": (0.0, 1.0), "x2": (0.0, 1.0)}, {"y1": (0.0, 1.0), "y2": (0.0, 1.0)}
MATERN = "(1 + sqrt(3)*2*abs(x-y))*exp(-sqrt(3)*2*abs(x-y))"
CASES = [
    ("abs(x-y)", *ONE, False, 1e-1),
    ("abs(x-y)", *ONE, False, 1e-2),
    ("abs(x-y)", *ODD, False, 5e-2),
    ("exp(-2*abs(x-y))", *ONE, True, 1e-1),
    ("exp(-2*abs(x-y))", *ONE, True, 1e-2),
    (MATERN, *ONE, True, 1e-1),
    (MATERN, *ONE, True, 1e-2),
    ("max(x, y) - x*y", *ODD, False, 5e-2),
    ("relu(sin(4*x) - y) + abs(y - 0.3)*x", *ONE, False, 5e-2),
    ("sqrt(abs(x-y))", *ONE, False, 2e-1),
    ("max(x1*y1, x2*y2)", *TWO, False, 1e-1),
    ("abs(x1 - y1) + abs(x2 - y2)", *TWO, False, 1.5e-1),
    ("min(x1, y)", {"x1": (0.0, 1.0), "x2": (0.0, 1.0)}, {"y": (0.0, 1.0)}, False, 5e-2),
]


def worst(found: af.RelationApproximant, count: int = 2000) -> float:
    """The largest error at random points, corners, where both sides meet, at walls of cells, and by local search."""
    box, d = found.target.joint, found.target.left.dim
    rng = np.random.default_rng(11)
    Z = box.probe(count, rng)
    if d == found.target.right.dim:
        near = Z.copy()
        jitter = rng.normal(size=(len(Z), d)) * 10.0 ** rng.uniform(-12, -1, (len(Z), 1))
        near[:, d:] = near[:, :d] + jitter
        Z = np.concatenate([Z, near])
    walls = Z.copy()  # breakpoints of the keys, and points within an ulp or a wall of them
    for v, keys in enumerate(found.weights.left.keys + found.weights.right.keys):
        if found.weights.mlp:
            jitter = rng.normal(size=len(walls)) * 10.0 ** rng.uniform(-16, -2)
            walls[:, v] = rng.choice(-keys.biases, len(walls)) + jitter
        elif len(keys.slopes) > 1:
            at = (keys.biases[:-1] - keys.biases[1:]) / np.diff(keys.slopes) - keys.c
            walls[:, v] = rng.choice(at, len(walls)) + rng.normal(size=len(walls)) * 10.0 ** rng.uniform(-16, -2)
    Z = np.clip(np.concatenate([Z, walls]), box.low_array, box.high_array)

    def error(Z: np.ndarray) -> np.ndarray:
        return np.abs(found.pairs(Z[:, :d], Z[:, d:]) - found.target.values(Z[:, :d], Z[:, d:]))

    seen = error(Z)
    best = Z[np.argsort(seen)[-12:]]
    for scale in (0.03, 0.01, 1e-3, 1e-4, 1e-6):
        moved = np.repeat(best, 60, axis=0)
        moved = moved + scale * (box.high_array - box.low_array) * rng.normal(size=moved.shape)
        moved = np.clip(moved, box.low_array, box.high_array)
        best = np.concatenate([best, moved])
        best = best[np.argsort(error(best))[-12:]]
    return max(float(seen.max()), float(error(best).max()))


@cache
def made(case: int, realise: str = "attention") -> af.RelationApproximant:
    text, left, right, symmetric, eps = CASES[case]
    return af.relation(text, left, right, eps, symmetric=symmetric, realise=realise)


@pytest.mark.parametrize("case", few(range(len(CASES)), 7))
def test_kinked_relations_are_proved_and_no_error_is_above_the_bound(case: int) -> None:
    found, eps = made(case), CASES[case][-1]
    low, high = found.certificate.error
    assert found.certificate.status is Status.PROVED and found.method == "voronoi"
    assert 0 < low <= high <= eps and worst(found) <= high
    assert 0 < found.rank_lower <= found.rank <= min(found.record()["cells"])
    assert not found.features_only and found.cost.keys > 0


@pytest.mark.parametrize(("case", "most"), [(1, 65), (4, 101), (6, 9)])
def test_rank_is_far_below_the_cells(case: int, most: int) -> None:
    """65: adaptive cross approximation of abs; 101: equispaced nodes for Laplace; 9: pivoted Cholesky for Matérn."""
    found = made(case)
    assert found.rank <= most and found.rank <= 0.25 * min(found.record()["cells"])


def test_the_published_construction_is_a_method_of_its_own() -> None:
    found = af.relation("exp(x*y)", *ONE, 1e-2, method="voronoi")
    record = model_record(found)
    assert record["status"] == "proved" and record["method"] == "voronoi" and worst(found) <= record["error"]
    assert record["rank"] <= 4 < 100 * 4 < min(record["cells"])
    assert record["keys"] == sum(record["cells"])
    assert max(record["cells"]) <= 2.1 * max(record["voronoi_cells"])  # half of eps is left to the truncation


def test_one_tower_serves_both_sides_and_signs_where_they_are_allowed() -> None:
    found = af.relation("exp(-2*abs(x-y))", *ONE, 5e-2, symmetric=True)
    X = found.target.left.probe(300, np.random.default_rng(0))
    assert np.array_equal(found.left(X), found.right(X)) and (found.signs > 0).all()
    scores = found(X[:200], X[:200])
    assert np.linalg.eigvalsh((scores + scores.T) / 2).min() > -1e-10
    with pytest.raises(af.NotPositive):
        af.relation("-abs(x-y)", *ONE, 5e-2, symmetric=True)
    split = af.relation("-abs(x-y)", *ONE, 5e-2, symmetric=True, signed=True)
    assert (split.signs < 0).any() and worst(split) <= split.certificate.error[1] <= 5e-2
    assert np.allclose(split.right(X), split.left(X) * split.signs, atol=0)


def test_a_spike_between_the_cells_is_never_proved_away() -> None:
    for width in (1e2, 1e7):
        text = f"abs(x-y) + 0.5*exp(-{width:g}*((x-0.3217)**2 + (y-0.7719)**2))"
        try:
            found = af.relation(text, *ONE, 5e-2, method="voronoi")
        except af.Infeasible:
            continue
        at = np.array([[0.3217]]), np.array([[0.7719]])
        assert abs(found.pairs(*at)[0] - found.target.values(*at)[0]) <= found.certificate.error[1] <= 5e-2
    bare = af.relation("abs(x-y)", *ONE, 5e-2, method="voronoi").weights
    spiked = Relation.read("abs(x-y) + 0.5*exp(-1e10*((x-0.3217)**2 + (y-0.7719)**2))", *ONE)
    judged = certified(spiked, bare, Goal(5e-2))
    assert judged.status is not Status.PROVED and judged.error[1] >= 0.45


def spoilt(cells: Cells, where: str, size: float, rng: np.random.Generator) -> Cells:
    if where == "values":
        factors = 1 + size * rng.normal(size=cells.left.values.shape)
        return dataclasses.replace(cells, left=dataclasses.replace(cells.left, values=cells.left.values * factors))
    keys = []
    for key in cells.left.keys:
        slopes, biases = key.slopes.copy(), key.biases.copy()
        if where == "slopes":
            slopes = slopes * (1 + size * rng.normal(size=slopes.shape))
        else:
            biases = biases + size * np.abs(biases).max() * rng.normal(size=biases.shape)
        keys.append(Keys(key.w, key.c, slopes, biases))
    return dataclasses.replace(cells, left=dataclasses.replace(cells.left, keys=tuple(keys)))


@pytest.mark.parametrize(("case", "where"), pairs([1, 7, 10], ["values", "slopes", "biases"]))
def test_the_bound_is_above_the_error_of_spoilt_weights(case: int, where: str) -> None:
    found = made(case)
    rng = np.random.default_rng(3)
    proved = 0
    for size in (1e-14, 1e-8, 1e-4, 1e-2, 1e-1):
        other = dataclasses.replace(found, weights=spoilt(found.weights, where, size, rng))
        judged = certified(found.target, other.weights, Goal())
        if judged.status is Status.BOUNDED:
            proved += 1
            assert worst(other, 700) <= judged.error[1] and judged.error[0] <= judged.error[1]
        else:
            assert judged.error[1] == math.inf
    assert proved >= 2


def test_forged_centres_and_boxes_are_seen() -> None:
    found = af.relation("abs(x-y)", *ONE, 5e-2)
    cells = found.weights
    (key,) = cells.left.keys
    moved = dataclasses.replace(
        cells, left=dataclasses.replace(cells.left, keys=(Keys(key.w, key.c + 0.2, key.slopes, key.biases),))
    )
    judged = certified(found.target, moved, Goal(5e-2))
    assert judged.status is Status.REFUTED and judged.error[1] >= 0.2
    mirrored = dataclasses.replace(
        cells, left=dataclasses.replace(cells.left, keys=(Keys(-key.w, -key.c, key.slopes, key.biases),))
    )
    assert certified(found.target, mirrored, Goal(5e-2)).status is Status.UNDECIDED
    blunt = dataclasses.replace(
        cells, left=dataclasses.replace(cells.left, keys=(Keys(key.w, key.c, key.slopes * 1e-5, key.biases * 1e-5),))
    )
    assert certified(found.target, blunt, Goal(5e-2)).status is not Status.PROVED
    other = Relation.read("abs(x-y)", {"x": (0.0, 1.5)}, {"y": (0.0, 1.0)})
    assert certified(other, cells, Goal(5e-2)).status is Status.UNDECIDED
    lone = Relation.read("abs(x-y)", *ONE, True)
    assert certified(lone, cells, Goal(5e-2)).status is Status.UNDECIDED
    with pytest.raises(af.InvalidRequest):
        dataclasses.replace(cells, left=dataclasses.replace(cells.left, values=cells.left.values * np.nan))


def test_a_file_is_proved_again_without_its_certificate(tmp_path: Path) -> None:
    for text, symmetric in (("abs(x-y)", False), ("exp(-2*abs(x-y))", True)):
        path = tmp_path / "r.safetensors"
        found = af.relation(text, *ONE, 5e-2, symmetric=symmetric)
        bare = dataclasses.replace(
            found, certificate=dataclasses.replace(found.certificate, status=Status.UNDECIDED, error=(0.0, math.inf))
        )
        bare.save(path)
        again, back = af.verify(path), af.load(path)
        assert again.status is Status.PROVED and again.error == found.certificate.error
        X = found.target.left.probe(50, np.random.default_rng(0))
        assert np.array_equal(back(X, X), found(X, X)) and back.rank == found.rank
        assert back.record()["cells"] == found.record()["cells"]
        spoilt_file = (
            dataclasses.replace(found, weights=spoilt(found.weights, "values", 0.5, np.random.default_rng(0)))
            if not symmetric
            else None
        )
        if spoilt_file is not None:
            spoilt_file.save(path)
            assert af.verify(path).status in (Status.REFUTED, Status.UNDECIDED)


@pytest.mark.parametrize(
    ("text", "left", "right", "symmetric"),
    [
        pytest.param("exp(-2*abs(x-y))", *ONE, True, marks=pytest.mark.slow),
        ("abs(x1-y1) + abs(x2-y2)", *TWO, False),
        pytest.param("sqrt(abs(x-y))", *ONE, False, marks=pytest.mark.slow),
        pytest.param(MATERN, *ONE, True, marks=pytest.mark.slow),
    ],
)
def test_a_refusal_names_the_cells_and_a_request_that_succeeds(text, left, right, symmetric) -> None:
    with pytest.raises(af.Infeasible, match="cells") as refused:
        af.relation(text, left, right, 1e-5, symmetric=symmetric)
    nearest = refused.value.nearest
    assert nearest is not None and nearest["eps"] > 1e-5
    found = af.relation(text, left, right, nearest["eps"], symmetric=symmetric, method=nearest["method"])
    assert found.certificate.status is Status.PROVED


@pytest.mark.parametrize("case", few([0, 1, 2, 4, 6, 7, 8], 4))
def test_broken_lines_meet_kinks_with_few_features(case: int, tmp_path: Path) -> None:
    found, eps = made(case, "mlp"), CASES[case][-1]
    low, high = found.certificate.error
    assert found.certificate.status is Status.PROVED and found.method == "hats" and found.record()["realise"] == "mlp"
    assert 0 < low <= high <= eps and worst(found) <= high
    assert found.rank_lower <= found.rank <= found.record()["neurons"] + 2
    path = tmp_path / "h.safetensors"
    found.save(path)
    again, back = af.verify(path), af.load(path)
    assert again.error == found.certificate.error and again.status is Status.PROVED
    X, Y = (box.probe(40, np.random.default_rng(0)) for box in (found.target.left, found.target.right))
    assert np.array_equal(back(X, Y), found(X, Y))


@pytest.mark.parametrize("case", few([7, 1], 1))
def test_the_bound_is_above_the_error_of_spoilt_lines(case: int) -> None:
    text, left, right, symmetric, eps = CASES[case]
    found = made(case, "mlp")
    rng = np.random.default_rng(4)
    for size in (1e-14, 1e-8, 1e-4, 1e-1):
        for where in ("values", "biases", "lines"):
            if where == "lines":
                lines = found.weights.left.lines * (1 + size * rng.normal(size=(2, found.rank)))
                stored = dataclasses.replace(found.weights, left=dataclasses.replace(found.weights.left, lines=lines))
            else:
                stored = spoilt(found.weights, where, size, rng)
            judged = certified(found.target, stored, Goal())
            assert judged.status is Status.BOUNDED
            assert worst(dataclasses.replace(found, weights=stored), 700) <= judged.error[1]
    steep = spoilt(found.weights, "slopes", 1e-3, rng)
    assert certified(found.target, steep, Goal()).status is Status.UNDECIDED
    spiked = Relation.read(f"{text} + 0.5*exp(-1e10*((x-0.3217)**2 + (y-0.1719)**2))", left, right, symmetric)
    judged = certified(spiked, found.weights, Goal(eps))
    assert judged.status is not Status.PROVED and judged.error[1] >= 0.4


def test_what_belongs_to_heads_and_what_to_units_is_told_apart() -> None:
    for method, realise in (("voronoi", "mlp"), ("hats", "attention")):
        with pytest.raises(af.InvalidRequest, match="realise"):
            af.relation("abs(x-y)", *ONE, 5e-2, method=method, realise=realise)
    with pytest.raises(af.Infeasible) as refused:
        af.relation("max(x1*y1, x2*y2)", *TWO, 3e-1, realise="mlp")
    assert refused.value.nearest == {"realise": "attention"}
    assert af.relation("max(x1*y1, x2*y2)", *TWO, 3e-1).certificate.status is Status.PROVED
    with pytest.raises(af.Infeasible, match="nodes") as refused:
        af.relation("abs(x-y)", *ONE, 1e-5, realise="mlp")
    assert af.relation("abs(x-y)", *ONE, **refused.value.nearest).certificate.status is Status.PROVED


def test_kinks_in_many_variables_follow_the_inner_dimension() -> None:
    left, right = ({f"{n}{k}": (0.0, 1.0) for k in range(4)} for n in "xy")
    text = "relu(x0 + 2*x1*x2 - x3 - (y0 + y1 + y2*y3))"
    for realise in ("attention", "mlp"):
        found = af.relation(text, left, right, 5e-2, realise=realise)
        assert found.certificate.status is Status.CONDITIONAL
        assert any("given exactly" in h for h in found.certificate.hypotheses)
        assert len(found.weights.left.keys) == len(found.weights.right.keys) == 1
        sides = found.target.left, found.target.right
        X, Y = (box.probe(3000, np.random.default_rng(k)) for k, box in enumerate(sides))
        assert np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max() <= found.certificate.error[1] <= 5e-2


def test_the_lower_bound_knows_kinks() -> None:
    relation = Relation.read("abs(x-y)", *ONE)
    ranks = [rank_lower(relation, eps) for eps in (1e-1, 1e-2, 1e-3)]
    assert ranks == sorted(ranks) and ranks[0] >= 2 and ranks[1] >= 5


def test_torch_runs_the_cells() -> None:
    torch = pytest.importorskip("torch")
    found = af.relation("abs(x-y)", *ONE, 5e-2)
    X, Y = (box.probe(400, np.random.default_rng(k)) for k, box in enumerate((found.target.left, found.target.right)))
    kind = torch.float64
    a, b = (t.to_torch(kind)(torch.tensor(p, dtype=kind)) for t, p in ((found.left, X), (found.right, Y)))
    score = (a * b).sum(dim=1).numpy()
    assert np.abs(score - found.target.values(X, Y)).max() <= found.certificate.error[1]


def test_the_command_shows_cells(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    asked = ["relation", "abs(x-y)", "--left", "x=0:1", "--right", "y=0:1", "--eps", "0.1", "--json", "-o", str(path)]
    assert main(asked) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proved" and record["method"] == "voronoi" and len(record["cells"]) == 2
    assert main(["verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == record["error"]
    assert main(["show", str(path)]) == 0
    assert "cells" in capsys.readouterr().out


@pytest.mark.parametrize("text", few(["sqrt(x*y)", "sqrt(x + y)"], 1))
def test_a_root_that_cells_can_prove_later_is_refused_not_sampled(text: str) -> None:
    with pytest.raises(af.Infeasible) as refused:
        af.relation(text, {"x": (0, 1)}, {"y": (0, 1)}, 1e-2)
    nearest = refused.value.nearest or {}
    assert 1e-2 < nearest["eps"] < 0.1
    assert af.relation(text, {"x": (0, 1)}, {"y": (0, 1)}, 1e-2, accept="sampled").certificate.status == "sampled"


def test_an_arcsine_up_to_its_end_is_proved() -> None:
    found = af.relation("asin(x*y)", {"x": (0, 1)}, {"y": (0, 1)}, 0.2)
    assert found.certificate.status == "proved"
    line = np.linspace(0, 1, 301)
    assert np.abs(found(line, line) - np.arcsin(np.outer(line, line))).max() <= found.certificate.error[1]


@pytest.mark.parametrize("text", ["x*y", "exp(x+y)"])
def test_mlp_towers_of_one_variable_a_side_take_factors_of_one_side(text: str) -> None:
    found = af.relation(text, *ONE, 1e-2, realise="mlp")
    Z = found.target.joint.probe(4000, np.random.default_rng(3))
    seen = float(np.abs(found.pairs(Z[:, :1], Z[:, 1:]) - found.target.values(Z[:, :1], Z[:, 1:])).max())
    assert found.certificate.status is Status.PROVED and seen <= found.certificate.error[1] <= 1e-2


@pytest.mark.parametrize("case", [0, 5, 8])
def test_one_gradient_a_block_bounds_every_pair(case: int) -> None:
    """At random points of the cells nothing is further from M than what is proved, where anything is."""
    rng = np.random.default_rng(3)
    relation = made(case).target
    edges = [np.sort(rng.uniform(size=40)) for _ in range(2)]
    index = np.arange(39)
    grids = [Grid(index, z[:-1], z[1:], z[:-1], z[1:]) for z in edges]
    M = rng.normal(size=(39, 39))
    e = prove_cells._by_blocks(relation.graph, relation.joint.names, grids, M, [slice(0, 16), slice(16, 39)])
    low, high = (np.meshgrid(*(getattr(g, end) for g in grids), indexing="ij") for end in ("low", "high"))
    for share in (0.0, 1.0, *rng.uniform(size=20)):
        Z = np.stack([(a + (b - a) * share).ravel() for a, b in zip(low, high, strict=True)], axis=1)
        away = np.abs(relation.at(Z).reshape(M.shape) - M)
        assert (away <= e * (1 + 1e-12)).all()
    assert np.isfinite(e).all()


def test_few_pairs_of_cells_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found, boxes, real = made(6), [], prove_cells._enclosed
    monkeypatch.setattr(prove_cells, "_enclosed", lambda *args: boxes.append(len(args[2])) or real(*args))
    again = certified(found.target, found.weights, Goal(found.certificate.eps), "voronoi")
    assert again.error[1] == found.certificate.error[1]
    assert 0 < sum(boxes) < math.prod(found.weights.counts) / 4


@pytest.mark.parametrize("symmetric", [True, False])
def test_leading_columns_are_those_of_the_whole_table(symmetric: bool) -> None:
    x = np.linspace(0, 1, 300)
    table = np.exp(-3 * (x[:, None] - (x if symmetric else x**2)) ** 2)
    found = leading_columns(table, symmetric, False, 20)
    assert found is not None
    P, Q, _ = found
    whole = (eigen_columns(table, False)[0],) * 2 if symmetric else singular_columns(table)
    k = 6
    assert P.shape[1] >= k
    assert np.abs(P[:, :k] @ Q[:, :k].T - whole[0][:, :k] @ whole[1][:, :k].T).max() < 1e-10
    assert leading_columns(table[:100, :100], symmetric, False, 20) is None  # decomposing it is no more work
