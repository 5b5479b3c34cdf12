"""The bounds of lasso and logistic regression in context: hard and searched prompts, forged weights, named cases."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.cli import main
from attnfun.kinds.in_context import exact as in_context_exact
from attnfun.kinds.in_context.build import ALGORITHMS, build
from attnfun.kinds.in_context.exact import Prompt, doubt, exact_predictions, example_prompts, hard_prompts, moved
from attnfun.kinds.in_context.prove import measured, predictions, prove
from attnfun.kinds.in_context.prove_class import seen
from attnfun.kinds.in_context.prove_sums import Sum, tanh_errors
from attnfun.kinds.in_context.target import InContextTask
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from in_context.prompts import hostile, judge, with_layers

LASSO = InContextTask.make("lasso", 3, 8, alpha=0.2, spectrum=(4, 20))
LOGISTIC = InContextTask.make("logistic", 3, 8, C=2.0, spectrum=(4, 20))


def error_of(network: TokenNetwork, task: InContextTask, one: Prompt) -> float:
    """The error beyond doubt, on data that the dtype holds."""
    X, y, queries = (part.astype(network.dtype).astype(np.float64) for part in one)
    off = np.abs(predictions(network, task, X, y, queries) - exact_predictions(task, X, y, queries))
    assert np.isfinite(off).all()
    return float((off - doubt(task, X, y, queries)).max())


def found_error(network: TokenNetwork, task: InContextTask, rng: np.random.Generator, steps: int) -> float:
    """The largest error on hard prompts, hostile ones, and those of a climb from the worst of them."""
    prompts = hard_prompts(task, 6, int(rng.integers(1000))) + [one for _ in range(4) if (one := hostile(task, rng))]
    if task.task == "logistic":
        prompts = [(X, np.sign(y + 1e-9), q) for X, y, q in prompts]
    if not prompts:
        return 0.0
    errors = [error_of(network, task, one) for one in prompts]
    worst, at = max(errors), prompts[int(np.argmax(errors))]
    for _ in range(steps):
        near = moved(task, at, rng)
        if near is not None and (error := error_of(network, task, near)) > worst:
            worst, at = error, near
    return worst


def changed_alike(network: TokenNetwork, rng: np.random.Generator, size: float) -> TokenNetwork:
    """Every amount and every carry from w and u multiplied by 1 + size · noise, the same in all steps."""
    noise = 1 + size * rng.normal(size=(2, 8))
    d = sum(name.startswith("w") for name in network.coordinates)
    layers = []
    for number, layer in enumerate(network.layers):
        kind = 0 if number == len(network.layers) - 1 else 1 + number % 2
        heads = []
        for place, head in enumerate(layer.heads):
            many = head.outputs == d and head.query_dim != 1 and len(head.output) == d
            factor = noise[0, place % 8] if many and d > 1 else 1.0
            heads.append(TokenHead(head.name, head.query, head.key, head.value, head.output * factor))
        carry = layer.carry
        if carry is not None and kind == 2 and np.any(carry != np.eye(len(carry))):
            carry = np.array(carry)
            block = slice(2 * d, 3 * d)
            carry[block, block] *= noise[1, 0]
        layers.append(TokenLayer(tuple(heads), carry))
    return with_layers(network, layers)


@pytest.mark.parametrize("kind", ["lasso", "logistic"])
@pytest.mark.parametrize(("seed", "trials"), [(0, 14), pytest.param(1, 400, marks=pytest.mark.slow)])
def test_no_prompt_of_a_random_class_is_above_the_bound(kind: str, seed: int, trials: int) -> None:
    """Any sizes, spectra, penalties, scales (also far too coarse ones, where bias rules), dtypes, changed weights."""
    rng = np.random.default_rng([seed, len(kind)])
    proved, near = 0, 0.0
    for _ in range(trials):
        d = int(rng.integers(1, 4))
        n = int(rng.integers(d, 9))
        low = float(np.exp(rng.uniform(-1, 3)))
        strength = float(10 ** rng.uniform(-2, 1.5))
        task = InContextTask.make(
            kind,
            d,
            n,
            **{"alpha" if kind == "lasso" else "C": strength},
            spectrum=(low, low * float(np.exp(rng.uniform(0.01, 2)))),
            x_range=1e3,
            y_range=float(rng.choice([0.1, 3, 50])) if kind == "lasso" else None,
            query_range=float(rng.choice([0.1, 2.5, 30])),
        )
        dtype = "float32" if rng.random() < 0.2 else "float64"
        algorithm, layers = str(rng.choice(ALGORITHMS[kind])), 2 * int(rng.choice([1, 2, 4, 9, 20])) + 1
        network = build(task, layers, algorithm, dtype, int(rng.integers(1, 4)), finer=int(rng.integers(-3, 3)))
        if dtype == "float64" and rng.random() < 0.4:
            network = changed_alike(network, rng, 10.0 ** rng.uniform(-9, -2))
        try:
            bound = prove(network, task).total
        except Undecided:
            continue
        if not math.isfinite(bound):
            continue
        proved += 1
        error = found_error(network, task, rng, 4)
        assert error <= bound, (task, dtype, algorithm, layers, error, bound)
        near = max(near, error / bound)
    assert proved > trials // 3 and near > 0.02  # the hunt found something


@pytest.mark.parametrize("task", [LASSO, LOGISTIC], ids=["lasso", "logistic"])
def test_searched_prompts_stay_within_eps_that_is_proved(task: InContextTask) -> None:
    rng = np.random.default_rng(2)
    for eps in (1e-2, 1e-7):
        asked = {"alpha": 0.2} if task.task == "lasso" else {"C": 2.0}
        net = af.in_context(task.task, 3, 8, spectrum=(4, 20), eps=eps, **asked)
        assert net.certificate.status == "proved" and net.certificate.error[1] <= eps
        assert found_error(net.network, net.task, rng, 15) <= net.certificate.error[1]


def broken(network: TokenNetwork, number: int, what: str) -> TokenNetwork:
    """One entry in every step-layer of that parity that the pattern does not have."""
    layers = []
    for place, layer in enumerate(network.layers):
        hit = place % 2 == number % 2 and place < len(network.layers) - 1
        hit = hit or (number == len(network.layers) - 1 == place)
        if not hit:
            layers.append(layer)
            continue
        head, carry = layer.heads[0], layer.carry
        arrays = {name: np.array(array) for name, array in head.arrays.items()}
        if what == "carry":
            carry = np.eye(network.width) if carry is None else np.array(carry)
            carry[0, -1] = 1e-9
        else:
            arrays[what][0, 0] += 1e-12
        layers.append(TokenLayer((TokenHead(head.name, *arrays.values()), *layer.heads[1:]), carry))
    return with_layers(network, layers)


@pytest.mark.parametrize("task", [LASSO, LOGISTIC], ids=["lasso", "logistic"])
def test_an_entry_outside_the_pattern_is_never_proved(task: InContextTask) -> None:
    network = build(task, 21, ALGORITHMS[task.task][0])
    assert math.isfinite(prove(network, task).total)
    for number in (0, 1, 20):
        for what in ("query", "key", "value", "output", "carry"):
            with pytest.raises(Undecided):
                prove(broken(network, number, what), task)


@pytest.mark.parametrize("task", [LASSO, LOGISTIC], ids=["lasso", "logistic"])
def test_steps_that_differ_tokens_and_read_outs_are_refused(task: InContextTask) -> None:
    network = build(task, 21, ALGORITHMS[task.task][0])
    other = build(task, 21, ALGORITHMS[task.task][0], finer=1)
    with pytest.raises(Undecided, match="differ"):
        prove(with_layers(network, [*network.layers[:4], *other.layers[4:]]), task)
    for row, name in ((0, "w1"), (1, "w1"), (1, "solver")):
        constants = np.array(network.constants)
        constants[row, network.coordinates.index(name)] += 0.5
        forged = TokenNetwork(network.coordinates, network.layers, constants, network.readout, network.outputs)
        with pytest.raises(Undecided, match="token"):
            prove(forged, task)
    forged = TokenNetwork(network.coordinates, network.layers, network.constants, 2 * network.readout, network.outputs)
    with pytest.raises(Undecided, match="read-out"):
        prove(forged, task)


@pytest.mark.parametrize("task", [LASSO, LOGISTIC], ids=["lasso", "logistic"])
def test_another_class_than_the_one_it_was_built_for_is_bounded_for_what_it_is_or_not_at_all(
    task: InContextTask,
) -> None:
    """The same weights judged for another penalty or a wider spectrum."""
    rng = np.random.default_rng(5)
    network = build(task, 61, ALGORITHMS[task.task][0])
    word = "alpha" if task.task == "lasso" else "C"
    for strength, spectrum in ((1.5, (4, 20)), (1.0, (4, 60)), (1.0, (0.2, 20)), (0.5, (6, 18))):
        other = InContextTask.make(task.task, 3, 8, **{word: strength * task.strength}, spectrum=spectrum)
        try:
            bound = prove(network, other).total
        except Undecided:
            continue
        assert found_error(network, other, rng, 5) <= bound


def test_the_example_of_the_help_is_proved_and_true() -> None:
    net = af.in_context("lasso", dim=8, examples=64, spectrum=(30, 100), eps=1e-6)
    assert net.certificate.status == "proved" and net.certificate.error[1] <= 1e-6
    prompts = hard_prompts(net.task, 2) + example_prompts(net.task, 1, seed=9)
    assert max(error_of(net.network, net.task, one) for one in prompts) <= net.certificate.error[1]


def test_a_large_c_is_proved_and_true_for_separable_examples() -> None:
    net = af.in_context("logistic", 2, 40, C=100, eps=1e-3)
    assert net.certificate.status == "proved" and net.certificate.error[1] <= 1e-3
    assert error_of(net.network, net.task, hard_prompts(net.task, 1)[0]) <= 1e-3


@pytest.mark.slow
def test_separable_examples_of_a_file_are_served_within_eps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.where(X @ [1.0, 0.7] > 0, 1.0, -1.0)
    train, query = tmp_path / "train.csv", tmp_path / "q.csv"
    np.savetxt(train, np.c_[X, y], delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    np.savetxt(query, X[:5], delimiter=",", header="a,b", comments="", fmt="%.17g")
    asked = ("in-context", "logistic", "--data", str(train), "--query", str(query), "--C", "100", "--eps", "1e-3")
    assert main(list(asked)) == 0
    lines = capsys.readouterr()[0].strip().splitlines()
    got = np.array([float(line.split(",")[-2]) for line in lines[1:]])
    task = InContextTask.make("logistic", 2, 40, C=100.0)
    assert np.abs(got - exact_predictions(task, X, y, X[:5])).max() <= 1e-3


def test_too_deep_a_request_names_what_would_do() -> None:
    for task, asked in (("logistic", {"C": 1e5}), ("lasso", {"spectrum": (0.01, 100)})):
        with pytest.raises(af.Infeasible, match="more than") as why:
            af.in_context(task, 2, 40, eps=0.1, **asked)
        net = af.in_context(task, 2, 40, eps=0.1, **{**asked, **(why.value.nearest or {})})
        assert net.certificate.status == "proved"
    with pytest.raises(af.Infeasible, match="floor") as why:
        af.in_context("logistic", 2, 12, spectrum=(2, 30), eps=1e-14)
    assert why.value.nearest is not None
    net = af.in_context("logistic", 2, 12, spectrum=(2, 30), **why.value.nearest)
    assert net.certificate.status == "proved"


def test_sampled_is_for_those_who_ask_and_verify_does_not_take_it_for_a_proof(tmp_path: Path) -> None:
    asked = {"dim": 2, "examples": 6, "spectrum": (8, 20), "dtype": "float32"}
    path = tmp_path / "t.safetensors"
    for task in ("lasso", "logistic"):
        with pytest.raises(af.Infeasible, match="accept='sampled'") as why:
            af.in_context(task, eps=1e-6, **asked)
        floor = (why.value.nearest or {})["eps"]
        net = af.in_context(task, eps=floor / 3, accept="sampled", **asked)
        net.save(path)
        assert net.certificate.status == "sampled" and af.verify(path).status == "undecided"
        assert main(["verify", str(path)]) == 5


def test_a_search_finds_what_random_prompts_miss() -> None:
    """By which factor depends on the processor: 12 with AVX-512 kernels, less where sums are fused otherwise."""
    task = InContextTask.make("ridge", 8, 64, alpha=1.0, spectrum=(30, 96))
    network = build(task, 12, "chebyshev", "float32", typical=True)
    at_random = measured(network, task, 5, math.inf, search=False)[0]
    found = measured(network, task, 5, math.inf)[0]
    assert found > 2 * at_random
    between = math.sqrt(found * at_random)
    verdict = judge(network, task, between)
    assert verdict.status == "refuted" and verdict.error[0] > between


@pytest.mark.parametrize("task", ["linear", "ridge", "lasso", "logistic"])
def test_hard_and_moved_prompts_stay_in_the_class(task: str) -> None:
    spec = InContextTask.make(task, 3, 12, spectrum=(4, 40))
    rng = np.random.default_rng(1)
    found = hard_prompts(spec, 8)
    assert len(found) == 8
    lows, separated = [], 0
    for one in found:
        for _ in range(20):
            X, y, queries = one
            spec.examples_of(X, y)
            spec.queries_of(queries)
            assert spec.covers(X)
            one = moved(spec, one, rng) or one
        lows.append(spec.eigenvalues(found[len(lows)][0]))
    low, high = zip(*lows, strict=True)
    assert min(low) == pytest.approx(4, rel=1e-6) and max(high) == pytest.approx(40, rel=1e-6)
    if task == "logistic":
        big = InContextTask.make("logistic", 3, 12, C=1e6, spectrum=(4, 40))
        for X, y, _ in found:
            separated += bool((y * (X @ in_context_exact.exact_coefficients(big, X, y)) > 0).all())
        assert separated >= 4


@pytest.mark.parametrize("task", [LASSO, LOGISTIC], ids=["lasso", "logistic"])
def test_doubt_covers_coefficients_that_are_off(task: InContextTask, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    exact = in_context_exact.exact_coefficients
    for X, y, queries in example_prompts(task, 4) + hard_prompts(task, 4):
        right, w = exact_predictions(task, X, y, queries), exact(task, X, y)
        for size in (0.0, 1e-12, 1e-6, 1e-1):
            off = w + size * rng.normal(size=len(w)) * (rng.random(len(w)) < 0.7)
            monkeypatch.setattr(in_context_exact, "exact_coefficients", lambda *_, off=off: off)
            wrong, bound = exact_predictions(task, X, y, queries), doubt(task, X, y, queries)
            monkeypatch.setattr(in_context_exact, "exact_coefficients", exact)
            assert (np.abs(wrong - right) <= bound + 1e-12).all() and (size > 0 or (bound < 1e-9).all())


def test_sums_over_examples_and_readings_are_within_their_errors() -> None:
    """Random heads, far too coarse scales among them, in float64 and float32."""
    rng = np.random.default_rng(4)
    seen_bias = seen_rounding = 0.0
    for _ in range(60):
        d, N = int(rng.integers(1, 4)), int(rng.integers(2, 12))
        task = InContextTask.make("lasso", d, max(N, d), spectrum=(1, 30), x_range=100)
        N, dtype = task.examples, str(rng.choice(["float64", "float32"]))
        data = seen(task, dtype)
        U = np.linalg.qr(rng.normal(size=(N, d)))[0]
        X = (U * math.sqrt(30)).astype(dtype).astype(np.float64)
        z = (rng.normal(size=N) * rng.choice([0.01, 0.3])).astype(dtype).astype(np.float64)
        heads = tuple((Fraction(1, 2**k), float(a)) for k, a in enumerate(rng.normal(size=2) * 10))
        total = Sum(heads, N, 1000.0)
        largest, norm = float(np.abs(z).max()), float(np.linalg.norm(z))
        errors = total.errors(data, dtype, largest, norm, float(np.finfo(dtype).eps) * largest)
        computed, real = np.zeros(d), np.zeros(d)
        for ratio, amount in heads:
            logits = float(ratio) * np.concatenate([z, -z])
            terms = np.exp(logits.astype(dtype) - logits.astype(dtype).max())
            computed += amount * (terms @ np.concatenate([X, -X]).astype(dtype) / terms.sum()).astype(np.float64)
            wide = np.exp(logits.astype(np.longdouble))
            real += amount * np.asarray(wide @ np.concatenate([X, -X]) / wide.sum(), dtype=np.float64)
        bias = np.linalg.norm(real - float(total.moment(1)) * X.T @ z)
        assert bias <= errors.bias * (1 + 1e-9) + 1e-13
        assert np.linalg.norm(computed - real) <= errors.rounding + 1e-13
        seen_bias, seen_rounding = (
            max(seen_bias, bias / errors.bias),
            max(seen_rounding, float(np.linalg.norm(computed - real)) / errors.rounding),
        )
        l = float(rng.uniform(0, 1))
        read = tanh_errors(heads, l, 0.0, 500.0, dtype)
        value = sum(a * math.tanh(float(ratio) * l) for ratio, a in heads)
        slope = sum(Fraction(a) * ratio for ratio, a in heads)
        assert abs(value - float(slope) * l) <= read.bias + 1e-13
    assert seen_bias > 0.2 and seen_rounding > 0.001


def test_a_negative_strength_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, word in (("ridge", "alpha"), ("lasso", "alpha"), ("linear", "alpha"), ("logistic", "C")):
        with pytest.raises(af.InvalidRequest, match=f"{word}=-0.5 for {task}"):
            af.in_context(task, 2, 20, eps=0.1, **{word: -0.5})
    train = tmp_path / "train.csv"
    train.write_text("a,y\n1,2\n2,3\n", encoding="utf-8")
    assert main(["in-context", "ridge", "--data", str(train), "--alpha", "-3", "--eps", "0.1"]) == 2
    assert "alpha=-3" in capsys.readouterr()[1]


def logistic_exactly(X: np.ndarray, y: np.ndarray, queries: np.ndarray, C: float) -> np.ndarray:
    """Predictions by Newton's method in extended precision; |w − w*| ≤ |∇f(w)|, for the penalty's curvature is 1."""
    wide, w = X.astype(np.longdouble) * y[:, None], np.zeros(X.shape[1], dtype=np.longdouble)
    for _ in range(100):
        p = 1 / (1 + np.exp(wide @ w))
        slope = w - C * wide.T @ p
        if np.linalg.norm(slope.astype(np.float64)) < 1e-15:
            return np.asarray(1 / (1 + np.exp(-queries.astype(np.longdouble) @ w)))
        hessian = np.eye(len(w)) + C * (wide.T * (p * (1 - p))) @ wide
        w = w - np.linalg.solve(hessian.astype(np.float64), slope.astype(np.float64))
    raise AssertionError("Newton's method did not end")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_logistic_regression_on_dependent_examples_is_within_the_bound(dtype: str) -> None:
    """Equal columns, zero columns, one direction alone, fewer examples than columns: a spectrum from 0."""
    rng = np.random.default_rng(len(dtype))
    for _ in range(6):
        dim, examples = int(rng.integers(2, 5)), int(rng.integers(2, 9))
        C, high = float(rng.choice([0.3, 1.0, 3.0])), float(rng.choice([5.0, 40.0]))
        task = InContextTask.make("logistic", dim, examples, C=C, spectrum=(0, high), x_range=10.0)
        network = build(task, 2 * int(rng.integers(4, 30)) + 1, "triple-momentum", dtype)
        bound = prove(network, task).total
        prompts = hard_prompts(task, 4, int(rng.integers(1000))) + example_prompts(task, 2)
        for kind in range(4):
            X = rng.normal(size=(int(rng.integers(1, examples + 1)), dim))
            X[:, 1] = X[:, 0] * (kind != 1)
            X = np.outer(X[:, 0], rng.normal(size=dim)) if kind == 2 else X * (kind < 3)
            X *= math.sqrt(high) * (1 - 1e-6) / max(float(np.linalg.norm(X, 2)), 1e-3)
            prompts.append((X, rng.choice([-1.0, 1.0], size=len(X)), 2.5 * np.sign(rng.normal(size=(4, dim)))))
        assert math.isfinite(bound) and len(prompts) >= 8
        assert any(np.linalg.matrix_rank(X) < dim for X, _, _ in hard_prompts(task, 8))
        for X, y, queries in prompts:
            X, y, queries = task.checked(X, y, queries)
            off = predictions(network, task, X, y, queries) - logistic_exactly(X, y, queries, C)
            assert float(np.abs(off).max()) <= bound
            assert np.isfinite(doubt(task, X, y, queries)).all()


def test_dependent_columns_are_taken_by_logistic_regression_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    X = np.repeat(rng.normal(size=(10, 1)), 2, axis=1)
    y = np.where(X[:, 0] + rng.normal(size=10) > 0, 1.0, -1.0)
    train, query = tmp_path / "train.csv", tmp_path / "query.csv"
    np.savetxt(train, np.c_[X, y], delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    asked = ["--data", str(train), "--query", str(query), "--eps", "1e-4"]
    query.write_text("a,b\n0.5,0.5\n", encoding="utf-8")
    assert main(["in-context", "logistic", *asked]) == 0
    prediction, bound = (float(v) for v in capsys.readouterr().out.strip().splitlines()[1].split(",")[2:])
    assert abs(prediction - float(logistic_exactly(X, y, np.full((1, 2), 0.5), 1.0)[0])) <= bound <= 1e-4
    for other in ("linear", "lasso"):
        assert main(["in-context", other, *asked]) == 2 and "linearly dependent" in capsys.readouterr().err
        with pytest.raises(af.InvalidRequest, match="0 < low"):
            af.in_context(other, 2, 10, spectrum=(0, 80), eps=1e-3)
    for spectrum in ((1e-9, 80), (0, 80)):
        assert af.in_context("logistic", 2, 10, spectrum=spectrum, eps=1e-3).certificate.status == "proved"
    solver = af.in_context("logistic", 2, 10, spectrum=(1, 80), eps=1e-3)
    for data in (X, 0 * X):
        with pytest.raises(af.InvalidRequest, match=r"declare spectrum=\(0, 80\)"):
            solver.predict(data, y, X[:1])
