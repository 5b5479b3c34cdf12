"""Verdicts on tables that lack what they speak of, or hold no number there: none of them may say that a claim holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from attnfun.lab.studies import find
from attnfun.lab.studies.study import HOLDS, REFUTED, lacking

TABLES = Path(__file__).parent / "tables"
NEEDED = [
    ("asymmetric", "way", "constructed"),
    ("asymmetric", "way", "two towers"),
    ("discrete-metric", "way", "coordinates"),
    ("discrete-metric", "way", "number, powers of two"),
    ("ffn-or-not", "way", "constructed"),
    ("higher-order", "part", "ternary"),
    ("in-context", "way", "learned"),
    ("lexicographic", "part", "oracle"),
    ("match3", "what", "protocol"),
    ("match3", "what", "trained"),
    ("mercer", "way", "constructed"),
    ("neuron-bounds", "way", "constructed"),
    ("nonanalytic-sets", "way", "packed"),
    ("rank-heads", "way", "trained"),
    ("sets", "way", "pairs ψ(x∘x')"),
    ("softmax-distribution", "part", "random"),
    ("violations", "way", "witness"),
]


def recorded(name: str) -> list[dict[str, Any]]:
    return json.loads((TABLES / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize(("name", "column", "kind"), NEEDED)
def test_without_the_rows_it_speaks_of_a_verdict_says_nothing(name: str, column: str, kind: str) -> None:
    study, table = find(name), recorded(name)
    assert any(row[column] == kind for row in table)
    for rows in ([], [row for row in table if row[column] != kind]):
        verdict = study.judge(rows)
        assert verdict.kind == REFUTED and "Nothing can be said" in verdict.words and kind in verdict.words


def test_a_gap_of_trained_layers_that_was_not_measured_is_none() -> None:
    study, table = find("match3"), recorded("match3")
    assert study.judge(table).kind == HOLDS
    pairs = [row for row in table if row["what"] != "trained" or row["order"] == 2]  # no triples to compare with
    lost = [row | {"accuracy": math.nan} if row["what"] == "trained" and row["order"] == 3 else row for row in table]
    for rows in (pairs, lost):
        assert study.judge(rows).kind not in (HOLDS, REFUTED)


def test_a_count_of_neurons_is_held_against_the_norm_that_was_measured() -> None:
    study, table = find("neuron-bounds"), recorded("neuron-bounds")
    known = [row for row in table if row["count"] is not None]
    assert study.judge([row | {"unit_count": row["neurons"] / 2} for row in known]).kind != REFUTED  # not with C = 1
    verdict = study.judge([row | {"count": row["neurons"] / 2} for row in known])
    assert verdict.kind == REFUTED and "more neurons than the bound allows" in verdict.words


def test_a_holomorphic_network_that_failed_is_not_said_to_be_below() -> None:
    study, table = find("nonanalytic-sets"), recorded("nonanalytic-sets")
    at = next(i for i, row in enumerate(table) if row["way"] == "holomorphic")
    words = study.judge([*table[:at], table[at] | {"error": math.nan}, *table[at + 1 :]]).words
    assert "nan <" not in words and "a holomorphic network has nan" in words


def test_lacking_names_what_is_not_there() -> None:
    assert lacking([{"way": "a"}], "way", "a") is None
    found = lacking([{"way": "a"}], "way", "a", "b", "c")
    assert found is not None and found.kind == REFUTED and "no row of b, c" in found.words
