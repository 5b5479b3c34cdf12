"""Bounds of single prompts: never below the true error, hardly above it, and infinite only where nothing is determined.

Truth is exact: rational arithmetic for least squares, ridge and lasso (all sign patterns are tried), 60 digits for
logistic regression.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.in_context.exact import example_prompts
from attnfun.kinds.in_context.prove_prompt import NOT_FINITE, UNDETERMINED, prompt_bounds
from attnfun.kinds.in_context.target import InContextTask

KINDS = ("normal", "twins", "sum", "near", "wide", "scaled", "whole", "zero")
Rows = list[list[Fraction]]


def drawn(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y and queries: dependent and nearly dependent columns, more columns than rows, scales far apart, ties."""
    d = int(rng.integers(2, 5))
    n = int(rng.integers(1, d)) if kind == "wide" else int(rng.integers(d, 9))
    X = rng.normal(size=(n, d))
    if kind in ("whole", "sum"):
        X = rng.integers(-3, 4, size=(n, d)).astype(float)
    if kind == "twins":
        X[:, -1] = X[:, 0]
    elif kind == "sum":
        X[:, -1] = X[:, :-1].sum(axis=1)
    elif kind == "near":
        X[:, -1] = X[:, 0] * (1 + 1e-9 * rng.normal(size=n))
    elif kind == "scaled":
        X *= 10.0 ** rng.integers(-8, 9, size=d)
    y = np.zeros(n) if kind == "zero" else rng.normal(size=n) * 3
    y = np.round(y) if kind == "whole" else y
    queries = rng.normal(size=(4, d))
    queries[0] = X[0]
    if kind == "twins":
        queries[1, -1] = queries[1, 0]
    return X, y, queries


def dot(left: list[Fraction], right: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def rational(X: np.ndarray) -> Rows:
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(X)]


