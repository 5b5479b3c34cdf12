"""What every study must be: its tiny run gives its columns, its verdict follows its table, and its picture is drawn.

`tables/NAME.json` holds the table of a quick run. `falsified_GROUP.py` holds, for every study, a change of that table
that the claim could not survive (or, where it was refuted, one that would have saved it).
"""

from __future__ import annotations

import copy
import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from attnfun.errors import InvalidRequest
from attnfun.lab.studies import GROUPS, NAMES, find
from attnfun.lab.studies.study import LIMITS, REFUTED, SIZES, VERDICTS, Study
from attnfun.lab.studies.tables import median
from products import few

TABLES = Path(__file__).parent / "tables"


def recorded(name: str) -> list[dict[str, Any]]:
    return json.loads((TABLES / f"{name}.json").read_text("utf-8"))


def falsified(name: str) -> list[dict[str, Any]]:
    group = next(group for group, names in GROUPS.items() if name in names)
    change = import_module(f"studies.falsified_{group.replace('-', '_')}").FALSIFIED[name]
    return change(copy.deepcopy(recorded(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_study_says_what_it_claims_and_whence(name: str) -> None:
    study = find(name)
    assert study.claim and study.source and study.title and set(study.sizes) == set(SIZES)
    assert set(study.timings) <= set(study.columns)
    for size in SIZES:
        units = study.units(study.parameters(size))
        texts = [json.dumps(unit, sort_keys=True) for unit in units]
        assert units and len(set(texts)) == len(texts) and [json.loads(t) for t in texts] == units


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_follows_the_table(name: str) -> None:
    study, table = find(name), recorded(name)
    assert all(list(row) == [c for c in study.columns if c not in study.timings] for row in table)
    verdict, other = study.judge(table), study.judge(falsified(name))
    assert verdict.kind in VERDICTS and len(verdict.words) > 80
    assert (verdict.kind == REFUTED) != (other.kind == REFUTED), (verdict, other)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_what_are_no_numbers_supports_no_claim(name: str) -> None:
    """All NaN: refuted, or no verdict (what was refuted may be undecided). One column NaN: never a better verdict."""
    study, table = find(name), recorded(name)
    assert study.verdict([]).kind == REFUTED
    kind = study.judge(table).kind
    gone = [{k: math.nan if isinstance(v, float) else v for k, v in row.items()} for row in table]
    assert _order(study, gone) >= VERDICTS.index(LIMITS if kind == REFUTED else REFUTED)
    for column in table[0]:
        one = [{**row, column: math.nan} if isinstance(row[column], float) else row for row in table]
        assert kind == REFUTED or _order(study, one) >= VERDICTS.index(kind), column


def _order(study: Study, table: list[dict[str, Any]]) -> int:
    """From 0, the best verdict, on; a table that gets none is the worst."""
    try:
        return VERDICTS.index(study.judge(table).kind)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return len(VERDICTS)


@pytest.mark.parametrize("name", NAMES)
def test_the_tiny_run_has_the_columns(name: str) -> None:
    study = find(name)
    for extra in study.needs:
        pytest.importorskip(extra)
    units = study.units(study.parameters("tiny"))
    parts = [study.rows(unit) for unit in units]
    assert all(parts) and study.judge([row for rows in parts for row in rows]).kind in VERDICTS
    trained = [place for place, unit in enumerate(units) if unit.get("steps")]
    place = trained[-1] if trained else 0
    once, again = (
        [{k: v for k, v in row.items() if k not in study.timings} for row in rows]
        for rows in (parts[place], study.rows(units[place]))
    )
    assert json.dumps(again) == json.dumps(once)  # the same seed, the same numbers


@pytest.mark.parametrize("name", few(NAMES, 11))
def test_its_table_is_drawn(name: str) -> None:
    pytest.importorskip("matplotlib")
    figure = find(name).draw(recorded(name))
    figure.set_layout_engine("none")  # which takes half of the time, and moves panels only
    for ax in figure.axes:
        ax.minorticks_off()  # half of the rest: marks that nobody reads
    figure.draw_without_rendering()
    assert figure.axes and all(ax.has_data() or ax.texts for ax in figure.axes)


def test_a_name_that_is_no_study_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="partition-2d"):
        find("partition-3d")


def test_a_median_with_what_is_no_number_is_none() -> None:
    assert median([3, 1, 2]) == 2 and median([4, 1, 2, 3]) == 2.5
    for numbers in ([], [math.nan, 1.0, 2.0], [1.0, math.nan, 2.0], [1.0, 2.0, math.nan]):
        assert math.isnan(median(numbers))
