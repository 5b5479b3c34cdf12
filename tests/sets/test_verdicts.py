"""What is said of DeepSets and pairs: counts that agree with each other, with the theorem, and with the words."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.set.analysis import SetAnalysis, analyse
from attnfun.kinds.set.power_series import power_series
from attnfun.kinds.set.target import SetFunction

NAMES = ("x", "y", "z")
KERNELS = (
    "exp(-{a}*({d})**2)",
    "abs({d})",
    "({d})**{p}",
    "cos({a}*({d}))",
    "1/(3 + {a}*({s})**2)",
    "exp({s})",
    "sqrt(1 + ({d})**2)",
    "tanh({s})*({d})**2",
    "log(2 + ({s})**2)",
    "({s})**{p} + ({d})**2",
)


def pair_function(rng: np.random.Generator, dim: int) -> str:
    """A random function of a pair, through differences and products of coordinates."""
    used = [name for name in NAMES[:dim] if rng.random() < 0.8] or ["x"]
    numbers = {"a": int(rng.integers(1, 5)), "p": int(rng.integers(1, 7))}
    difference = " + ".join(f"{int(rng.integers(1, 4))}*({n}_i - {n}_j)" for n in used)
    product = " + ".join(f"{n}_i*{n}_j" for n in used)
    return str(rng.choice(KERNELS)).format(d=difference, s=product, **numbers)


def drawn(seed: int) -> SetFunction:
    """A random symmetric function of at most four points in at most three dimensions."""
    rng = np.random.default_rng(seed)
    points, dim = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    text = f"{rng.choice(('sum', 'distinct', 'mean', 'max'), p=(0.6, 0.15, 0.15, 0.1))}({pair_function(rng, dim)})"
    if rng.random() < 0.3:
        text = f"({text})**2 + sum(exp(x))" if rng.random() < 0.5 else f"log(9 + ({text})**2)"
    low = int(rng.integers(-1, 2))
    return SetFunction.read(text, {name: (low, low + 1) for name in NAMES[:dim]}, points)


def consistent(target: SetFunction, a: SetAnalysis) -> None:
    """The verdict's words against its numbers, and these against the theorem."""
    n, dim = target.points, target.box.dim
    assert a.features_sufficient <= a.general_features <= math.comb(dim + n, n) - 1
    assert a.features_needed is None or 0 <= a.features_needed <= a.features_sufficient
    written = sum(n if s.pairs else 1 for s in target.sums)
    pays = a.features_needed is not None and a.features_needed > written
    assert a.verdict.startswith("pairs pay") == (pays and target.has_pairs)
    assert a.verdict.startswith("DeepSets is enough") == (a.features_sufficient <= written and target.has_pairs)
    assert ("needed: unknown" in a.verdict) == (a.features_needed is None)
    counts = [int(m.replace(",", "")) for m in re.findall(r"[\d,]*\d", a.verdict)]
    assert all(count <= max(a.general_features, len(target.sums)) for count in counts)


@cache
def analysed(seed: int) -> SetAnalysis:
    return analyse(drawn(seed))[0]


@pytest.mark.parametrize("seed", range(70))
def test_no_count_is_above_the_power_sums_that_determine_a_set(seed: int) -> None:
    consistent(drawn(seed), analysed(seed))


def test_the_verdicts_drawn_are_of_every_kind() -> None:
    found = [analysed(seed) for seed in range(70)]
    assert {a.kind for a in found} == {"exact", "series", "none"}
    words = {a.verdict.split(":")[0] for a in found}
    assert words == {"DeepSets is enough", "unknown whether pairs pay", "pairs pay"}


@pytest.mark.parametrize(
    ("text", "points", "needed"),
    [
        ("sum(exp(-4*(x[i]-x[j])**2))", 2, 2),
        ("sum(abs(x[i]-x[j]))", 2, None),
        ("sum((x[i]-x[j])**4)", 2, 1),
        ("max(x)", 2, None),
        ("sum(exp(x*sum(x)))", 2, 1),
    ],
)
def test_two_sums_are_enough_for_two_points_of_a_line(text: str, points: int, needed: int | None) -> None:
    analysis, _ = analyse(SetFunction.read(text, {"x": (-1, 1)}, points))
    assert (analysis.features_needed, analysis.features_sufficient) == (needed, 2)
    assert "pairs pay" not in analysis.verdict