def solved(A: Rows, b: list[Fraction]) -> list[Fraction] | None:
    """The solution of A w = b by Gauss, or None for a singular matrix."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k] != 0:
                rows[i] = [a - rows[i][k] * c for a, c in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def rank(rows: Rows) -> int:
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column] != 0), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for i in range(found + 1, len(rows)):
            share = rows[i][column] / rows[found][column]
            rows[i] = [a - share * c for a, c in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def gram(X: Rows, y: list[Fraction], alpha: Fraction, on: list[int]) -> tuple[Rows, list[Fraction]]:
    A = [[sum(row[i] * row[j] for row in X) + (alpha if i == j else 0) for j in on] for i in on]
    return A, [dot([row[i] for row in X], y) for i in on]


def exact_linear(X: np.ndarray, y: np.ndarray, alpha: float) -> list[Fraction]:
    """A minimiser: the one on some independent columns."""
    rows, d = rational(X), X.shape[1]
    on: list[int] = []
    for j in range(d):
        if alpha or rank([[row[i] for i in [*on, j]] for row in rows]) == len(on) + 1:
            on.append(j)
    w = solved(*gram(rows, rational(y)[0], Fraction(alpha), on))
    assert w is not None
    return [dict(zip(on, w, strict=True)).get(j, Fraction(0)) for j in range(d)]


def exact_lasso(X: np.ndarray, y: np.ndarray, alpha: float) -> list[Fraction]:
    """A minimiser, by trying all signs: independent columns on, conditions met exactly."""
    rows, t, d = rational(X), rational(y)[0], X.shape[1]
    a = Fraction(alpha) * len(rows)
    for signs in itertools.product((0, 1, -1), repeat=d):
        on = [j for j in range(d) if signs[j]]
        A, b = gram(rows, t, Fraction(0), on)
        part = solved(A, [v - a * signs[j] for v, j in zip(b, on, strict=True)]) if on else []
        if part is None or any(v * signs[j] < 0 for v, j in zip(part, on, strict=True)):
            continue
        w = [dict(zip(on, part, strict=True)).get(j, Fraction(0)) for j in range(d)]
        left = [v - dot(row, w) for row, v in zip(rows, t, strict=True)]
        if all(abs(dot([row[j] for row in rows], left)) <= a for j in range(d)):
            return w
    raise AssertionError("no signs fit")


def checked(
    task: InContextTask, X: np.ndarray, y: np.ndarray, queries: np.ndarray, exact: list, seed: int
) -> list[str]:
    """Bounds of predictions that are off by a little, a lot and not at all; returns the reasons."""
    rng = np.random.default_rng(seed)
    for size in (0.0, 1e-14, 1e-6, 1.0):
        near = np.array([float(v) for v in exact])
        predictions = near + size * rng.normal(size=len(near)) * np.maximum(1.0, np.abs(near))
        bounds, reasons = prompt_bounds(task, X, y, queries, predictions)
        for p, bound, why, true in zip(predictions, bounds, reasons, exact, strict=True):
            if why:
                assert why == UNDETERMINED and bound == math.inf
                continue
            error = abs(Fraction(float(p)) - true) if isinstance(true, Fraction) else abs(mpmath.mpf(float(p)) - true)
            assert error <= bound
            assert bound <= float(error) * (1 + 1e-12) + 1e-20 * max(1.0, float(abs(true)))
    return list(reasons)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["linear", "ridge"])
def test_least_squares_and_ridge_are_bounded_by_their_error_and_undetermined_only_off_the_rows(
    name: str, kind: str
) -> None:
    rng = np.random.default_rng([KINDS.index(kind), len(name)])
    seen = set()
    for trial in range(6):
        X, y, queries = drawn(kind, rng)
        alpha = 0.0 if name == "linear" else float(rng.choice([1e-12, 0.3, 5.0]))
        task = InContextTask.make(name, X.shape[1], len(X), alpha=alpha, spectrum=(max(alpha, 1), 100))
        w = exact_linear(X, y, alpha)
        exact = [dot(row, w) for row in rational(queries)]
        reasons = checked(task, X, y, queries, exact, trial)
        for q, why in zip(queries, reasons, strict=True):
            free = alpha == 0 and rank(rational(np.r_[X, [q]])) > rank(rational(X))
            assert (why == UNDETERMINED) == free
            seen.add(free)
    if name == "linear":
        assert False in seen and (True in seen or kind not in ("twins", "sum", "wide"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_lasso_is_bounded_by_its_error(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    bounded = 0
    for trial in range(6):
        X, y, queries = drawn(kind, rng)
        scale = float(np.abs(X.T @ y).max()) / len(X)
        alpha = float(rng.choice([0.05, 0.4, 1.0, 2.0])) * (scale or 1.0)
        task = InContextTask.make("lasso", X.shape[1], len(X), alpha=alpha, spectrum=(1, 100))
        w = exact_lasso(X, y, alpha)
        exact = [dot(row, w) for row in rational(queries)]
        reasons = checked(task, X, y, queries, exact, trial)
        bounded += reasons.count("")
        if kind in ("normal", "near", "wide", "scaled", "zero"):
            assert not any(reasons)  # also with more columns than examples
        elif kind == "twins":
            on = w[0] != 0 or w[-1] != 0  # then any share of the two will do
            assert [bool(why) for why in reasons] == [on and q[0] != q[-1] for q in queries]
    assert bounded >= 6


def exact_logistic(X: np.ndarray, y: np.ndarray, C: float, queries: np.ndarray) -> list:
    with mpmath.workdps(60):
        rows = [[mpmath.mpf(float(v)) * int(s) for v in row] for row, s in zip(X, y, strict=True)]
        d, w, damp = X.shape[1], mpmath.zeros(X.shape[1], 1), mpmath.mpf(1)

        def value(w):
            return C * sum(mpmath.log1p(mpmath.exp(-mpmath.fdot(row, w))) for row in rows) + mpmath.fdot(w, w) / 2

        for _ in range(200):
            p = [1 / (1 + mpmath.exp(mpmath.fdot(row, w))) for row in rows]
            pulls = mpmath.matrix(p).T * mpmath.matrix(rows)
            slope = w - C * pulls.T
            weighted = mpmath.matrix([[s * (1 - s) * v for v in row] for s, row in zip(p, rows, strict=True)])
            bend = mpmath.eye(d) + C * mpmath.matrix(rows).T * weighted
            step, damp = mpmath.lu_solve(bend, slope), mpmath.mpf(1)
            while value(w - damp * step) > value(w) and damp > 1e-9:
                damp /= 2
            w = w - damp * step
            if mpmath.norm(step) < mpmath.mpf(10) ** -45:
                break
        else:
            raise AssertionError("Newton's method did not converge")
        return [1 / (1 + mpmath.exp(-mpmath.fdot([mpmath.mpf(float(v)) for v in q], w))) for q in queries]


@pytest.mark.parametrize("kind", ["normal", "twins", "near", "wide", "separable", "strong"])
def test_logistic_regression_is_bounded_by_its_error(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for trial in range(2):
        X, y, queries = drawn(kind, rng)
        y = np.where(y > 0, 1.0, -1.0)
        if kind == "separable":
            X = np.abs(X) * y[:, None]
        C = 1e4 if kind == "strong" else float(rng.choice([0.1, 1.0, 30.0]))
        task = InContextTask.make("logistic", X.shape[1], len(X), C=C, spectrum=(1, 100))
        with mpmath.workdps(60):
            assert not any(checked(task, X, y, queries, exact_logistic(X, y, C, queries), trial))


def test_predict_gives_the_bound_of_these_data_for_every_task() -> None:
    for name in ("linear", "ridge", "lasso", "logistic"):
        asked = {} if name in ("linear", "ridge") else {"accept": "sampled"}
        net = af.in_context(name, 2, 12, spectrum=(4, 12), eps=1e-3, x_range=6.0, **asked)
        X, y, q = example_prompts(net.task, 1, queries=5, seed=3)[0]
        found = net.predict(X, y, q, bound=True)
        assert np.array_equal(found.predictions, net.predict(X, y, q))
        assert found.outside == "" and not any(found.reasons)
        again, _ = prompt_bounds(net.task, X, y, q, found.predictions)
        assert np.array_equal(found.bound, again) and 0 < found.bound.max() <= 1e-3


def test_a_prompt_outside_the_class_is_refused_without_a_bound_and_said_to_be_outside_with_one() -> None:
    net = af.in_context("linear", 2, 6, spectrum=(2, 20), eps=1e-6, x_range=6.0)
    rng = np.random.default_rng(5)
    line = rng.normal(size=(6, 1)) * [1.0, 2.0]  # one direction only
    y, q = rng.normal(size=6), np.array([[1.0, 2.0], [2.0, -1.0]])
    for X, word in ((line, "eigenvalues"), (100 * rng.normal(size=(6, 2)), "x_range")):
        with pytest.raises(af.InvalidRequest, match=word):
            net.predict(X, y, q)
        assert word in net.predict(X, y, q, bound=True).outside
    found = net.predict(line, y, q, bound=True)
    assert found.reasons == ("", UNDETERMINED) and found.bound[1] == math.inf
    true = exact_linear(line, y, 0.0)
    assert abs(Fraction(float(found.predictions[0])) - true[0] - 2 * true[1]) <= found.bound[0] < math.inf
    with pytest.raises(af.InvalidRequest):
        net.predict(np.ones((7, 2)), np.ones(7), q, bound=True)  # more examples than the network has room for
    huge = net.predict(1e200 * line, y, q, bound=True)
    assert huge.reasons[0] == (NOT_FINITE if not math.isfinite(huge.predictions[0]) else "")


def test_the_command_line_prints_the_bound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    X, q = rng.normal(size=(12, 2)), rng.normal(size=(3, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=12)
    train, query = tmp_path / "train.csv", tmp_path / "q.csv"
    np.savetxt(train, np.c_[X, y], delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    np.savetxt(query, q, delimiter=",", header="a,b", comments="", fmt="%.17g")
    asked = ["in-context", "ridge", "--data", str(train), "--query", str(query), "--eps", "1e-4"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "a,b,prediction,bound"
    w = exact_linear(X, y, 1.0)
    for line, point in zip(lines[1:], q, strict=True):
        prediction, bound = (Fraction(float(v)) for v in line.split(",")[2:])
        assert abs(prediction - dot(rational(point)[0], w)) <= bound <= Fraction(1, 10**4)
    assert main([*asked, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [repr(v) for v in record["bounds"]] == [line.split(",")[-1] for line in lines[1:]]
    assert record["reasons"] == ["", "", ""]


def test_the_command_line_says_what_the_data_do_not_determine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, train, query = tmp_path / "l.safetensors", tmp_path / "train.csv", tmp_path / "q.csv"
    af.in_context("linear", 2, 6, spectrum=(2, 20), eps=1e-4, x_range=6.0).save(file)
    train.write_text("a,b,y\n1,2,1\n2,4,2.5\n-1,-2,0\n", encoding="utf-8")
    query.write_text("a,b\n1,2\n2,-1\n", encoding="utf-8")
    asked = ["in-context", str(file), "--data", str(train), "--query", str(query)]
    assert main(asked) == 2 and "linearly dependent" in capsys.readouterr().err
    assert main([*asked, "--outside"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split(",") for line in out.strip().splitlines()[1:]]
    assert abs(Fraction(float(rows[0][2])) - 1) <= Fraction(float(rows[0][3])) and rows[1][3] == "inf"
    assert f"query 2: {UNDETERMINED}" in err and "outside the class" in err and "query 1" not in err
    assert main([*asked, "--outside", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["bounds"][1] is None and record["reasons"] == ["", UNDETERMINED] and record["outside"]
