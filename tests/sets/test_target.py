"""The language of set functions, exact power sums, and how many features DeepSets needs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.kinds.set.analysis import analyse
from attnfun.kinds.set.pattern import as_sums_over_elements, check_exact, exact_value
from attnfun.kinds.set.power_sums import NotPolynomial, power_sums
from attnfun.kinds.set.target import SetFunction, pair_tokens
from attnfun.limits.separation.hard_sets import HardSet

LINE = {"x": (-1, 1)}
PLANE = {"x": (-1, 1), "y": (0.5, 2)}
MEANINGS = [
    ("sum(x**2) + sum(x[i]*x[j])", LINE, lambda x: (x**2).sum() + np.outer(x, x).sum()),
    ("sum(x_j) * mean(x)", LINE, lambda x: x.sum() * x.mean()),
    ("mean(sin(x_i - 2*x_j))", LINE, lambda x: np.sin(x[:, None] - 2 * x[None, :]).mean()),
    ("distinct(x_i*x_j**2)", LINE, lambda x: sum(a * b**2 for i, a in enumerate(x) for j, b in enumerate(x) if i != j)),
    ("pairs(x)", LINE, lambda x: len(x) * x.sum()),
    ("max(x_i - x_j) + min(x)", LINE, lambda x: x.max() - x.min() + x.min()),
    ("max(sum(x), 0.5)", LINE, lambda x: max(x.sum(), 0.5)),
    ("sum(x*sum(x_j**2))", LINE, lambda x: x.sum() * (x**2).sum()),
]


@pytest.mark.parametrize(("text", "domain", "meaning"), MEANINGS)
def test_sums_mean_what_they_say(text: str, domain: object, meaning: object) -> None:
    rng = np.random.default_rng(0)
    target = SetFunction.read(text, domain, 5)
    X = rng.uniform(-1, 1, (7, 5, 1))
    expected = [meaning(x[:, 0]) for x in X]  # type: ignore[operator]
    np.testing.assert_allclose(target.values(X)[:, 0], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(target.values(X[:, rng.permutation(5)]), target.values(X), rtol=1e-12, atol=1e-12)
    pairs = target.on_pairs().values(pair_tokens(X))
    np.testing.assert_allclose(pairs, np.broadcast_to(np.array(expected)[:, None, None], pairs.shape), atol=1e-12)
    if not target.has_pairs:
        np.testing.assert_allclose(target.on_elements().values(X)[:, 3, 0], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("target", "domain", "points"),
    [
        ("x + sum(x)", LINE, 4),
        ("sum(3)", LINE, 4),
        ("sum(sum(x))", LINE, 4),
        ("sum(x, x)", LINE, 4),
        ("sum(z)", LINE, 4),
        ("sum(x[k])", LINE, 4),
        ("sum(x.real)", LINE, 4),
        ("sum(x)", {"x": (0, 1), "x_i": (0, 1)}, 4),
        ("sum(x)", LINE, 0),
        ("sum(x)", LINE, 65),
        ("sum(x)", LINE, 2.5),
        ([], LINE, 4),
        (3, LINE, 4),
    ],
)
def test_what_is_no_set_function_is_refused(target: object, domain: object, points: object) -> None:
    with pytest.raises(InvalidRequest) as why:
        SetFunction.read(target, domain, points)
    assert "\n" not in str(why.value)


POLYNOMIALS = [
    ("sum(x**2) + sum(x[i]*x[j])", LINE, 4),
    ("distinct((x_i - y_j)**3) * sum(x*y) - mean(x_i*x_j)/3 + 7", PLANE, 3),
    ("(sum(x) + 1)**3 - sum(x*sum(x_j**2))", LINE, 5),
    (["sum((x_i - x_j)**4)", "sum(y)**2 - 0.1*sum(x_i*y_j)"], PLANE, 4),
    (HardSet(4, 2).expressions(), HardSet(4, 2).domain, 4),
]


@pytest.mark.parametrize(("text", "domain", "points"), POLYNOMIALS)
def test_power_sums_give_the_exact_values(text: object, domain: object, points: int) -> None:
    target = SetFunction.read(text, domain, points)
    found = power_sums(target)
    assert check_exact(target, found, seed=1, trials=5)
    rng = np.random.default_rng(2)
    X = target.box.low_array + (target.box.high_array - target.box.low_array) * rng.random((20, points, target.box.dim))
    rewritten = as_sums_over_elements(target, found)
    assert not any(d.kind != "sum" and d.graph is None for d in rewritten.definitions)
    np.testing.assert_allclose(rewritten.values(X)[:, 0], target.values(X), rtol=1e-10, atol=1e-10)


def test_a_wrong_form_is_noticed() -> None:
    target = SetFunction.read("sum(x_i*x_j) + sum(x)", LINE, 4)
    other = power_sums(SetFunction.read("sum(x_i*x_j) + 2*sum(x)", LINE, 4))
    assert not check_exact(target, other)


def test_exact_values_are_sums_over_elements_and_pairs() -> None:
    target = SetFunction.read("sum(x_i*x_j**2) - mean(x)", LINE, 3)
    x = [Fraction(k, 3) for k in (1, -2, 5)]
    assert exact_value(target, [[v] for v in x]) == [sum(a * b**2 for a in x for b in x) - sum(x) / 3]


@pytest.mark.parametrize("text", ["sum(exp(x))", "max(x)", "sum(abs(x_i-x_j))", "1/sum(x)", "sum(x)*sin(0)"])
def test_what_is_no_polynomial_is_told(text: str) -> None:
    with pytest.raises(NotPolynomial):
        power_sums(SetFunction.read(text, LINE, 4))


@pytest.mark.parametrize(
    ("text", "domain", "points", "rank", "needed", "sufficient"),
    [
        ("sum(x_i*x_j)", LINE, 4, 1, 1, 1),
        ("sum(x**2) + sum(x_i*x_j)", LINE, 4, 1, 2, 2),
        ("sum((x_i - x_j)**2)", LINE, 4, 1, 2, 2),
        ("sum((x_i - x_j)**4)", LINE, 4, 3, 4, 4),
        ("sum(x*y)", PLANE, 4, 0, 1, 1),
        ("(sum(x) + sum(x**2))**2", LINE, 4, 1, 1, 1),
        ("3 + sum(x) - sum(x)", LINE, 4, 0, 0, 0),
        (HardSet(4, 2).expressions(), HardSet(4, 2).domain, 4, 6, 6, 6),
        (HardSet(8, 1).expressions(), HardSet(8, 1).domain, 8, 8, 8, 8),
    ],
)
def test_known_counts(text: object, domain: object, points: int, rank: int, needed: int, sufficient: int) -> None:
    analysis, _ = analyse(SetFunction.read(text, domain, points))
    found = analysis.two_factor_rank, analysis.features_needed, analysis.features_sufficient
    assert (analysis.kind, found) == ("exact", (rank, needed, sufficient))


def polynomial(rng: np.random.Generator, names: tuple[str, ...], degree: int) -> str:
    """A random polynomial without constant term."""
    terms = []
    for _ in range(int(rng.integers(1, 4))):
        chosen = rng.choice(names, size=int(rng.integers(1, degree + 1)))
        terms.append(f"{int(rng.integers(-3, 4)) or 1}*{'*'.join(chosen)}")
    return " + ".join(terms)


@pytest.mark.parametrize("seed", range(60))
def test_no_more_features_are_called_needed_than_a_deep_sets_has(seed: int) -> None:
    """Targets that *are* ρ(Σψ_1 … Σψ_H): neither count may exceed H, whatever the number of points and the box."""
    rng = np.random.default_rng(seed)
    H = int(rng.integers(1, 4))
    domain = ({"x": (1, 2)}, PLANE, {"x": (-1, 1), "y": (-2, 1)})[int(rng.integers(3))]
    features = tuple(f"sum({polynomial(rng, tuple(domain), 3)})" for _ in range(H))
    text = polynomial(rng, features, 3)
    target = SetFunction.read(text, domain, int(rng.integers(1, 9)))
    analysis, _ = analyse(target)
    assert analysis.kind == "exact"
    assert analysis.features_needed is not None and analysis.features_sufficient is not None
    assert analysis.features_needed <= analysis.features_sufficient <= H
