"""Ternary relations: the proved error of a trilinear form is never below what is seen, nor its rank below the least."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.trilinear import trilinear_error, trilinear_table
from attnfun.expressions import ArrayAlgebra, run
from attnfun.trilinear import TrilinearForm, ternary

CUBE = {"x": (0, 1), "y": (-1, 1), "z": (0, 2)}


def worst(form: TrilinearForm) -> float:
    P = form.box.probe(4000, np.random.default_rng(0))
    truth = np.broadcast_to(run(form.graph, ArrayAlgebra(), dict(zip(form.box.names, P.T, strict=True)))[0], (len(P),))
    return float(np.abs(form(*P.T) - truth).max())


@pytest.mark.parametrize(
    ("text", "most"), [("x*y*z", 1), ("x*y + y*z + x*z", 4), ("exp(-x*y*z/2)", 16), ("cos(x+y-z)", 8)]
)
def test_the_error_of_a_trilinear_form_is_never_below_what_is_seen(text: str, most: int) -> None:
    form = ternary(text, CUBE, 1e-3)
    assert worst(form) <= form.error + 1e-13 and form.error <= 1e-3
    assert form.rank_lower <= form.rank <= most
    table, off = trilinear_table(form.graph, form.box.names, form.box.low_array, form.box.high_array, 1e-6)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-2):
        a, b, c = (s + size * rng.normal(size=s.shape) for s in form.coefficients)
        spoilt = dataclasses.replace(form, coefficients=(a, b, c))
        assert worst(spoilt) <= trilinear_error(table, off, (a, b, c)) + 1e-13


def test_what_is_no_ternary_relation_is_refused() -> None:
    with pytest.raises(af.InvalidRequest):
        ternary("x*y", {"x": (0, 1), "y": (0, 1)}, 1e-3)
    with pytest.raises(af.Infeasible):
        ternary("abs(x-y)*z", CUBE, 1e-3)
