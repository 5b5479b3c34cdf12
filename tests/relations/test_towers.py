"""Towers of several variables, attacked: two layers of attention, products of ReLU units, float32."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.view import Undecided
from attnfun.cli.records import model_record
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.form import Polynomials
from attnfun.kinds.relation.prove_towers import tower_errors
from attnfun.kinds.relation.towers import Affine, TowerWeights, corners, tower_network
from attnfun.network import evaluate, evaluate_head
from attnfun.network.evaluate import alike, evaluate_alike
from attnfun.search import Goal, certified
from products import few, pairs


def cube(d: int) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    return {f"x{k}": (0.0, 1.0) for k in range(d)}, {f"y{k}": (0.0, 1.0) for k in range(d)}


def gauss(d: int) -> str:
    return "exp(-2*(" + "+".join(f"(x{k}-y{k})**2" for k in range(d)) + "))"


def dot(d: int) -> str:
    return "exp(" + "+".join(f"x{k}*y{k}" for k in range(d)) + ")"


ODD = (
    "cos(2*(a-u))*exp(b*v)/(2 + c + w)*s",
    {"a": (0.0, 1.0), "b": (-1.0, 0.5), "c": (0.0, 1.0)},
    {"u": (-1.0, 1.0), "v": (0.0, 2.0), "w": (0.0, 1.0), "s": (2.0, 3.0)},
)
CASES = {
    "gauss4": (gauss(4), *cube(4), 1e-2, True, "attention"),
    "dot4": (dot(4), *cube(4), 1e-4, False, "attention"),
    "odd": (*ODD, 1e-2, False, "attention"),
    "mlp2": (gauss(2), *cube(2), 1e-2, True, "mlp"),
    "mlp3": (dot(3), *cube(3), 1e-1, False, "mlp"),
    "affine": (dot(2), *cube(2), 1e-6, False, "attention"),
}


@functools.cache
def made(name: str) -> af.RelationApproximant:
    text, left, right, eps, symmetric, realise = CASES[name]
    return af.relation(text, left, right, eps, symmetric=symmetric, realise=realise)


def points(low: np.ndarray, high: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Random points, corners, and points whose coordinates are ends or Chebyshev points."""
    rng, d = np.random.default_rng(seed), len(low)
    parts = [rng.random((count, d)), rng.integers(0, 2, (count, d)).astype(float)]
    parts.append((np.cos(np.pi * rng.integers(0, 40, (count, d)) / 40) + 1) / 2)
    return np.clip(low + (high - low) * np.concatenate(parts), low, high)


def sides(found: af.RelationApproximant) -> Iterator[tuple[str, TowerWeights, tuple[str, ...]]]:
    assert found.weights.towers is not None
    for side, tower in zip(("left", "right"), found.weights.towers, strict=True):
        if side == "left" or found.weights.features.signs is None:
            yield side, tower, (found.left if side == "left" else found.right).network.inputs


def seen_errors(features: Features, side: str, tower: TowerWeights, names: tuple[str, ...]) -> np.ndarray:
    """(rank,) the largest distance of the tower from its features at points, and after a local search."""
    network = tower_network(features, side, tower, names)
    X = points(network.low, network.high, 200)

    def error(X: np.ndarray) -> np.ndarray:
        return np.abs(evaluate(network, X) - features.side(side, X))

    rng, first = np.random.default_rng(1), error(X)
    out = first.max(axis=0)
    best = X[np.argsort(first.max(axis=1))[-6:]]
    for scale in (0.05, 5e-3):
        moved = np.repeat(best, 30, axis=0) + scale * (network.high - network.low) * rng.normal(size=(180, X.shape[1]))
        moved = np.clip(moved, network.low, network.high)
        there = error(moved)
        out = np.maximum(out, there.max(axis=0))
        best = moved[np.argsort(there.max(axis=1))[-6:]]
    return out


@pytest.mark.parametrize("name", few(sorted(CASES), 3))
def test_a_tower_is_as_near_to_its_features_as_proved(name: str) -> None:
    found, eps = made(name), CASES[name][3]
    assert found.certificate.status is Status.PROVED and found.certificate.error[1] <= eps
    for side, tower, inputs in sides(found):
        off, size = tower_errors(found.weights.features, side, tower, inputs)
        network = tower_network(found.weights.features, side, tower, inputs)
        X = points(network.low, network.high, 200, 3)
        assert (seen_errors(found.weights.features, side, tower, inputs) <= off).all()
        assert (np.abs(found.weights.features.side(side, X)) <= size + 1e-12).all()
    X = points(found.target.left.low_array, found.target.left.high_array, 400)
    Y = points(found.target.right.low_array, found.target.right.high_array, 400, 7)
    assert np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max() <= found.certificate.error[1]


