"""Networks on sets: proved, symmetric, the same in torch and from the file; the hard functions among them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.sequence.network import Apply, SequenceNetwork
from attnfun.kinds.sequence.prove import probes
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.pattern import FORMS
from attnfun.kinds.set.target import SetFunction, pair_tokens
from attnfun.limits.separation.hard_sets import HardSet
from attnfun.network import TokenArchitecture, store
from attnfun.network.claim import Claim
from limits.separation.closed_forms import by_power_sums

LINE = {"x": (-1, 1)}
CASES = [
    ("sum(x[i]**2) + sum(x[i]*x[j])", LINE, 5, 1e-4, "auto", "power-sums"),
    ("sum(x[i]**2) + sum(x[i]*x[j])", LINE, 5, 1e-4, "pairs", "pairs"),
    ("sum((x_i-x_j)**2 + (y_i-y_j)**4)", {"x": (1, 2), "y": (-1, 1)}, 4, 1e-3, "auto", "pairs"),
    ("sum(exp(-(x_i-x_j)**2))", LINE, 6, 1e-3, "auto", "pairs"),
    ("sqrt(1 + sum(sin(x)))", {"x": (0, 1)}, 6, 1e-3, "auto", "elements"),
    ("max(x_i - x_j) - mean(x)", LINE, 6, 1e-2, "auto", "pairs"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[4]}")
def net(request: pytest.FixtureRequest) -> af.SetApproximant:
    text, domain, points, eps, method, expected = request.param
    made = af.set_function(text, points, domain, eps, method=method)
    assert made.method == expected
    return made


def test_the_bound_is_proved_and_not_below_the_worst_error_found(net: af.SetApproximant) -> None:
    certificate = net.certificate
    assert certificate.status is af.Status.PROVED and certificate.eps is not None
    low, high = certificate.error
    assert low <= high <= certificate.eps
    X = probes(net.target, 300, np.random.default_rng(7))
    worst = np.abs(net(X) - net.target.values(X)[:, 0]).max()
    assert worst <= high
    assert certificate.witness is not None
    point = np.array(certificate.witness).reshape(1, net.target.points, -1)
    assert np.abs(net(point) - net.target.values(point)[:, 0])[0] == pytest.approx(low, abs=1e-9)


def test_the_order_of_the_points_does_not_matter(net: af.SetApproximant) -> None:
    rng = np.random.default_rng(3)
    X = probes(net.target, 50, rng)
    turned = X[:, rng.permutation(net.target.points)]
    np.testing.assert_allclose(net(turned), net(X), atol=1e-10)


def test_torch_runs_the_same_network(net: af.SetApproximant) -> None:
    torch = pytest.importorskip("torch")
    X = probes(net.target, 60, np.random.default_rng(4))
    with torch.no_grad():
        Y = net.to_torch()(torch.tensor(X)).numpy()[:, 0]
    assert np.abs(Y - net.target.values(X)[:, 0]).max() <= net.certificate.error[1]
    np.testing.assert_allclose(Y, net(X), atol=1e-9)


def test_the_file_is_proved_again_and_a_set_comes_back(net: af.SetApproximant, tmp_path: Path) -> None:
    path = tmp_path / "set.safetensors"
    net.save(path)
    assert af.verify(path) == net.certificate
    back = af.load(path)
    assert type(back) is af.SetApproximant and back.certificate.status is af.Status.STORED
    assert (back.target, back.method, back.analysis) == (net.target, net.method, net.analysis)
    X = probes(net.target, 20, np.random.default_rng(6))
    assert np.array_equal(back(X), net(X))
    tokens = pair_tokens(X) if net.method == "pairs" else X
    assert np.array_equal(back.sequence(tokens)[:, 0, 0], net(X)) and back.sequence.target == net.sequence.target


def test_a_changed_file_is_judged_by_what_it_holds(net: af.SetApproximant, tmp_path: Path) -> None:
    """Hash and all: another network is refuted, another form is another function or does not fit."""
    path, sequence = tmp_path / "bad.safetensors", net.weights.sequence
    assert isinstance(sequence, SequenceNetwork)
    last = sequence.stages[-1]
    assert isinstance(last, Apply)
    moved = tuple(replace(one, readout_bias=one.readout_bias + 3 * net.request["eps"]) for one in last.networks)
    bad = replace(sequence, stages=(*sequence.stages[:-1], replace(last, networks=moved)))
    replace(net, weights=replace(net.weights, sequence=bad)).save(path)
    judged = af.verify(path)
    assert judged.status is af.Status.REFUTED and "a set was found" in (judged.reason or "")
    point = np.array(judged.witness).reshape(1, net.target.points, -1)
    wrong = SetNetwork(net.weights.form, bad).run(point) - net.target.values(point)
    assert np.abs(wrong).max() > net.request["eps"]
    for form in set(FORMS) - {net.method}:
        replace(net, weights=SetNetwork(form, sequence)).save(path)
        if "pairs" in (form, net.method):
            with pytest.raises(af.DamagedFile, match="does not fit"):
                af.load(path)
        else:
            assert af.verify(path).status is af.Status.UNDECIDED


def test_verify_compares_with_the_target_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "set.safetensors"
    af.set_function("sum(x**2)", 3, LINE, 0.1).save(path)
    assert af.verify(path, "sum(x[i]**2)").status is af.Status.PROVED
    with pytest.raises(af.InvalidRequest, match="the file is about"):
        af.verify(path, "sum(x**3)")


@pytest.mark.parametrize("key", ["expressions", "points", "domain"])
def test_damaged_targets_are_noticed(key: str, tmp_path: Path) -> None:
    data = SetFunction.read("sum(x_i*x_j)", LINE, 3).to_json()
    assert SetFunction.from_json(data) == SetFunction.read("sum(x[i]*x[j])", LINE, 3)
    weights, claim = af.set_function("sum(x)", 3, LINE, 0.1).weights, Claim.made({}, math.inf).to_json()
    for bad in (None, 0, ["x"], {"x": 1}, "sum("):
        store.write(tmp_path / "bad.safetensors", "set", weights, {"target": {**data, key: bad}, "claim": claim})
        with pytest.raises(af.DamagedFile):
            af.load(tmp_path / "bad.safetensors")


def test_sequences_and_sets_are_proved_without_their_constructions(tmp_path: Path) -> None:
    """In an interpreter that has no module whose name says that it builds."""
    af.sequence("x - max(x)", 3, LINE, 1e-2).save(tmp_path / "sequence.safetensors")
    af.set_function("sum(x**2) + sum(x[i]*x[j])", 3, LINE, 1e-2).save(tmp_path / "set.safetensors")
    code = """