@pytest.mark.parametrize("seed", range(40))
def test_no_more_sums_are_needed_than_an_analytic_target_is_made_of(seed: int) -> None:
    """ρ(Σψ_1 … Σψ_H), ρ and ψ analytic and no polynomials: neither count exceeds H, nor C(D+n, n) − 1."""
    rng = np.random.default_rng(seed)
    H, dim, points = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 7))
    inner = ("sin({u})", "exp({u}) - 1", "log(1 + ({u})**2)", "({u})**3", "{u}")
    outer = ("{s}", "({s})**2", "exp({s})", "cos({s})", "({s})*({t})", "tanh({s}) + ({t})**3")
    sums = []
    for _ in range(H):
        u = " + ".join(f"{int(rng.integers(-2, 3)) or 1}*{name}" for name in NAMES[:dim])
        sums.append(f"sum({str(rng.choice(inner)).format(u=u)})")
    parts = (str(rng.choice(outer)).format(s=s, t=sums[int(rng.integers(H))]) for s in sums)
    target = SetFunction.read(" + ".join(parts), {name: (-1, 1) for name in NAMES[:dim]}, points)
    analysis, _ = analyse(target)
    assert analysis.kind in ("exact", "series") and analysis.features_sufficient <= H
    consistent(target, analysis)


@pytest.mark.parametrize(
    "text",
    [
        "sum(exp(-(x_i - x_j)**2)*cos(x_i*y_j))",
        "log(1 + sum((x_i - y_j)**2))",
        "sum(tanh(x_i + y_j) + atan(x_i*x_j))",
        "sqrt(1 + sum(sin(x)*y))/(2 + sum(expm1(x_i*y_j)))",
        "sum(sigmoid(x_i)*tan(y_j)) + mean(cosh(x_i - x_j)*sinh(y_i))",
        "sum(log1p(x_i*y_j))",
    ],
)
def test_power_series_are_those_of_the_target(text: str) -> None:
    """The remainder after degree m falls like t^(m+1) along points t X."""
    target = SetFunction.read(text, {"x": (-1, 1), "y": (-1, 1)}, 4)
    series, most = power_series(target)
    rng = np.random.default_rng(1)
    rows = [[Fraction(int(v), 10) for v in row] for row in rng.integers(-9, 10, size=(4, 2))]
    errors = []
    for shrink in (32, 64):
        X = [[v / shrink for v in row] for row in rows]
        exact = target.values(np.array(X, dtype=float)[None])[0, 0]
        errors.append(abs(float(series.value(X)[0]) - exact))
    assert most == 4 and errors[0] < 1e-3
    assert errors[1] <= errors[0] / 2**most + 1e-14


@pytest.mark.parametrize("seed", range(30))
def test_bounds_on_sets_name_no_count_above_the_power_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, dim = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    degree = int(rng.integers(1, min(dim, 3) + 1)) if rng.random() < 0.5 else None
    every = math.comb(dim + points, points) - 1
    found = af.bounds.sets(points, dim, every, float(rng.uniform(1e-3, 0.9)), degree=degree)
    assert found.features_needed is not None and found.features_sufficient is not None
    assert found.features_needed <= found.features_sufficient <= every
    assert found.lower == found.sharper_lower == found.upper == 0


def test_the_verdicts_of_the_page_are_those_given() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sets.md").read_text()
    rows = re.findall(r"^\| `(sum\(.*)` \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) >= 3
    for text, points, verdict in rows:
        names = [name for name in NAMES if re.search(rf"\b{name}\b", text)]
        domain = {name: (-1, 1) for name in names}
        assert analyse(SetFunction.read(text, domain, int(points)))[0].verdict == verdict