def spoilt(tower: TowerWeights, how: str, rng: np.random.Generator, size: float) -> TowerWeights | None:
    """The tower with some of its weights moved; None where it has none of that kind."""
    if how == "values":
        return dataclasses.replace(tower, values=tuple(v * (1 + size * rng.normal(size=v.shape)) for v in tower.values))
    if how == "biases":
        moved = (dataclasses.replace(k, biases=k.biases + size * rng.normal(size=k.biases.shape)) for k in tower.keys)
        return dataclasses.replace(tower, keys=tuple(moved))
    if how == "scales" and tower.scales is not None:
        return dataclasses.replace(tower, scales=tower.scales * (1 + size * rng.normal(size=tower.scales.shape)))
    if how == "ramps" and tower.affine is not None:
        ramps = tuple(r + size * rng.normal(size=r.shape) for r in tower.affine.ramps)
        return dataclasses.replace(tower, affine=Affine(tower.affine.lines, ramps))
    if how == "templates" and tower.squares is not None:
        new = tuple(
            np.stack([t[0], t[1], t[2] * (1 + size * rng.normal(size=t.shape[1]))]) for t in tower.squares.templates
        )
        return dataclasses.replace(tower, squares=dataclasses.replace(tower.squares, templates=new))
    if how == "steps" and tower.squares is not None:
        new = tuple(np.vstack([s[:3] * (1 - size * rng.random(s[:3].shape)), s[3:]]) for s in tower.squares.steps)
        return dataclasses.replace(tower, squares=dataclasses.replace(tower.squares, steps=new))
    return None


@pytest.mark.parametrize(
    ("name", "how"),
    pairs(["gauss4", "odd", "mlp2", "mlp3", "affine"], ["values", "biases", "scales", "ramps", "templates", "steps"]),
)
def test_spoilt_weights_are_never_nearer_than_proved(name: str, how: str) -> None:
    found = made(name)
    rng = np.random.default_rng(2)
    for side, tower, inputs in sides(found):
        for size in (1e-6, 1e-3, 0.05):
            other = spoilt(tower, how, rng, size)
            if other is None:
                assert how in ("scales", "ramps", "templates", "steps")
                continue
            try:
                off = tower_errors(found.weights.features, side, other, inputs)[0]
            except Undecided:
                continue
            assert (seen_errors(found.weights.features, side, other, inputs) <= off).all()


@pytest.mark.parametrize("name", ["gauss4", "dot4", "mlp2", "mlp3"])
def test_a_forged_selection_is_not_proved(name: str) -> None:
    found, eps = made(name), CASES[name][3]
    rng = np.random.default_rng(0)
    assert found.weights.towers is not None
    chosen = found.weights.features.selection.copy()
    for k in range(chosen.shape[1]):
        chosen[:, k] = rng.permutation(chosen[:, k])
    chosen = np.unique(chosen, axis=0)
    forged = dataclasses.replace(found.weights.features, selection=chosen)
    try:
        certificate = certified(found.target, Polynomials(forged, found.weights.towers), Goal(eps))
    except InvalidRequest:
        return  # weights that do not fit are refused before
    assert certificate.status is not Status.PROVED


def test_groups_that_do_not_fit_are_refused() -> None:
    found = made("gauss4")
    tower = found.weights.towers[0]  # type: ignore[index]
    for groups in (tower.groups[:-1], tower.groups[::-1][:1] * len(tower.groups), ((),) * len(tower.groups)):
        with pytest.raises(InvalidRequest):
            tower_network(
                found.weights.features, "left", dataclasses.replace(tower, groups=groups), found.left.network.inputs
            )
    with pytest.raises(InvalidRequest):
        dataclasses.replace(tower, scales=None)
    for scales in (-tower.scales, 0 * tower.scales, 4 * tower.scales):  # type: ignore[operator]
        with pytest.raises(Undecided), np.errstate(all="ignore"):
            tower_errors(
                found.weights.features, "left", dataclasses.replace(tower, scales=scales), found.left.network.inputs
            )


def test_corners_of_a_cube_multiply() -> None:
    rng = np.random.default_rng(0)
    for m in (2, 3, 5):
        sigma, parity = corners(m)
        p = rng.normal(size=(50, m))
        terms = np.exp(p @ sigma.T)
        assert np.allclose((terms @ parity) / terms.sum(axis=1), np.tanh(p).prod(axis=1), rtol=0, atol=1e-14)


def test_many_heads_at_once_are_the_heads_one_by_one() -> None:
    network = made("gauss4").left.network
    layer = network.layers[1]
    assert alike(layer) and not alike(network.layers[0])
    tokens = np.random.default_rng(0).normal(size=(40, layer.width))
    for dtype, slack in (("float64", 1e-12), ("float32", 1e-3)):
        both = evaluate_alike(layer, tokens.astype(dtype), dtype)
        one = np.concatenate([evaluate_head(head, tokens, dtype) for head in layer.heads], axis=1)
        assert np.abs(both - one).max() <= slack and both.dtype == one.dtype


