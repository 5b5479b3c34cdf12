"""The contest of `make bench-rivals` on a tiny case: what it measures, and what it writes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnfun.lab.studies.runner import png
from attnfun.lab.studies.tables import Rows
from attnfun.language.function import Function

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the benchmark, which counts on few points."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import contest
    import rivals

    for name, count in {"FRESH": 500, "MANY": 800, "FEW": 200, "MOST": 1_000, "ADAM": 5, "LBFGS": 5}.items():
        monkeypatch.setattr(contest, name, count)
    return rivals


def test_a_tiny_contest_is_a_page_with_its_figures(
    rivals: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks are filled, and other words stay."""
    pytest.importorskip("torch")
    for slow in ("KernelRidge", "RandomForest"):
        monkeypatch.delitem(rivals.contest.SEES, slow)
    page = tmp_path / "page.md"
    marks = [f"<!-- {name}: {end} -->" for name in ("speed", "rivals", "growth") for end in ("begin", "end")]
    page.write_text("\n".join(["first", *marks, "last"]))
    studies = [rivals.contest.study(rivals.draw), rivals.growth.study("tokens")]
    tables = {study.name: Rows(study.table("tiny")) for study in studies}
    rows = tables["rivals"]
    assert {"attnfun 1e-6", "NumPy", "torch SDPA", "Chebyshev", "RBFInterpolator"} <= set(rows.of("way"))
    assert all(row["fresh"] <= row["worst"] and row["time"] > 0 for row in rows)
    ours, theirs = rows.where(way="attnfun 1e-6")[0], rows.where(way="torch SDPA")[0]
    assert 0 < ours["worst"] <= ours["proved"] <= 1e-6 and theirs["worst"] == pytest.approx(ours["worst"], rel=1e-3)
    assert studies[0].verdict(rows).kind == "holds"
    for _ in range(2):
        rivals.write(page, tables)
        text = page.read_text()
        assert text.startswith("first\n<!-- speed: begin -->\n<!-- speed: end -->") and text.endswith("last")
        assert f" {ours['worst']:,.3g} |" in text and text.count("| x − max x |") == 1
    for study in studies:
        assert png(study.draw(tables[study.name])).startswith(b"\x89PNG")


def test_a_search_finds_the_error_that_random_points_miss(rivals: Any) -> None:
    """At a corner, or at the top of a narrow hill whose foot random points have seen."""
    target = Function.on("x + y", "x=0:1;y=0:1")
    X = np.random.default_rng(0).uniform(0, 1, (200, 2))
    for top in ((1.0, 0.0), (0.31, 0.62)):

        def predict(X: Any, top: Any = top) -> Any:
            return X.sum(axis=1) + np.exp(-1000 * ((X - top) ** 2).sum(axis=1))

        error = rivals.contest.errors(target, predict, X)
        found = rivals.contest.searched(target, predict, X, error, np.random.default_rng(1))
        assert error.max() < 0.95 and 0.999 < found <= 1 + 1e-12


def test_a_way_that_gives_no_number_has_no_finite_error(rivals: Any) -> None:
    target = Function.on("x", "x=0:1")
    X = np.linspace(0, 1, 5)[:, None]
    assert rivals.contest.errors(target, lambda X: X[:, 0] * np.nan, X).tolist() == [np.inf] * 5


@pytest.mark.parametrize("way", ["MLP", "KernelRidge", "RandomForest", "RBFInterpolator"])
def test_what_is_fitted_to_samples_is_a_function_and_a_count(way: str, rivals: Any) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    made = rivals.contest.SAMPLES[way](X, 0.5 * X[:, 0] - 0.2)
    values = np.asarray(made.predict(X[:50]))
    assert values.shape == (50,) and made.numbers > 100
    assert np.abs(values - (0.5 * X[:50, 0] - 0.2)).max() < (1.5 if way == "MLP" else 0.1)  # the MLP has made ten steps


def test_an_error_above_its_bound_is_refuted_and_a_page_without_marks_refused(rivals: Any) -> None:
    row = {"target": "t", "way": "attnfun 1e-6", "worst": 2e-7, "proved": 1e-7}
    assert rivals.contest.judge(Rows([row])).kind == "refuted"
    assert rivals.contest.judge(Rows([row | {"worst": 1e-7}])).kind == "holds"
    with pytest.raises(SystemExit, match="rivals: begin"):
        rivals.replaced("nothing", "rivals", [])


def test_a_rival_is_better_where_its_figures_are_smaller(rivals: Any) -> None:
    common = {"worst": 1e-7, "build": 1.0, "time": 10.0, "numbers": 5}
    rows = [{"target": t, "way": way, **common} for t in "ab" for way in ("attnfun 1e-6", "attnfun 1e-3")]
    rows += [{"target": "a", "way": "MLP", **common, "worst": 1e-9, "build": 0.5, "time": 9.0}]
    rows += [{"target": "b", "way": "MLP", **common, "worst": 1e-2}]
    line = next(line for line in rivals.better(Rows(rows)) if line.startswith("| MLP"))
    assert line == "| MLP | 2 | 1 | 1 | 1 | 1 | 0 | a |"


def test_the_contest_has_ten_targets_of_each_suite_and_two_of_many_variables(rivals: Any) -> None:
    units = rivals.contest.units(rivals.contest.study(rivals.draw).parameters("full"))
    rows = Rows(units)
    assert {suite: len(here.distinct("target")) for suite, here in rows.by("suite")} == {
        **{"README": 2, "6+ variables": 2, "classic": 10, "feynman": 10, "genz": 10}
    }
    assert set(rows.of("way")) == set(rivals.contest.SEES) and "kan" not in sys.modules
    many = [unit for unit in units if unit["suite"] == "6+ variables"]
    assert all(Function.on(unit["formula"], unit["domain"]).box.dim >= 6 for unit in many)
