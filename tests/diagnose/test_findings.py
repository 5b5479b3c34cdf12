"""Findings are functions of figures: made-up figures give the finding they should, and other figures the opposite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnfun.diagnosis import Figures, findings

GOOD = Figures(
    name="h",
    layer=0,
    place=0,
    keys=32,
    grid=(32,),
    points=1000,
    picks=False,
    key_norm_mean=10.0,
    key_norm_max=20.0,
    effective_mean=2.0,
    effective_min=1.5,
    effective_max=2.5,
    top_weight=0.6,
    margin=3.0,
    cells=(),
    size=1.0,
    value_max=1.0,
    value_spread=2.0,
    mixture=1.0,
    deviation=0.1,
    gain=1.0,
    tolerance=0.01,
    eps=0.01,
    eps_how="asked",
    dtype="float32",
    roundoff=2.0**-24,
    rounding=1e-7,
    rounding_scale=1e-6,
    logit_size=10.0,
    logit_max=10.0,
    exp_limit=88.7,
    overflow=False,
    dead=0,
    redundant=0,
    sharpness=5.0,
    sharpness_needed=16.0,
    scale_needed=3.2,
    lipschitz=3.0,
    lipschitz_how="proved",
    staircase=0.1,
    error=0.005,
    hard_error=0.1,
    best_scale=1.0,
    best_error=0.005,
)
BLURRED: dict[str, Any] = {"error": 0.3, "effective_mean": 9.0, "best_scale": 8.0, "best_error": 0.02, "sharpness": 0.6}
STEPS: dict[str, Any] = {"error": 0.1, "top_weight": 0.99, "effective_mean": 1.02, "best_scale": 0.01}
STEPS |= {"best_error": 0.03, "sharpness": 500.0}
LARGE: dict[str, Any] = {"value_max": 5e5, "mixture": 2e5, "rounding": 0.02, "rounding_scale": 0.1}


def first(**changes: Any) -> tuple[str, str]:
    found = findings(replace(GOOD, **changes))[0]
    return found.kind, found.severity


@pytest.mark.parametrize(
    ("changes", "kind", "severity"),
    [
        ({}, "healthy", "healthy"),
        (BLURRED, "fuzzy partition", "serious"),
        (BLURRED | {"error": 0.009}, "healthy", "healthy"),  # a blur within the tolerance is none
        (BLURRED | {"best_scale": 1.0, "best_error": 0.3}, "too few keys", "serious"),  # not explained by the blur
        (BLURRED | {"value_max": 40.0}, "temperature off", "serious"),  # values that are no function values
        (BLURRED | {"eps_how": "1 % of the range"}, "fuzzy partition", "serious"),
        (BLURRED | {"eps_how": "1 % of the range", "error": 0.05}, "fuzzy partition", "warning"),
        (BLURRED | {"rival_error": 0.001}, "healthy", "healthy"),  # another head explains more of it
        (BLURRED | {"rival_error": 0.2}, "fuzzy partition", "serious"),
        (STEPS, "staircase", "serious"),
        (STEPS | {"best_scale": 1.0, "best_error": 0.1}, "staircase", "serious"),  # the error of the hard limit
        (STEPS | {"top_weight": 0.4, "effective_mean": 4.0}, "temperature off", "serious"),
        (STEPS | {"hard_error": 0.01, "best_error": 0.09}, "too few keys", "serious"),
        (STEPS | {"tolerance": 0.2}, "healthy", "healthy"),
        (LARGE, "values too large for the dtype", "serious"),
        (LARGE | {"rounding": 0.004}, "values too large for the dtype", "warning"),
        (LARGE | {"rounding": 1e-5}, "healthy", "healthy"),  # large values that the dtype carries
        (LARGE | {"mixture": 1.5}, "logits too large for the dtype", "serious"),
        (LARGE | {"rounding": 1e-5, "error": 0.05, "best_error": 0.05}, "values too large for the dtype", "serious"),
        (
            LARGE | {"rounding": 1e-5, "rounding_scale": 1e-6, "error": 0.05, "best_error": 0.05},
            "too few keys",
            "serious",
        ),
        ({"overflow": True, "rounding": float("inf")}, "logits too large for the dtype", "serious"),
        (
            {"overflow": True, "rounding": float("inf"), "value_max": 1e300, "dtype": "float32"},
            "values too large for the dtype",
            "serious",
        ),
        ({"rounding": float("nan")}, "logits too large for the dtype", "warning"),
        ({"error": 0.05, "best_error": 0.05, "refit_error": 1e-3, "refit_value": 2.0}, "unfitted values", "serious"),
        ({"error": 0.05, "best_error": 0.05, "refit_error": 0.05, "refit_value": 2.0}, "too few keys", "serious"),
        ({"picks": True, "error": None, "top_weight": 0.1}, "soft pick", "warning"),
        ({"picks": True, "error": None, "top_weight": 0.9}, "healthy", "healthy"),
        ({"error": None}, "not judged", "note"),
        ({"gain": 0.0}, "idle head", "warning"),
        ({"dead": 20}, "dead keys", "warning"),
    ],
)
def test_a_finding_follows_from_its_figures(changes: dict[str, Any], kind: str, severity: str) -> None:
    assert first(**changes) == (kind, severity)


def test_few_dead_or_doubled_keys_are_notes_beside_a_healthy_head() -> None:
    kinds = [(one.kind, one.severity) for one in findings(replace(GOOD, dead=3, redundant=1))]
    assert kinds == [("healthy", "healthy"), ("dead keys", "note"), ("redundant keys", "note")]


def test_a_head_that_mixes_on_purpose_is_not_fuzzy() -> None:
    mixing = replace(GOOD, effective_mean=20.0, top_weight=0.1, sharpness=0.3, value_max=500.0, mixture=300.0)
    found = findings(mixing)
    assert [one.kind for one in found] == ["healthy"] and "mixing" in found[0].words


def test_mends_name_their_factor_and_findings_their_figures() -> None:
    blurred, steps = findings(replace(GOOD, **BLURRED))[0], findings(replace(GOOD, **STEPS))[0]
    assert blurred.fixes[0].action == "scale" and blurred.fixes[0].factor == 8.0
    assert steps.fixes[0].action == "scale" and steps.fixes[0].factor == 0.01
    assert steps.fixes[-1].action == "keys" and steps.fixes[-1].factor == 3.0
    for one, factor in ((blurred, "by 8 "), (steps, "by 0.01 ")):
        assert one.figures["error"] > one.figures["tolerance"] and factor in str(one)


def test_a_dtype_is_named_that_holds_the_numbers() -> None:
    small = replace(GOOD, dtype="float16", roundoff=2.0**-11, rounding=0.1, rounding_scale=0.1, tolerance=0.01)

    def named(**more: Any) -> list[str]:
        found = next(one for one in findings(replace(small, **more)) if one.kind.endswith("the dtype"))
        return [fix.words for fix in found.fixes if fix.action == "dtype"]

    assert named() == ["run it in float32"]
    assert named(value_max=1e38, overflow=True) == named(tolerance=1e-7) == ["run it in float64"]
    assert named(value_max=1e308, overflow=True) == []


def test_a_temperature_that_is_not_enough_is_named_with_the_values_that_are() -> None:
    off = {"error": 1.0, "best_error": 0.5, "best_scale": 4.0, "value_max": 500.0, "mixture": 300.0}
    fitted = {"refit_error": 1e-3, "refit_value": 2.0, "refit_scale": 1.0}
    one, two, enough = (
        findings(replace(GOOD, **(off | more)))[0] for more in ({}, fitted, fitted | {"best_error": 1e-3})
    )
    assert one.kind == two.kind == enough.kind == "temperature off"
    actions = [[fix.action for fix in found.fixes] for found in (one, two, enough)]
    assert actions == [["scale"], ["scale", "refit"], ["scale"]]


def test_cells_that_rounding_moves_are_said_before_they_cost_anything() -> None:
    found = findings(replace(GOOD, logit_size=5.0 * 2.0**24))
    assert ("logits too large for the dtype", "note") in [(one.kind, one.severity) for one in found]
