"""Towers of g(u(x), v(y)) from x on: what is proved of the networks below them holds, however they are spoilt."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.numpy_rounding import numpy_rounding
from attnfun.certify.view import Undecided
from attnfun.cli import main
from attnfun.kinds.relation.build import inner as relation_inner
from attnfun.kinds.relation.core import core_of, inner_points
from attnfun.kinds.relation.prove_inner import gradient_bounds, inner_certificate, inner_shifts
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import tower_network
from attnfun.language import ArrayAlgebra, parse, run
from attnfun.language.domain import Box
from attnfun.network import Axis, Head, Layer, Network, evaluate
from attnfun.network.evaluate import stream as stream_of
from attnfun.network.stack import stacked
from attnfun.search import Goal, certified
from products import few

PAIRS = {"a": (0, 1), "b": (0, 1)}, {"c": (0, 1), "d": (0, 1)}
CASES = [
    ("exp(-(sin(a*b) - (c+d)/2)**2)", *PAIRS, False, 1e-5),
    ("exp(-2*(a*b + a - c*d - c)**2)", *PAIRS, True, 1e-4),
    ("tanh(3*(a*b - c*d))", *PAIRS, False, 1e-7),
    ("1/(2 + a*exp(b) + c*d)", *PAIRS, False, 1e-8),
    ("tanh(x1 + 2*x2 - y)", {"x1": (0, 1), "x2": (-1, 1)}, {"y": (0, 2)}, False, 1e-6),
    ("cos(x1*x2*y1 + sin(x2+x3)*y2)", {f"x{k}": (0, 1) for k in (1, 2, 3)}, {"y1": (0, 1), "y2": (0, 1)}, False, 1e-4),
]


COARSE = ("tanh(3*(a*b - c*d))", *PAIRS, False, 1e-3)


def pairs_of(found: af.RelationApproximant, count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    Z = found.target.joint.probe(count, np.random.default_rng(3))
    return Z[:, : found.target.left.dim], Z[:, found.target.left.dim :]


def worst(found: af.RelationApproximant, count: int = 1000) -> float:
    """The largest error at random, corner and edge points, and after a local search from the worst of them."""
    box, d = found.target.joint, found.target.left.dim
    rng = np.random.default_rng(9)

    def error(Z: np.ndarray) -> np.ndarray:
        return np.abs(found.pairs(Z[:, :d], Z[:, d:]) - found.target.values(Z[:, :d], Z[:, d:]))

    Z = np.hstack(pairs_of(found, count))
    best = Z[np.argsort(error(Z))[-8:]]
    for scale in (0.1, 0.01, 1e-3):
        moved = np.repeat(best, 40, axis=0)
        moved = moved + scale * (box.high_array - box.low_array) * rng.normal(size=moved.shape)
        best = np.concatenate([best, np.clip(moved, box.low_array, box.high_array)])
        best = best[np.argsort(error(best))[-8:]]
    return max(float(error(Z).max()), float(error(best).max()))


def moved_by(network: Network, size: float, rng: np.random.Generator, labels: bool = True) -> Network:
    """The network with all its weights off by about `size`, relatively, its labels as they were or left out."""

    def off(array: np.ndarray) -> np.ndarray:
        return array * (1 + size * rng.normal(size=array.shape))

    layers = []
    for layer in network.layers:
        heads = []
        for head in layer.attention:
            axes = tuple(Axis(off(a.query), off(a.offset), off(a.slopes), off(a.biases)) for a in head.axes)
            heads.append(dataclasses.replace(head, axes=axes, values=off(head.values)))
        layers.append(Layer(tuple(heads)))
    kept = network.labels if labels else None
    return dataclasses.replace(
        network, layers=tuple(layers), readout=off(network.readout), readout_bias=off(network.readout_bias), labels=kept
    )


def with_inner(found: af.RelationApproximant, left: Network, right: Network) -> af.RelationApproximant:
    assert found.weights.towers is not None
    one = dataclasses.replace(found.weights.towers[0], inner=left)
    two = (
        one
        if found.weights.towers[0] is found.weights.towers[1]
        else dataclasses.replace(found.weights.towers[1], inner=right)
    )
    return dataclasses.replace(found, weights=dataclasses.replace(found.weights, towers=(one, two)))


def inner_of(found: af.RelationApproximant) -> tuple[Network, Network]:
    assert found.weights.towers is not None
    left, right = found.weights.towers[0].inner, found.weights.towers[1].inner
    assert left is not None and right is not None
    return left, right


@cache
def made(case: int) -> af.RelationApproximant:
    text, left, right, symmetric, eps = CASES[case]
    return af.relation(text, left, right, eps, symmetric=symmetric)


@cache
def coarse() -> af.RelationApproximant:
    return af.relation("tanh(3*(a*b - c*d))", *PAIRS, 1e-3)


@pytest.mark.parametrize("case", few(range(len(CASES)), 3))
def test_a_composition_is_proved_from_x_on(case: int) -> None:
    text, left, right, symmetric, eps = CASES[case]
    found = made(case)
    assert found.certificate.status is Status.PROVED and found.certificate.error[1] <= eps
    assert not any("given" in h for h in found.certificate.hypotheses)
    assert found.left.network.inputs == found.target.left.names  # one network, from x to the features
    X, _ = pairs_of(found, 500)
    assert np.array_equal(evaluate(found.left.network, X), found.left(X))
    assert worst(found) <= found.certificate.error[1]
    bare = af.relation(text, left, right, eps, symmetric=symmetric, features_only=True)
    assert found.rank <= 1.2 * bare.rank


@pytest.mark.parametrize("case", few([0, 1, 5], 1))
def test_spoilt_inner_networks_are_seen_by_the_proof(case: int) -> None:
    found, eps = made(case), CASES[case][-1]
    rng = np.random.default_rng(case)
    bounded = 0
    for size in (1e-14, 1e-8, 1e-4, 1e-2):
        for labels in (True, False):
            spoilt = with_inner(found, *(moved_by(n, size, rng, labels) for n in inner_of(found)))
            certificate = certified(found.target, spoilt.weights, Goal(eps))
            assert worst(spoilt, 800) <= certificate.error[1]
            assert certificate.status is not Status.CONDITIONAL
            bounded += np.isfinite(certificate.error[1])
    assert bounded  # not all of them were only refused


def test_inner_networks_of_other_functions_are_not_proved(tmp_path: Path) -> None:
    found = coarse()
    for other in ("a*b*1.01", "a + b - 1", "b*b", "sin(a*b)"):
        network = af.compile(other, {"a": (0, 1), "b": (0, 1)}, 1e-8).network
        forged = with_inner(found, network, network)
        assert certified(found.target, forged.weights, Goal(1e-3)).status is not Status.PROVED
        forged.save(tmp_path / "forged.safetensors")
        assert af.verify(tmp_path / "forged.safetensors").status is not Status.PROVED
    smaller = af.compile("a*b", {"a": (0, 0.5), "b": (0, 1)}, 1e-8).network
    forged = with_inner(found, smaller, smaller)
    assert certified(found.target, forged.weights, Goal(1e-3)).status is Status.UNDECIDED


def test_outputs_in_another_order_are_not_proved() -> None:
    found, eps = made(5), CASES[5][-1]
    one, two = inner_of(found)
    swapped = dataclasses.replace(one, readout=one.readout[::-1], readout_bias=one.readout_bias[::-1])
    forged = with_inner(found, swapped, two)
    assert worst(forged, 500) > eps
    assert certified(found.target, forged.weights, Goal(eps)).status is not Status.PROVED


def test_one_tower_with_and_one_without_a_network_below_is_not_proved(tmp_path: Path) -> None:
    found = coarse()
    assert found.weights.towers is not None
    mixed = (found.weights.towers[0], dataclasses.replace(found.weights.towers[1], inner=None))
    with pytest.raises(af.InvalidRequest):
        dataclasses.replace(found.weights, towers=mixed)
    odd = copy.copy(found.weights)
    object.__setattr__(odd, "towers", mixed)
    assert certified(found.target, odd, Goal(1e-3)).status is Status.UNDECIDED
    dataclasses.replace(found, weights=odd).save(tmp_path / "mixed.safetensors")
    with pytest.raises(af.DamagedFile):
        af.load(tmp_path / "mixed.safetensors")
    plain = af.relation("exp(x*y)", {"x": (0, 1)}, {"y": (0, 1)}, 1e-3)
    network = af.compile("x", {"x": (0, 1)}, 1e-3).network
    assert plain.weights.towers is not None
    forged = with_inner(plain, network, network)
    assert certified(plain.target, forged.weights, Goal(1e-3)).status is Status.UNDECIDED


def test_a_network_that_leaves_the_box_of_the_features_is_not_proved() -> None:
    """Its outputs are near u, but past the box: features beyond it are not certified."""
    found = coarse()
    one, two = inner_of(found)
    beside = dataclasses.replace(one, readout_bias=one.readout_bias + 1e-4)
    certificate = certified(found.target, with_inner(found, beside, two).weights, Goal())
    assert certificate.status is Status.UNDECIDED


@pytest.mark.parametrize("case", [0, 4, 5])
def test_what_the_head_sees_is_as_near_to_u_as_proved(case: int) -> None:
    found = made(case)
    assert found.weights.towers is not None
    tower, core = found.weights.towers[0], found.core
    assert tower.inner is not None and core.inner[0] is not None
    plain = tower_network(found.weights.features, "left", tower, core.left.names)
    certificate = inner_certificate(tower.inner, core.inner[0], found.target.left)
    shifts = inner_shifts(tower.inner, plain, tower.keys, certificate)
    whole = stacked(tower.inner, plain)
    X, _ = pairs_of(found)
    stream = stream_of(tower.inner, X)
    env = {n: np.longdouble(X[:, k]) for k, n in enumerate(found.target.left.names)}
    truth = run(core.inner[0], ArrayAlgebra(np.longdouble), env)
    for axis, old in zip(whole.layers[-1].attention[0].axes, plain.layers[0].attention[0].axes, strict=True):
        k = int(np.flatnonzero(old.query[0])[0])
        query = stream @ axis.query[0] + axis.offset[0]
        seen = (np.longdouble(query) - np.longdouble(old.offset[0])) / np.longdouble(old.query[0, k])
        assert np.abs(seen - truth[k]).max() <= shifts[k]
        low, high = found.weights.features.left_box
        assert (seen >= low[k]).all() and (seen <= high[k]).all()


def test_the_slopes_of_g_are_never_missed() -> None:
    rng = np.random.default_rng(0)
    for text in ("tanh(5*(x-y))", "exp(-2*(x-y)**2)*x", "1/(2+x*y)", "sqrt(1+x*x*y)"):
        relation = Relation.read(text, {"x": (0, 1)}, {"y": (-0.5, 2)})
        low, high = relation.joint.low_array, relation.joint.high_array
        bounds = gradient_bounds(relation.graph, relation.joint.names, low, high)
        Z = low + (high - low) * rng.uniform(size=(4000, 2))
        for k in range(2):
            step = np.zeros(2)
            step[k] = 1e-6
            there = np.minimum(Z + step, high)
            rise = np.abs(relation.values(there[:, :1], there[:, 1:]) - relation.values(Z[:, :1], Z[:, 1:]))
            assert (rise <= bounds[k] * 1e-6 + 1e-14).all()
    kink = Relation.read("sqrt(x)*y", {"x": (0, 1)}, {"y": (0, 1)})
    assert np.isinf(gradient_bounds(kink.graph, ("x", "y"), np.zeros(2), np.ones(2))[0])


def test_an_inner_function_that_cancels_is_never_proved_below_its_error() -> None:
    """NumPy loses 1e-6 of this u; a network either carries that in its bound, or u stays a hypothesis."""
    u = "((x1 + x2 + 1e10)**2/1e10 - 1e10)/2"
    found = af.relation(f"tanh({u} - y)", {"x1": (0, 1), "x2": (0, 1)}, {"y": (0, 1)}, 1e-3)
    X, Y = pairs_of(found)
    exact = np.longdouble(X.sum(axis=1)) + np.longdouble(X.sum(axis=1)) ** 2 / 2e10
    error = np.abs(found.pairs(X, Y) - np.tanh(exact - Y[:, 0])).max()
    assert error <= found.certificate.error[1] or found.certificate.status is Status.CONDITIONAL


def test_what_does_not_compile_stays_conditional() -> None:
    found = af.relation("tanh(3*(sqrt(a*b) - c*d))", *PAIRS, 1e-2)
    if found.certificate.status is Status.PROVED:
        assert worst(found) <= found.certificate.error[1]
    mlp = af.relation("tanh(a*b - c*d)", *PAIRS, 1e-1, realise="mlp")
    assert mlp.certificate.status is Status.CONDITIONAL
    assert any("given exactly" in h for h in mlp.certificate.hypotheses)


def test_files_show_and_torch_of_a_stack(tmp_path: Path, capsys) -> None:
    torch = pytest.importorskip("torch")
    path = str(tmp_path / "r.safetensors")
    for text, left, right, symmetric, eps in (COARSE, CASES[1]):
        sides = [";".join(f"{n}={a}:{b}" for n, (a, b) in side.items()) for side in (left, right)]
        asked = ["relation", text, "--left", sides[0], "--right", sides[1], "--eps", str(eps), "--json", "-o", path]
        assert main(asked + (["--symmetric"] if symmetric else [])) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["status"] == "proved" and record["layers"] > 1
        assert main(["verify", path, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["error"] == record["error"]
        assert main(["show", path, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["keys"] == record["keys"]
        found = af.load(path)
        X, Y = pairs_of(found, 300)
        a, b = (t.to_torch(torch.float64)(torch.tensor(p)) for t, p in ((found.left, X), (found.right, Y)))
        signs = torch.tensor(found.signs)
        score = (a * b * signs).sum(dim=1).numpy()
        assert np.abs(score - found.target.values(X, Y)).max() <= record["error"]


def test_a_flipped_byte_below_the_towers_is_noticed(tmp_path: Path) -> None:
    found = af.relation("tanh(a*b - c*d)", *PAIRS, 1e-2)
    path = tmp_path / "r.safetensors"
    found.save(path)
    data, again = path.read_bytes(), af.verify(path)
    for where in range(9, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
        with pytest.raises(af.AttnfunError):
            af.load(path)
        with contextlib.suppress(af.AttnfunError):
            assert af.verify(path) == again  # the certificate, which is not read, has it


def test_the_core_keeps_the_proved_ranges() -> None:
    relation = Relation.read("tanh(3*(a*b - c*d))", *PAIRS)
    core = core_of(relation)
    found = af.relation(relation.graph, *PAIRS, 1e-3)
    assert found.core.ranges[0] == core.left
    assert found.weights.features.left_box[0][0] < core.left.low[0]  # the networks below may stray so far
    U = inner_points(core.inner[0], relation.left.probe(500, np.random.default_rng(0)), relation.left.names)
    assert core.left.contains(U).all()


def test_a_head_that_reads_two_outputs_is_no_part_of_a_stack() -> None:
    inner = af.compile(["a*b", "a"], {"a": (0, 1), "b": (0, 1)}, 1e-3).network
    both = Axis(np.array([[1.0, 1.0]]), np.zeros(1), np.array([[0.0], [1.0]]), np.zeros(2))
    head = Head("h", (both,), np.ones((2, 1)), ("p",))
    readout = np.array([[0.0, 0.0, 1.0]])
    box = np.zeros(2), np.ones(2)
    with pytest.raises(af.InvalidRequest):
        stacked(inner, Network(("u", "v"), (Layer((head,)),), readout, np.zeros(1), ("p",), box))


@pytest.mark.parametrize(
    "text",
    [
        "x + y",
        "x*y - 0.1",
        "x/(y + 3)",
        "sin(3*x)*exp(y)",
        "sigmoid(3*x - 7*y)",
        "x**5*y - y**4",
        "x**-2 + y**3",
        "log(x) + sqrt(x)*cos(pi*y)",
        "((x + y + 1e10)**2/1e10 - 1e10)/2",
        "exp(20*x) - exp(20*x)*(1 + 1e-9*y)",
        "tanh(sin(1000*x) - max(x, y)) + relu(y)",
    ],
)
def test_what_numpy_loses_is_never_more_than_proved(text: str) -> None:
    box = Box(("x", "y"), (0.1, -1.0), (2.0, 1.5))
    graph = parse(text, box.names)
    X = box.probe(20000, np.random.default_rng(0))
    plain = run(graph, ArrayAlgebra(), {"x": X[:, 0], "y": X[:, 1]})[0]
    wide = run(graph, ArrayAlgebra(np.longdouble), {"x": np.longdouble(X[:, 0]), "y": np.longdouble(X[:, 1])})[0]
    assert np.abs(plain - wide).max() <= numpy_rounding(graph, box)[0]


@pytest.mark.parametrize("text", ["1/(x - y)", "sign(x - y)", "softplus(x)", "log(y + 1)", "x**y"])
def test_what_is_not_bounded_is_undecided(text: str) -> None:
    with pytest.raises(Undecided):
        numpy_rounding(parse(text, ("x", "y")), Box(("x", "y"), (0.1, -1.0), (2.0, 1.5)))


def test_features_of_computed_inner_functions_are_proved_or_say_what_is_given() -> None:
    sides = {"x1": (0, 1), "x2": (0, 1)}, {"y": (0, 1)}
    good = af.relation("tanh(x1*x2 + sin(x1) - y)", *sides, 1e-6, features_only=True)
    assert good.certificate.status is Status.PROVED and worst(good) <= good.certificate.error[1]
    assert any("NumPy" in h for h in good.certificate.hypotheses)
    u = "((x1 + x2 + 1e10)**2/1e10 - 1e10)/2"
    lax = af.relation(f"tanh({u} - y)", *sides, 1e-3, features_only=True)
    X, Y = pairs_of(lax)
    exact = np.longdouble(X.sum(axis=1)) + np.longdouble(X.sum(axis=1)) ** 2 / 2e10
    assert lax.certificate.status is Status.PROVED
    assert np.abs(lax.pairs(X, Y) - np.tanh(exact - Y[:, 0])).max() <= lax.certificate.error[1]
    sharp = af.relation(f"tanh({u} - y)", *sides, 1e-8, features_only=True)
    assert sharp.certificate.status is Status.CONDITIONAL
    assert any("given exactly" in h for h in sharp.certificate.hypotheses)


@pytest.mark.parametrize(
    ("text", "eps", "symmetric"),
    [
        ("sin(2*a+b)*exp(c*d)", 3e-2, False),
        ("a*b*(c - d*d)", 1e-2, False),
        ("(a*b + c*d)**2 - a*b", 1e-1, False),
        ("exp(-(a*b - c*d)**2)", 1e-2, True),
    ],
)
def test_coarse_inner_networks_stay_within_the_bound_that_they_rule(monkeypatch, text, eps, symmetric) -> None:
    """Inner networks that may take half of eps: most of the bound is theirs, and it is nearly reached."""
    monkeypatch.setattr(relation_inner, "_BUDGETS", (0.5,))
    monkeypatch.setattr(relation_inner, "_WIDER", 0.2)
    found = af.relation(text, *PAIRS, eps, symmetric=symmetric, method="polynomial")
    details = found.certificate.details
    assert found.certificate.status is Status.PROVED
    seen = worst(found, 8000)
    assert 0.4 * found.certificate.error[1] <= seen <= found.certificate.error[1]
    assert symmetric or seen > 1.5 * (details["features"] + details["towers"])
