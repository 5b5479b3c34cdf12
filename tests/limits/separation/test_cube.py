"""The calculator of bounds on the Hamming cube: exact fractions, rounded the right way; what they mean is tested with
`krawtchouk`."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.limits.separation import krawtchouk


@pytest.mark.parametrize(
    ("asked", "exact"),
    [
        ({"dim": 9, "rank": 4, "heads": 7}, krawtchouk.coordinates_lower(9, 4, 7)),
        ({"dim": 12, "rank": 5, "heads": 3, "candidates": 2}, krawtchouk.candidates_lower(12, 5, 3)),
        ({"dim": 11, "values": 20, "heads": 6}, krawtchouk.values_lower(11, 20, 6)),
        ({"dim": 9, "rank": 9, "heads": 1}, Fraction(0)),
        ({"dim": 9, "rank": 9, "heads": 0}, Fraction(1)),
    ],
)
def test_bounds_are_those_of_krawtchouk_rounded_outward(asked: dict[str, Any], exact: Fraction) -> None:
    found = af.bounds.cube(**asked)
    assert found.exact == exact and Fraction(found.lower) <= exact <= Fraction(found.lower) + Fraction(1, 10**15)
    assert Fraction(found.floor) <= exact <= Fraction(found.largest)
    if found.setting == "coordinates":
        upper = krawtchouk.coordinates_upper(asked["dim"], asked["rank"], asked["heads"])
        assert found.upper is not None and upper <= Fraction(found.upper) <= upper + Fraction(1, 10**15)
    else:
        assert found.upper is None


@pytest.mark.parametrize(
    ("asked", "eps"),
    [({"rank": 4}, 0.3), ({"rank": 4, "candidates": 2}, 0.4), ({"values": 3}, 0.01), ({"rank": 9}, 0.5)],
)
def test_heads_needed_are_the_first_that_are_not_excluded(asked: dict[str, Any], eps: float) -> None:
    needed = af.bounds.cube(9, eps=eps, **asked).heads_needed
    assert needed is not None and af.bounds.cube(9, heads=needed, **asked).exact <= Fraction(eps)
    assert af.bounds.cube(9, heads=needed - 1, **asked).exact > Fraction(eps)


def test_heads_that_attain_an_error_are_not_excluded_at_it() -> None:
    """One head that reads two of four coordinates: the bound is attained, and both are a double."""
    found = af.bounds.cube(4, 2, 1)
    assert found.exact == found.lower == found.upper == krawtchouk.uncovered(4, [(0, 1)])
    assert af.bounds.cube(4, 2, eps=found.lower).heads_needed == 1
    none = af.bounds.cube(3, 2, 0)
    assert af.bounds.cube(3, 2, eps=none.largest).heads_needed == 0
    assert af.bounds.cube(3, 2, eps=none.floor).heads_needed is not None
    assert str(af.bounds.cube(3, 3, 1).lower) == "0.0"


def test_degrees_above_the_rank_are_seen_by_no_number_of_heads() -> None:
    found = af.bounds.cube(9, 4, 10**6, eps=0.01)
    assert found.heads_needed is None and 0.01 < found.floor == found.lower
    missed = sum(krawtchouk.cube_energies(9)[5:], Fraction(0))
    assert found.exact == missed


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"rank": 2, "values": 3},
        {"rank": 10},
        {"rank": 0},
        {"values": 0},
        {"values": 2, "candidates": 2},
        {"rank": 2, "candidates": 3},
        {"rank": 2, "heads": -1},
        {"rank": 2, "eps": float("inf")},
        {"rank": 2, "eps": 10**400},
        {"rank": 2, "eps": True},
        {"rank": 2, "dim": 257},
    ],
)
def test_bad_requests(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        af.bounds.cube(**{"dim": 9, **bad})


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bounds", "cube", "--dim", "64", "--rank", "8", "--heads", "16"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    found = af.bounds.cube(64, 8, 16)
    assert Fraction(record["exact"]) == found.exact and record["lower"] == found.lower and record["hypotheses"]
    assert main([*words, "--eps", "0.01"]) == 0 and "no number" in capsys.readouterr().out
    assert main([*words[:4], "--values", "100", "--heads", "3", "--eps", "0.2"]) == 0
    assert "at least" in capsys.readouterr().out
    assert main([*words[:4], "--heads", "3"]) == 2 and capsys.readouterr().err.count("\n") == 1