@pytest.mark.parametrize("name", few(["gauss4", "odd", "mlp2", "mlp3", "affine"], 3))
def test_a_file_is_proved_again(name: str, tmp_path: Path) -> None:
    found = made(name)
    found.save(tmp_path / "r.safetensors")
    again = af.load(tmp_path / "r.safetensors")
    X, Y = (box.probe(60, np.random.default_rng(0)) for box in (found.target.left, found.target.right))
    assert np.array_equal(again(X, Y), found(X, Y))
    assert af.verify(tmp_path / "r.safetensors").error[1] == found.certificate.error[1]


@pytest.mark.parametrize("name", ["gauss4", "dot4", "mlp3"])
def test_torch_runs_the_towers(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = made(name)
    X = points(found.target.left.low_array, found.target.left.high_array, 150)
    Y = points(found.target.right.low_array, found.target.right.high_array, 150, 5)
    a = found.left.to_torch(torch.float64)(torch.tensor(X)).numpy()
    b = found.right.to_torch(torch.float64)(torch.tensor(Y)).numpy()
    assert np.abs((a * b).sum(axis=1) - found.target.values(X, Y)).max() <= found.certificate.error[1]


@pytest.mark.parametrize(
    ("text", "d", "symmetric"),
    few([(gauss(1), 1, True), (gauss(2), 2, True), (dot(1), 1, False), (dot(2), 2, False)], 2),
)
def test_float32_towers_stay_within_two_millionths(text: str, d: int, symmetric: bool) -> None:
    torch = pytest.importorskip("torch")
    for eps in (1e-4, 1e-8):
        found = af.relation(text, *cube(d), eps, symmetric=symmetric)
        X, Y = (points(np.zeros(d), np.ones(d), 700, s).astype(np.float32).astype(float) for s in (0, 9))
        a, b = found.left.to_torch(torch.float32)(torch.tensor(X)), found.right.to_torch(torch.float32)(torch.tensor(Y))
        truth = found.target.values(X, Y)
        assert np.abs((a.double() * b.double()).sum(dim=1).numpy() - truth).max() <= eps + 2e-6
        some = (a[:200].double() @ b[:200].double().T).numpy()
        whole = found.target.values(np.repeat(X[:200], 200, axis=0), np.tile(Y[:200], (200, 1))).reshape(200, 200)
        assert np.abs(some - whole).max() <= eps + 2e-6
        # an inner product in float32 adds its own rounding and nothing else
        sums = (a.double().abs() * b.double().abs()).sum(dim=1).numpy()
        lost = (found.rank + 1) * 2.0**-24 * sums
        assert (np.abs((a * b).sum(dim=1).double().numpy() - truth) <= eps + 2e-6 + lost).all()


def test_boxes_without_room_for_breakpoints_are_refused_at_once() -> None:
    for w in (1e-200, 1e-100):
        with pytest.raises(Infeasible) as refused:
            af.relation("exp(-2*(x-y)**2)", {"x": (-w, w)}, {"y": (-w, w)}, 1e-3, symmetric=True, realise="mlp")
        assert refused.value.nearest == {"realise": "attention"}
        found = af.relation("exp(-2*(x-y)**2)", {"x": (-w, w)}, {"y": (-w, w)}, 1e-3, symmetric=True)
        assert found.certificate.status is Status.PROVED
    with pytest.raises(Infeasible) as refused:
        af.relation("sin(3*x0*y0 + x1*y1)", *cube(2), 1e-1, realise="mlp")
    assert refused.value.nearest == {"realise": "attention"}


def test_neurons_of_several_variables_stand_beside_the_papers() -> None:
    record = model_record(made("mlp2"))
    assert record["realise"] == "mlp" and 0 < record["neurons"] < record["neurons_paper"]


@pytest.mark.parametrize("realise", ["attention", "mlp"])
def test_torch_has_a_row_of_features_a_point_even_of_rank_one(realise: str) -> None:
    torch = pytest.importorskip("torch")
    found = af.relation("1/(3 + x*y)", {"x": (0, 1)}, {"y": (0, 1)}, 0.1, realise=realise)
    assert found.rank == 1
    X, Y = (points(np.zeros(1), np.ones(1), 20, s) for s in (0, 9))
    a, b = (t.to_torch(torch.float64)(torch.tensor(p)).numpy() for t, p in ((found.left, X), (found.right, Y)))
    assert a.shape == (len(X), 1) and np.abs(a @ b.T - found.target.table(X, Y)).max() <= found.certificate.error[1]
