"""Relations that are finite sums of separable terms: expanded exactly, proved in any number of variables."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.cli.records import model_record
from attnfun.errors import Infeasible, NotPositive
from attnfun.kinds.relation.form import Separable
from attnfun.kinds.relation.prove_expansion import feature_sizes
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.terms import Expansion, expansion_of
from attnfun.language import ArrayAlgebra, run
from attnfun.search import Goal, certified
from counting import counted
from products import THOROUGH, few


def sides(d, low=-1.0, high=1.0):
    return tuple({f"{c}{i + 1}": (low, high) for i in range(d)} for c in "xy")


def dot(d):
    return "+".join(f"x{i + 1}*y{i + 1}" for i in range(d))


def features(graph, box, X):
    env = {n: X[:, k] for k, n in enumerate(box.names)}
    return np.stack([np.broadcast_to(v, len(X)) for v in run(graph, ArrayAlgebra(), env)], axis=1)


def joint(relation, n, seed=3):
    Z = relation.joint.probe(n, np.random.default_rng(seed))
    return Z[:, : relation.left.dim], Z[:, relation.left.dim :]


def attack(found, n=1000):
    X, Y = joint(found.target, n)
    worst = float(np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max())
    assert worst <= found.certificate.error[1] <= found.request["eps"]
    assert found.certificate.status is Status.PROVED


def polynomial(rng, d, degree, terms):
    """A random polynomial of both sides as text."""
    out = []
    for _ in range(terms):
        names = [f"{rng.choice(['x', 'y'])}{rng.integers(1, d + 1)}" for _ in range(rng.integers(0, degree + 1))]
        out.append("*".join([f"({rng.integers(-20, 21) / 8})", *names]))
    return "+".join(out)


def separable(rng, d, terms):
    """A random sum of products of functions of one variable each."""
    kinds = ("{}", "sin(2*{})", "exp({}/2)", "abs({}-0.3)", "1/(3+{})", "{}**2", "(1+0.5*{})", "max({},0.1)")
    out = []
    for _ in range(terms):
        parts = [str(rng.choice(kinds)).format(f"{c}{rng.integers(1, d + 1)}") for c in rng.permutation(list("xxyy"))]
        out.append("*".join([f"({rng.integers(1, 9) / 4})", *parts[: rng.integers(1, 4)]]))
    return "+".join(out)


def draws():
    rng = np.random.default_rng(20)
    for d in range(1, 9):
        for _ in range(4):
            yield d, polynomial(rng, d, 4, int(rng.integers(2, 9)))
            yield d, separable(rng, d, int(rng.integers(2, 6)))
        yield d, f"({polynomial(rng, d, 2, 3)})**2 - cos({separable(rng, d, 1)}*0.1 + x1 - y{d})*(y1-x{d}/3)"


def test_expansions_are_the_relation_and_have_its_rank():
    seen, reduced = 0, 0
    for d, text in draws():
        relation = Relation.read(text, *sides(d))
        found = expansion_of(relation)
        if found is None:
            continue
        seen += 1
        X, Y = joint(relation, 200)
        mine = np.sum(features(found.left, relation.left, X) * features(found.right, relation.right, Y), axis=1)
        true = relation.values(X, Y)
        assert np.abs(mine - true).max() <= 1e-11 * (1 + np.abs(true).max()), text
        table = relation.table(*(box.sample(60, np.random.default_rng(7)) for box in (relation.left, relation.right)))
        rank = np.linalg.matrix_rank(table, tol=1e-11 * max(1e-300, np.abs(table).max()) * 60)
        assert found.rank >= rank, text
        reduced += found.rank == rank
    assert seen >= 60
    assert reduced >= 0.9 * seen  # functions that depend on each other in a way that is not polynomial may cost more


@pytest.mark.parametrize(
    "text, rank",
    [
        (f"(1 + {dot(3)})**2", 10),
        (f"({dot(4)})**2", 10),
        ("(x1 + x2 + y1)*(x1 + x2 - y1) + (x1 + x2)*y2", 3),
        ("(1 + x1)*(2 + y1)*(3 + y2)", 1),
        ("x1*y1 + 2*x1*y2 + 3*x2*y1 + 6*x2*y2", 1),
        ("(x1 + 1)*y1 + (x1 - 1)*y2 + x1*y3", 2),
        ("sin(x1 - 2*y1)", 2),
        ("exp(x1 + y1)*(x2 - y2)", 2),
        ("(x1 - y1)**2 + (x2 - y2)**2", 4),
        ("x1*y1/(3 + x2)/(4 + y2) + x1/(3 + x2)*y3", 1),
        ("(x1*y1)**(-2)*x1**2 + y2", 1),
    ],
)
def test_the_rank_is_that_of_the_coefficients(text, rank):
    found = expansion_of(Relation.read(text, *sides(4, 0.5, 1.0)))
    assert found is not None and found.rank == rank


@pytest.mark.parametrize("text", ["tanh(x1*y1)", "abs(x1 - y1)", "1/(3 + x1 + y1)", "exp(x1*y1) + x2*y2"])
def test_what_is_no_finite_sum_is_not_expanded(text):
    relation = Relation.read(text, *sides(2, 0.5, 1.0))
    assert expansion_of(relation) is None
    with pytest.raises(Infeasible):
        af.relation(text, *sides(2, 0.5, 1.0), eps=1e-2, method="expand")


def test_symmetric_expansions_are_exact_with_their_signs():
    rng = np.random.default_rng(4)
    for d in (1, 2, 3, 5):
        A = rng.integers(-3, 4, (d, d))
        form = "+".join(f"({A[i, j] + A[j, i]})*x{i + 1}*y{j + 1}" for i in range(d) for j in range(d))
        relation = Relation.read(f"({form}) + x1*y1 + (x1*y1)**2/3", *sides(d), symmetric=True)
        found = expansion_of(relation)
        assert found is not None and found.signs is not None
        X, Y = joint(relation, 100)
        a, b = features(found.left, relation.left, X), features(found.right, relation.right, Y)
        assert np.abs(np.sum(a * np.array(found.signs) * b, axis=1) - relation.values(X, Y)).max() < 1e-10
        assert np.array_equal(features(found.left, relation.left, Y), b)
        M = A + A.T
        M[0, 0] += 1
        assert sum(s < 0 for s in found.signs) == int((np.linalg.eigvalsh(M) < -1e-9).sum())


def test_affine_features_have_no_keys_whatever_the_number_of_variables():
    for d in (1, 4, 64):
        found = af.relation(dot(d), *sides(d), eps=1e-9)
        record = model_record(found)
        assert (found.rank, found.method, record["keys"], record["layers"]) == (d, "expand", 0, 0)
        assert found.rank_lower == d
        attack(found, 200)


def test_certificates_of_random_sums_hold():
    rng = np.random.default_rng(8)
    drawn = (1, polynomial(rng, 1, 4, 5)), (2, f"(1 + {dot(2)})**2"), (4, separable(rng, 4, 2))
    for d, text in (*drawn, (8, f"{dot(8)} + x1*x2*y3")):
        found = af.relation(text, *sides(d), eps=1e-3, method="expand")
        attack(found)
        again = certified(found.target, found.weights, Goal(1e-3))
        assert again.status is Status.PROVED and again.error[1] == found.certificate.error[1]


def expanded(text="x1*y1 + sin(x2)*y2", d=2, **options):
    return af.relation(text, *sides(d), eps=1e-4, method="expand", **options)


STEEP = ("1/y1", "sqrt(y1)", "log(y1)", "1/(1 + 25*y1**2)", "abs(y1 - 1/2)", "relu(y1 - 0.3)", "exp(y1)", "y1**2")


@pytest.mark.drawn
def test_relations_of_relu_units_with_steep_factors_take_bounded_work(tmp_path):
    """Polynomials of degree 100 and thousands of pieces; kinks and poles, which have no polynomials of use."""
    rng = np.random.default_rng(5)
    for k in range(8 if THOROUGH else 3):
        kinds = rng.choice(STEEP, 2, replace=False)
        text = f"{rng.integers(1, 9) / 4}*{kinds[0]} + x1*{kinds[1]}"
        held = []
        box = {"y1": (float(rng.uniform(0.1, 0.3)), float(rng.uniform(1, 2)))}

        def work(text=text, box=box, held=held):
            held.append(af.relation(text, {"x1": (-1, 1)}, box, 1e-4, realise="mlp"))

        assert counted(work, 1_500_000) > 0
        (found,) = held
        assert found.record()["realise"] == "mlp" and found.record()["neurons"] > 0
        attack(found)
        if k < 2:
            path = tmp_path / "r.safetensors"
            found.save(path)
            assert af.verify(path).error[1] == found.certificate.error[1]
            assert np.array_equal(af.load(path).pairs(*joint(found.target, 50)), found.pairs(*joint(found.target, 50)))


TOO_CLOSE = {"1/y1 + x1*y1": 1e-9, "exp(x1*y1)/y1": 1e-10, "y1*sin(40*x1)": 1e-11, "log(y1)*x1 + y1": 1e-13}


@pytest.mark.parametrize("text", few(TOO_CLOSE, 1))
def test_more_units_than_are_built_are_refused_before_any_is_made(text):
    with pytest.raises(Infeasible, match="ReLU units would be needed") as refused:
        af.relation(text, {"x1": (-1, 1)}, {"y1": (0.1, 2.0)}, TOO_CLOSE[text], realise="mlp")
    assert refused.value.nearest["eps"] > TOO_CLOSE[text]

    def again():
        af.relation(text, {"x1": (-1, 1)}, {"y1": (0.1, 2.0)}, TOO_CLOSE[text] / 2, realise="mlp")

    assert counted(again, 1_000_000) > 0


@pytest.mark.slow
@pytest.mark.parametrize("text", TOO_CLOSE)
def test_the_nearest_of_too_many_units_is_built(text):
    with pytest.raises(Infeasible) as refused:
        af.relation(text, {"x1": (-1, 1)}, {"y1": (0.1, 2.0)}, TOO_CLOSE[text], realise="mlp")
    attack(af.relation(text, {"x1": (-1, 1)}, {"y1": (0.1, 2.0)}, realise="mlp", **refused.value.nearest))


def test_terms_as_relu_units_are_proved_and_forged_units_are_not():
    rng = np.random.default_rng(12)
    for d, text in ((1, "sqrt(1 + x1)*y1 + abs(y1)"), (2, separable(rng, 2, 2)), (4, dot(4))):
        found = af.relation(text, *sides(d), eps=1e-3, method="expand", realise="mlp")
        assert found.method == "expand" and found.record()["realise"] == "mlp"
        attack(found)
    found = af.relation("sqrt(1 + x1)*y1", *sides(1), eps=1e-3, method="expand", realise="mlp")
    X, Y = joint(found.target, 2000)
    (layer,) = found.weights.left.layers
    for size in (1e-9, 1e-3, 0.1):
        (block,) = layer.heads
        values = block.values.copy()
        values[len(values) // 2] += size
        forged = dataclasses.replace(layer, heads=(dataclasses.replace(block, values=values),))
        stored = Separable(dataclasses.replace(found.weights.left, layers=(forged,)), found.weights.right)
        certificate = certified(found.target, stored, Goal(1e-3))
        other = dataclasses.replace(found, weights=stored, certificate=certificate)
        worst = float(np.abs(other.pairs(X, Y) - found.target.values(X, Y)).max())
        assert worst <= certificate.error[1]
        assert worst <= 1e-3 or certificate.status is not Status.PROVED


def test_forged_towers_are_not_proved_to_be_near():
    found = expanded()
    rng = np.random.default_rng(2)
    X, Y = joint(found.target, 2000)
    for k in range(6):
        sides_ = {"left": found.weights.left, "right": found.weights.right}
        side = "left" if k % 2 else "right"
        network = sides_[side]
        readout, bias = network.readout.copy(), network.readout_bias.copy()
        size = 10.0 ** rng.uniform(-9, 0)
        readout.ravel()[rng.integers(readout.size)] += size
        bias[rng.integers(len(bias))] -= size
        sides_[side] = dataclasses.replace(network, readout=readout, readout_bias=bias)
        forged = Separable(sides_["left"], sides_["right"])
        certificate = certified(found.target, forged, Goal(1e-4))
        other = dataclasses.replace(found, weights=forged, certificate=certificate)
        worst = float(np.abs(other.pairs(X, Y) - found.target.values(X, Y)).max())
        assert worst <= certificate.error[1]
        assert certificate.error[0] <= worst * (1 + 1e-6) + 1e-12
        if worst > 1e-4:
            assert certificate.status is not Status.PROVED


def test_towers_of_another_relation_are_not_proved():
    found = expanded()
    for text in ("x1*y1 + cos(x2)*y2", "x1*y1 - sin(x2)*y2", "x1*y1", "tanh(x1*y2)", f"({dot(2)})**2"):
        certificate = certified(Relation.read(text, *sides(2)), found.weights, Goal(1e-4))
        assert certificate.status is not Status.PROVED
    wider = Relation.read(found.target.graph, *sides(2, -1.0, 1.5))
    assert certified(wider, found.weights, Goal(1e-4)).status is Status.UNDECIDED


def test_sizes_of_features_hold():
    relation = Relation.read("(x1 - x2**2)*y1 + exp(x1*x2)*y2 + x2/(2 + x1)", *sides(2))
    found = expansion_of(relation)
    assert isinstance(found, Expansion)
    X, _ = joint(relation, 3000)
    seen = np.abs(features(found.left, relation.left, X)).max(axis=0)
    assert (seen <= feature_sizes(found.left, relation.left)).all()


def test_files_modules_training_and_commands(tmp_path, capsys):
    for k, (text, options) in enumerate(((dot(2), {"symmetric": True}), ("x1*y1 + sin(x2)*y2", {}))):
        found = expanded(text, **options)
        path = tmp_path / f"r{k}.safetensors"
        found.save(path)
        back = af.load(path)
        X, Y = joint(found.target, 50)
        assert np.array_equal(back(X, Y), found(X, Y)) and back.rank == found.rank and back.method == "expand"
        assert af.verify(path).error == found.certificate.error
        assert main(["show", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["keys"] == found.cost.keys
        assert main(["verify", str(path), "--json"]) == 0
        capsys.readouterr()
        af.diagnose(path)
        torch = pytest.importorskip("torch")
        with torch.no_grad():
            seen = found.left.to_torch()(torch.tensor(X)).numpy()
        assert np.abs(seen - found.left(X)).max() < 1e-12
        again = af.train(found, steps=2, seed=0)
        assert again.rank == found.rank


def test_a_damaged_file_of_terms_is_refused(tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import save_file

    found = expanded(dot(2))
    path = tmp_path / "r.safetensors"
    found.save(path)
    with safe_open(path, "np") as file:
        meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["left/readout"] = tensors["left/readout"] * 2
    save_file(tensors, path, meta)
    with pytest.raises(af.errors.DamagedFile):
        af.verify(path)


def test_refusals_name_the_nearest():
    with pytest.raises(Infeasible, match="1,275 separable terms"):
        af.relation(f"({dot(50)})**2", *sides(50), eps=1e-3, method="expand")
    with pytest.raises(NotPositive):
        af.relation("x1*y2 + x2*y1", *sides(2), eps=1e-3, symmetric=True)
    found = af.relation("x1*y2 + x2*y1", *sides(2), eps=1e-3, symmetric=True, signed=True)
    assert sorted(found.signs) == [-1, 1] and found.cost.keys == 0
    attack(found)


def test_fewer_features_win_over_the_exact_terms():
    found = af.relation("(1 + x1*y1)**12", *sides(1, 0.0, 1.0), eps=0.1)
    assert found.method != "expand" and found.rank < 13