import sys
class Blocked:
    def find_spec(self, name, *rest):
        if any(part.startswith("build") for part in name.split(".")) and name.startswith("attnfun"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import attnfun as af
for path in sys.argv[1:]:
    assert af.verify(path).status.value == "proved"
    net = af.load(path)
    net(net.target.draw(__import__("numpy").random.default_rng(0), 3)[0]), net.explain(), net.cost
"""
    subprocess.run([sys.executable, "-c", code, *map(str, tmp_path.iterdir())], check=True)


def test_a_set_is_one_matrix_or_many(net: af.SetApproximant) -> None:
    X = probes(net.target, 4, np.random.default_rng(5))
    assert net(X).shape == (len(X),) and net(X[0]).shape == ()
    assert float(net(X[0])) == pytest.approx(float(net(X)[0]), abs=1e-12)
    with pytest.raises(af.InvalidRequest):
        net(X[:, :-1])
    with pytest.raises(af.InvalidRequest):
        net(X + 100)
    assert net.analysis.verdict in net.explain() or net.analysis.verdict[1:] in net.explain()


def test_requests_that_do_not_fit_are_refused() -> None:
    for options in ({"method": "sums"}, {"method": "elements"}, {"method": "power-sums"}):
        with pytest.raises(af.InvalidRequest):
            af.set_function("sum(exp(x_i*x_j))", 4, LINE, 1e-2, **options)  # type: ignore[arg-type]
    for method in ("auto", "pairs"):
        with pytest.raises(af.Infeasible, match="1,600 pairs") as why:
            af.set_function("sum(exp(x_i*x_j))", 40, LINE, 1e-2, method=method)
        assert why.value.nearest == {"points": 32}
    assert af.set_function("sum(x_i*x_j**2)", 40, LINE, 1e-1).method == "power-sums"


def test_many_points_make_many_pairs() -> None:
    made = af.set_function("log(1 + sum((x_i-x_j)**2))", 10, LINE, 1e-2)
    assert made.method == "pairs" and made.network.tokens == 100
    assert made.certificate.status is af.Status.PROVED


@pytest.mark.parametrize(
    ("points", "dim", "eps"),
    [(4, 1, 5e-2), pytest.param(8, 1, 1e-3, marks=pytest.mark.slow), pytest.param(4, 2, 1e-3, marks=pytest.mark.slow)],
)
def test_one_feature_of_pairs_computes_the_hard_function(points: int, dim: int, eps: float) -> None:
    g = HardSet(points, dim)
    expressions, domain = (g.angle_expressions(), g.angle_domain) if dim == 1 else (g.expressions(), g.domain)
    made = af.set_function(expressions, points, domain, eps, method="pairs")
    assert made.certificate.status is af.Status.PROVED
    X = g.sample(200, seed=6)
    Y = made(g.angles(X) if dim == 1 else g.real(X))
    assert np.abs(Y[:, 0] + 1j * Y[:, 1] - by_power_sums(g, X)).max() <= math.sqrt(2) * made.certificate.error[1]


def test_deep_sets_with_some_of_the_features_attains_its_error() -> None:
    g = HardSet(5, 2)
    X = g.sample(1500, seed=8)
    whole = g.by_pairs(X)
    for features in (1, 3):
        made = af.set_function(g.expressions(features), 5, g.domain, 1e-3)
        assert made.method == "elements" and made.analysis.features_needed == 2 * features
        Y = made(g.real(X))
        missing = np.abs(Y[:, 0] + 1j * Y[:, 1] - whole) ** 2
        expected = af.bounds.sets(5, 2, features).upper
        spread = 5 * missing.std() / math.sqrt(len(X))
        off = math.sqrt(2) * made.certificate.error[1]
        assert abs(missing.mean() - expected) <= spread + 2 * off * math.sqrt(missing.mean()) + off**2


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "s.safetensors")
    words = ["set-function", "-sum(x**2) + sum(x[i]*x[j])", "--points", "4", "--domain", "x=-1:1", "--eps", "1e-3"]
    assert main([*words, "--json", "-o", path]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proved" and record["error"] <= 1e-3 and record["method"] == "power-sums"
    assert record["analysis"]["kind"] == "exact" and record["analysis"]["two_factor_rank"] == 1
    assert {"name", "eps", "layers", "heads", "rank", "keys", "parameters", "seconds", "points"} <= set(record)
    assert main(["verify", path, "--json"]) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert "DeepSets is enough" in " ".join(capsys.readouterr().out.split())
    for bad in (["set-function", "x", *words[2:]], words[:2], [*words[:-1], "nan"]):
        assert main(bad) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("distinct(abs(x_i - x_j))", lambda a, b: np.abs(a - b)),
        ("distinct(cos(x_i - x_j))", lambda a, b: np.cos(a - b)),
    ],
)
def test_pairs_of_different_elements_that_differ_by_nothing(text: str, kernel: Any) -> None:
    """What depends on differences alone is the same for every element beside itself: no sum of it is built."""
    net = af.set_function(text, 3, {"x": (0, 1)}, 0.02)
    assert net.certificate.status.value == "proved" and len(net.target.sums) == 1
    X = np.random.default_rng(0).random((200, 3))
    X[:50, 2] = X[:50, 0]
    wanted = sum(kernel(X[:, i], X[:, j]) for i in range(3) for j in range(3) if i != j)
    assert np.abs(net(X[:, :, None]) - wanted).max() <= net.certificate.error[1]


@pytest.mark.parametrize(("text", "form"), [("sum(x**2)", "elements"), ("sum(sin(x_i*x_j))", "pairs")])
def test_sets_are_learned_and_stay_sets(text: str, form: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    net, path = af.set_function(text, 3, LINE, 0.1), tmp_path / "set.safetensors"
    assert net.method == form
    learned = af.train(net, start="constructed", steps=0)
    assert type(learned) is type(net) and learned.method == form and learned.architecture == net.architecture
    assert learned.certificate.status is af.Status.SAMPLED and " sets" in (learned.certificate.reason or "")
    X = probes(net.target, 50, np.random.default_rng(1))
    np.testing.assert_allclose(learned(X), net(X), rtol=0, atol=1e-9)
    learned.save(path)
    back = af.load(path)
    assert type(back) is type(net) and back.trained and np.array_equal(back(X), learned(X))
    assert af.verify(path).status is af.Status.UNDECIDED and "rained" in back.explain()
    shape = TokenArchitecture.for_target(net.target, layers=1, heads=2, rank=2)
    alone, behind = (af.train(shape, target, steps=2, batch=4) for target in (net.target, net))
    assert alone.method == form and np.array_equal(alone(X), behind(X))
    table = af.compare(net, back, alone)
    assert len(table.entries) == 3 and table.entries[0].sup <= net.certificate.error[1]
    for one in (net, back):
        assert af.diagnose(one).remarks
