"""The planner: verdicts agree with the bounds and the constructions they name, budgets, answers, command, picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.kinds.neighbours.bounds import full_rank_error
from attnfun.limits.plan_tasks import _trials
from attnfun.limits.separation.matching import average_bits
from products import few

SCORES = np.random.default_rng(0).normal(size=(20, 5)) @ np.random.default_rng(1).normal(size=(5, 15))
ASKED: list[dict[str, Any]] = [
    {"task": "furthest-neighbour", "dim": 16, "context": 8, "eps": 0.1},
    {"task": "furthest-neighbour", "dim": 64, "context": 3, "eps": 0.1},
    {"task": "nearest-neighbour", "dim": 8, "context": 5, "eps": 0.1},
    {"task": "matching", "context": 4096, "bits": 16},
    {"task": "matching", "order": 2},
    {"task": "sparse-averaging", "context": 64, "q": 4, "eps": 0.01, "bits": 32},
    {"task": "sparse-averaging", "context": 64, "q": 4, "eps": 0.01, "bits": 4},
    {"task": "relation", "matrix": SCORES, "eps": 0.3},
]


@pytest.mark.parametrize("asked", ASKED)
def test_verdicts_grow_with_rank_and_heads(asked: dict[str, Any]) -> None:
    """More rank or heads never make the constructed impossible or unknown, nor the possible impossible."""
    found = af.plan(**asked)
    order = {"impossible": 0, "unknown": 1, "constructed": 2}
    assert {c.verdict for c in found.cells} <= set(order) and all(c.why for c in found.cells)
    for one in found.cells:
        for other in found.cells:
            if one.layers == other.layers and one.rank <= other.rank and one.heads <= other.heads:
                assert order[one.verdict] <= order[other.verdict]


def test_what_is_excluded_is_never_constructed() -> None:
    """Each side from its own source: the bounds exclude nothing that a construction does."""
    found = af.plan("furthest-neighbour", dim=16, context=3, eps=0.1)
    for cell in found.cells:
        two = af.bounds.rank(16, cell.rank, cell.heads, setting="softmax-any-v").lower
        lower = max(two, af.bounds.neighbours(16, 2, cell.rank, cell.heads).lower)
        assert (cell.verdict == "impossible") == (cell.layers == 1 and lower >= 0.1)
        if cell.verdict == "constructed":
            assert cell.rank >= 16 or (cell.layers == 2 and cell.heads >= 16)
    for bits in (2, 4, 8, 32):
        plan = af.plan("sparse-averaging", context=64, q=4, eps=0.01, bits=bits)
        for cell in plan.cells:
            excluded = cell.rank * cell.heads * bits < average_bits(64, 4)
            assert (cell.verdict == "impossible") == excluded
    for cell in af.plan("matching", context=4096, bits=16).cells:
        excluded = bool(af.bounds.matching(4096, cell.rank, 16, cell.heads).excluded)
        assert cell.verdict == ("impossible" if excluded else "unknown")


def test_a_relation_needs_its_rank() -> None:
    found = af.plan("relation", matrix=SCORES, eps=0.3)
    rank = af.rank_of(SCORES, 0.3)
    for cell in found.cells:
        if cell.rank >= rank.rank:
            assert cell.verdict == "constructed"
        else:
            assert cell.verdict == ("impossible" if cell.rank < rank.lower else "unknown")
    assert f"rank {rank.rank}" in found.answer or f"{rank.rank} does" in found.answer


def test_the_constructions_a_plan_names_are_there() -> None:
    found = af.plan("sparse-averaging", context=64, q=4, eps=0.01, bits=32)
    thin = [c for c in found.cells if c.verdict == "constructed" and c.heads == 4]
    least = min(c.rank for c in thin)
    made = af.sparse_average(64, 4, keys="curve", heads=4, eps=0.01, subsets=50)
    assert least <= made.width and made.bits <= 32
    assert any(c.rank == 2 and c.verdict == "constructed" for c in af.plan("matching", order=2).cells)
    assert all(c.verdict == "unknown" for c in af.plan("matching", order=2).cells if c.rank == 1)


def test_the_neighbours_a_plan_names_are_proved_to_do() -> None:
    dim, context, eps = 8, 5, 0.05
    found = af.plan("furthest-neighbour", dim=dim, context=context, eps=eps)
    for method, layers, heads, rank in (("full_rank", 1, 1, dim), ("scores", 2, 2 * dim, 1)):
        cells = [c for c in found.cells if (c.layers, c.heads, c.rank) == (layers, heads, rank)]
        assert [c.verdict for c in cells] == ["constructed"] and method in cells[0].why
        made = af.neighbours(dim, context, method=method, eps=eps)
        assert made.predicted.proved is not None and made.predicted.proved <= eps
        assert max(len(layer.heads) for layer in made.network.layers) == heads
    thinner = [c for c in found.cells if c.layers == 2 and c.heads < 2 * dim and c.rank < dim]
    assert thinner and all(c.verdict == "unknown" for c in thinner)


@pytest.mark.parametrize("asked", ASKED)
def test_the_answer_is_one_sentence_that_names_its_family(asked: dict[str, Any]) -> None:
    found = af.plan(**asked)
    assert found.answer.count("(Family:") == 1 and found.answer.endswith(".)") and "head" in found.answer
    assert found.hypotheses and found.sources
    assert json.loads(json.dumps(found.record()))["counts"].keys() == {"impossible", "constructed", "unknown"}


def test_budgets_cut_the_grid() -> None:
    free, cut = af.plan("furthest-neighbour", dim=16), af.plan("furthest-neighbour", dim=16, budget=2048)
    assert set(cut.cells) == {c for c in free.cells if c.parameters <= 2048}
    assert all(c.parameters == 2 * 16 * c.rank * c.heads * c.layers for c in free.cells)
    assert cut.verdict(16, 1) is not None and cut.verdict(16, 64) is None
    assert free.answer in cut.answer and "Within 2,048 parameters the smallest construction fits" in cut.answer


def test_lax_tolerances_exclude_nothing() -> None:
    found = af.plan("furthest-neighbour", dim=16, eps=1.0)
    assert not any(c.verdict == "impossible" for c in found.cells)
    assert not any(c.verdict == "impossible" for c in af.plan("sparse-averaging", q=4, eps=0.2, bits=1).cells)


@pytest.mark.parametrize(
    "bad",
    [
        {"task": "sorting"},
        {"dim": 1},
        {"dim": 10**6},
        {"context": 2},
        {"eps": 0},
        {"eps": float("nan")},
        {"budget": 0},
        {"budget": 3},
        {"bits": 0},
        {"setting": "scalar"},
        {"matrix": SCORES},
        {"task": "relation"},
        {"task": "matching", "order": 5},
        {"task": "sparse-averaging", "q": 16},
    ],
)
def test_bad_requests(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        af.plan(**{"task": "furthest-neighbour", **bad})


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["plan", "furthest-neighbour", "--dim", "64", "--context", "16", "--eps", "0.1"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads(json.dumps(af.plan("furthest-neighbour", dim=64, context=16, eps=0.1).record()))
    picture = tmp_path / "map.png"
    assert main([*words, "--budget", "100000", "--png", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "Few fat heads" in out and "✗" in out and "●" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    matrix = tmp_path / "scores.csv"
    np.savetxt(matrix, SCORES, delimiter=",")
    assert main(["plan", "relation", "--matrix", str(matrix), "--eps", "0.3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["constructed"]
    assert main(["plan", "sorting"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("asked", few(ASKED, 3))
def test_pictures(asked: dict[str, Any], tmp_path: Path) -> None:
    found = af.plan(**asked)
    figure = found.plot(tmp_path / "plan.png")
    assert len(figure.axes) == len({c.layers for c in found.cells})
    assert (tmp_path / "plan.png").stat().st_size > 5000


def test_no_head_is_said_to_do_where_none_is_proved_to() -> None:
    """On the circle the density of a score has its top at the ends: no bound of the error is proved there."""
    found = af.plan("furthest-neighbour", dim=2, context=3, eps=0.01)
    assert not any(c.verdict == "constructed" for c in found.cells) and not found.constructions
    with pytest.raises(InvalidRequest, match="3 dimensions"):
        full_rank_error(2, 3, 100.0, False)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_averages_are_within_eps_with_queries_of_as_many_bits_as_the_plan_says(heads: int) -> None:
    """Queries rounded to 2^p equally spaced numbers: the heads' error and that of the bits are within eps together."""
    eps, context = 0.1, 16
    found = af.plan("sparse-averaging", context=context, q=4, eps=eps, bits=32)
    how = next(text for text in found.constructions if text.startswith(f"{heads} head"))
    width, bits = int(how.split("rank ")[1].split(",")[0]), int(how.split(" bits")[0].split()[-1])
    keys = "curve" if "curve" in how else "random"
    made = af.sparse_average(context, 4, keys=keys, heads=heads, width=width, eps=eps / 2, subsets=_trials(context, 4))
    codes = [
        made.encode(np.zeros(context), made.subsets[k : k + context])[:, width : width * (1 + heads)]
        for k in range(0, len(made.subsets), context)
    ]
    moved = np.max(np.abs(codes)) * np.abs(made.codes).sum(axis=1).max() / (2**bits - 1)
    assert made.bound.error + 2 * np.tanh(made.bound.beta * moved / 2) <= eps
