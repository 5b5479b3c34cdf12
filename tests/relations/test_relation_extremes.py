"""Relations at the ends of float64: huge and vanishing values, the relation 0, boxes of a few thousand doubles."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.errors import Infeasible
from attnfun.kinds.relation.jumps import smoothed
from attnfun.kinds.relation.prove_coefficients import expansion
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from attnfun.language import parse, precision
from attnfun.network.claim import Claim
from products import few, pairs

ONE = {"x": (0.0, 1.0)}, {"y": (0.0, 1.0)}


@pytest.mark.parametrize("size", [1e153, 1e155, 1e160, 1e200])
def test_no_rank_is_needed_for_less_than_eps(size: float) -> None:
    """Squares of singular values past 1e154 overflow: they must not exclude the rank 0 that is enough here."""
    asked = Relation.read(f"{size!r}*exp(x*y)", *ONE)
    assert rank_lower(asked, 3 * size) == 0


@pytest.mark.parametrize("size", [1e-140, 1.0, 1e140])
def test_lower_bounds_scale_with_the_relation(size: float) -> None:
    asked = Relation.read(f"{size!r}*exp(x*y)", *ONE)
    assert rank_lower(asked, 1e-6 * size) == rank_lower(Relation.read("exp(x*y)", *ONE), 1e-6) > 2


@pytest.mark.parametrize(
    ("text", "symmetric"), pairs(["0", "0*x*y", "x*y - x*y", "sin(x*y) - sin(x*y)"], [False, True])
)
def test_the_relation_0_has_features(text: str, symmetric: bool) -> None:
    found = af.relation(text, *ONE, 1e-3, symmetric=symmetric)
    points = np.linspace(0, 1, 7)
    assert found.certificate.status is Status.PROVED and (found.rank, found.rank_lower) == (1, 0)
    assert np.abs(found(points, points)).max() <= found.certificate.error[1] <= 1e-3


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("exp(-x)*exp(y)", (1000.0, 1001.0), (0.0, 1.0)),  # a factor that vanishes in float64
        ("exp(-(x + 2*y)**2)", (5000.0, 5001.0), (0.0, 1.0)),
    ],
)
def test_relations_that_vanish_in_float64(text: str, left: tuple[float, float], right: tuple[float, float]) -> None:
    found = af.relation(text, {"x": left}, {"y": right}, 1e-3, features_only=True)
    assert found.certificate.status is Status.PROVED and found.rank == 1


def test_ellipses_on_which_the_relation_overflows_are_passed_over() -> None:
    """Four times the maximum on the ellipse is past the largest double, which says nothing of smaller ellipses."""
    graph = parse("exp(-(5*x + 1)**2)", ("x",))
    with precision(128):
        found = expansion(graph, ("x",), np.array([0.5]), np.array([3.0]), 1e-10)
    x = np.linspace(0.5, 3, 2001)
    values = np.polynomial.chebyshev.chebval((2 * x - 3.5) / 2.5, found.table)
    assert np.abs(values - np.exp(-((5 * x + 1) ** 2))).max() <= found.error + 1e-12


@pytest.mark.parametrize("eps", few([math.ulp(0.0), 1e-310], 1))
def test_tolerances_below_all_doubles_are_refused(eps: float) -> None:
    with pytest.raises(af.Infeasible):
        af.relation("x*y", *ONE, eps, features_only=True)


@pytest.mark.parametrize("band", [1e-310, math.ulp(0.0), 10**400])
def test_bands_that_are_no_width_are_refused(band: float) -> None:
    with pytest.raises(af.InvalidRequest, match="band"):
        af.relation("sign(x-y)", *ONE, 0.5, band=band)


def test_a_jump_past_the_largest_double_is_refused() -> None:
    with pytest.raises(af.InvalidRequest, match="eps is too small"):
        af.relation("1e300*(1e300*sign(x-y))", *ONE, 0.5, band=0.1)


@pytest.mark.parametrize("count", [4701, 4831, 4843])
def test_the_measure_of_a_band_counts_halves_that_are_not_equal(count: int) -> None:
    """The halves of an odd number of doubles differ: the first half of the first half, is no 8th here."""
    low, high = 1.0, 1.0 + count * 2.0**-52
    end = high
    for _ in range(3):
        end = low + (end - low) / 2
    asked = Relation.read("sign(x - 1)", {"x": (low, high)}, {"y": (0.0, 1.0)})
    width = (end - low) * (1 - 1e-6)
    _, band = smoothed(asked, width, 0.5)
    assert Fraction(band.measure) >= Fraction(width) / Fraction(high - low) > Fraction(1.0001) / 8


def test_the_box_of_a_ternary_relation_may_be_where_it_is_huge() -> None:
    box = {name: (0.0, 1.0) for name in "xyz"}
    found = af.ternary("1e160*exp(x*y*z)", box, 1e165)
    assert (found.rank, found.rank_lower) == (1, 0)


@pytest.mark.parametrize("eps", [10**400, True, "1", -1, 0])
def test_a_stored_tolerance_that_is_none_is_damage(
    eps: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.safetensors"
    found = af.relation("x*y", *ONE, 1e-3, features_only=True)
    made = Claim.to_json
    monkeypatch.setattr(Claim, "to_json", lambda claim: {**made(claim), "eps": eps})
    found.save(path)
    for read in (af.verify, af.load):
        with pytest.raises(af.DamagedFile, match="eps"):
            read(path)


def test_a_file_without_a_tolerance_is_read_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    found = af.relation("x*y", *ONE, 1e-3, features_only=True)
    dataclasses.replace(found, request={"eps": None}).save(path)
    assert af.verify(path).status is Status.BOUNDED
    assert af.verify(path, eps=1e-3).status is Status.PROVED
    assert af.load(path).record()["rank"] == 1


@pytest.mark.parametrize(
    ("text", "left", "eps"),
    [("x*y", (1e6, 1e6 + 1e-6), 1e-3), ("1e100*x*y", (0.0, 1.0), 1e90), ("exp(x)*exp(20 + y)", (20.0, 21.0), 1e10)],
)
def test_one_large_factor_asks_for_more_of_the_others(text: str, left: tuple[float, float], eps: float) -> None:
    """The error of one factor counts as often as the others are large."""
    found = af.relation(text, {"x": left}, {"y": (0.0, 1.0)}, eps, features_only=True)
    X, Y = np.linspace(*left, 41)[:, None], np.linspace(0, 1, 41)[:, None]
    exact = found.target.values(X, Y)
    assert found.certificate.status is Status.PROVED and found.rank == 1
    assert np.abs(found.pairs(X, Y) - exact).max() <= found.certificate.error[1] + 4e-16 * np.abs(exact).max()


def test_a_jump_is_refused_with_a_band_that_succeeds() -> None:
    with pytest.raises(Infeasible) as refused:
        af.relation("sign(x - y) + x", {"x": (0, 1)}, {"y": (0, 1)}, 0.3)
    assert "jump" in str(refused.value) and "norm" not in str(refused.value).replace("sup norm", "")
    assert refused.value.nearest is not None and set(refused.value.nearest) == {"band"}
    found = af.relation("sign(x - y) + x", {"x": (0, 1)}, {"y": (0, 1)}, 0.3, **refused.value.nearest)
    assert found.certificate.status == "proved" and found.band is not None
    X, Y = np.random.default_rng(0).random((2, 4000))
    away = np.abs(X - Y) >= found.band.delta
    assert np.abs(found.pairs(X, Y) - np.sign(X - Y) - X)[away].max() <= 0.3


def test_a_jump_inside_a_product_has_no_band_to_offer() -> None:
    with pytest.raises(Infeasible) as refused:
        af.relation("sign(x - y)*x", {"x": (0, 1)}, {"y": (0, 1)}, 0.1)
    assert refused.value.nearest is None


def test_towers_too_dear_for_most_of_eps_get_more_of_it() -> None:
    """tanh(15 (x − y)) at 1e-2: what the first share of eps leaves to the towers takes more keys than there are."""
    found = af.relation("tanh(15*(x - y))", {"x": (0, 1)}, {"y": (0, 1)}, 1e-2)
    assert found.certificate.status == "proved" and not found.features_only
    X, Y = np.random.default_rng(1).random((2, 4000))
    assert np.abs(found.pairs(X, Y) - np.tanh(15 * (X - Y))).max() <= found.certificate.error[1] <= 1e-2
