"""embed_dim: intervals, certificates, files and refusals."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import hadamard

import attnfun as af
from attnfun.limits.embedding import EmbeddingDimension, Relevance, check_embedding, check_obstruction, load_embedding
from attnfun.limits.embedding.dimension import free_at
from attnfun.limits.embedding.separate import ceiling
from limits.relations import intervals, of_rows, planted, random_sets, random_table, subsets
from products import THOROUGH


def holds(answer: EmbeddingDimension) -> None:
    """Both certificates, checked again, and in plain integer matrices where those cannot overflow."""
    relation = answer.relation
    assert answer.lower <= answer.upper <= answer.dimension
    assert check_obstruction(relation, answer.obstruction) >= answer.lower
    ranking = check_embedding(relation, answer.queries, answer.documents)
    assert ranking.margin == answer.margin
    scores = answer.queries.astype(object) @ answer.documents.astype(object).T
    for i in relation.nontrivial:
        inside = np.zeros(scores.shape[1], np.bool_)
        inside[relation.rows[i]] = True
        assert scores[i, inside].min() > scores[i, ~inside].max()
    assert all(abs(int(x)).bit_length() < answer.bits for a in (answer.queries, answer.documents) for x in a.ravel())
    assert answer.ceiling is None or answer.margin <= answer.ceiling


@pytest.mark.drawn
def test_random_relations_have_certificates_that_hold() -> None:
    rng = np.random.default_rng(8)
    dimensions = set()
    for _ in range(25 if THOROUGH else 9):
        answer = af.embed_dim(random_table(rng), table=[])
        holds(answer)
        dimensions.add(answer.upper)
    assert dimensions >= {0, 1, 2}


@pytest.mark.parametrize(("n", "k"), [(3, 1), (6, 2), (9, 3), (10, 2)])
def test_all_k_subsets_of_3k_or_more_need_exactly_2k(n: int, k: int) -> None:
    answer = af.embed_dim(subsets(n, k), table=[])
    holds(answer)
    assert answer.lower == answer.upper == 2 * k


def test_intervals_and_nested_sets_are_closed() -> None:
    answer = af.embed_dim(intervals(50, 25, 0), table=[])
    holds(answer)
    assert answer.lower == answer.upper == 2
    answer = af.embed_dim(np.tril(np.ones((30, 30))))
    holds(answer)
    assert answer.lower == answer.upper == 1


def test_a_document_at_the_origin_saves_a_dimension() -> None:
    answer = af.embed_dim({"1": ["a", "o"], "2": ["b", "o"], "3": ["c", "o"]}, table=[])
    holds(answer)
    assert answer.lower == answer.upper == 2


def test_documents_of_many_lengths_need_no_more_than_the_dimension_they_came_from() -> None:
    rng = np.random.default_rng(5)
    seen = []
    for seed in range(6):
        answer = af.embed_dim(planted(2, seed, 14, 9, int(rng.integers(2, 6)), decades=1.5), table=[])
        holds(answer)
        seen.append(answer.upper)
    assert max(seen) == 2


@pytest.mark.parametrize(("dim", "seed"), [(2, 0), (2, 7), (3, 4)])
def test_a_planted_relation_needs_the_dimension_it_was_planted_in(dim: int, seed: int) -> None:
    answer = af.embed_dim(planted(dim, seed), table=[])
    holds(answer)
    assert answer.lower == answer.upper == dim


def test_a_dimension_that_is_impossible_is_refused_with_the_reason() -> None:
    with pytest.raises(af.Infeasible, match=r"impossible, 4 are needed.*Radon"):
        af.embed_dim(subsets(8, 2), dim=3)


def test_more_dimensions_never_lose_margin() -> None:
    answer = af.embed_dim(subsets(8, 2), table=[5, 7])
    assert [row.dimension for row in answer.table] == [4, 5, 7]
    margins = [row.margin for row in answer.table]
    assert all(b > 0.9 * a for a, b in itertools.pairwise(margins))
    asked = af.embed_dim(subsets(8, 2), dim=6)
    holds(asked)
    assert asked.dimension == 6 and asked.queries.shape == (28, 6) and asked.margin > margins[0]


def test_bits_are_kept_or_refused() -> None:
    answer = af.embed_dim(subsets(8, 2), dim=4, bits=10)
    holds(answer)
    assert answer.bits <= 10
    with pytest.raises(af.Infeasible):
        af.embed_dim(subsets(12, 2), dim=4, bits=3)
    few = af.embed_dim(subsets(12, 2), dim=9, bits=5)
    holds(few)
    assert few.bits <= 5 and few.dimension == 9


def test_the_same_request_gives_the_same_vectors() -> None:
    first, second = (af.embed_dim(random_sets(20, 10, 3, 1), table=[]) for _ in range(2))
    assert (first.queries == second.queries).all() and (first.documents == second.documents).all()


def test_the_ceiling_is_the_published_one_for_all_k_subsets() -> None:
    for n, k in ((46, 2), (20, 3), (9, 1)):
        bound = ceiling(subsets(n, k).core)
        assert bound == pytest.approx(n / np.sqrt(k * (n - 1) * (n - k)), rel=1e-9)


def test_trivial_queries_ask_for_nothing() -> None:
    answer = af.embed_dim([[1, 1, 1], [0, 0, 0]])
    assert (answer.lower, answer.upper, answer.dimension) == (0, 0, 0)
    answer = af.embed_dim([[1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]])
    holds(answer)
    assert answer.upper == 1 and not answer.queries[:2].any()
    assert answer.record()["trivial_queries"] == 2


def test_documents_declare_the_collection() -> None:
    relation = {"a": ["x"], "b": ["y"]}
    assert af.embed_dim(relation).upper == 1
    wider = af.embed_dim(relation, documents=5)
    holds(wider)
    assert wider.documents.shape[0] == 5 and wider.lower == wider.upper == 1
    third = af.embed_dim({**relation, "c": ["z"]}, documents=["w", "x", "y", "z"])
    assert third.relation.document_ids == ("w", "x", "y", "z") and third.lower == third.upper == 2


def test_a_large_sparse_relation_has_both_certificates() -> None:
    """2,000 documents × 90 queries here; the full size is a slow test."""
    answer = af.embed_dim(random_sets(90, 2000, 2, 0), table=[])
    assert answer.upper <= 4 and answer.lower >= 2
    assert check_obstruction(answer.relation, answer.obstruction) == answer.lower
    assert check_embedding(answer.relation, answer.queries, answer.documents).gap > 0


@pytest.mark.parametrize("ending", ["safetensors", "npz", "npy"])
def test_files_hold_the_integers_and_ids(ending: str, tmp_path: Path) -> None:
    answer = af.embed_dim({"é": ["1", "2"], "q": ["2"]}, documents=3)
    path = tmp_path / f"v.{ending}"
    written = answer.save(path)
    assert all(Path(name).is_file() for name in written)
    if ending == "safetensors":
        queries, documents, meta = load_embedding(path)
        ids = meta
        assert (meta["lower"], meta["upper"]) == (answer.lower, answer.upper)
    elif ending == "npz":
        with np.load(path, allow_pickle=False) as stored:
            queries, documents = stored["queries"], stored["documents"]
            ids = {key: stored[key].tolist() for key in ("query_ids", "document_ids")}
    else:
        queries, documents = (np.load(tmp_path / f"v.{name}.npy") for name in ("queries", "documents"))
        ids = json.loads((tmp_path / "v.ids.json").read_text("utf-8"))
    assert queries.dtype == documents.dtype == np.int64
    assert (queries == answer.queries).all() and (documents == answer.documents).all()
    assert ids["query_ids"] == ["é", "q"] and ids["document_ids"] == list(answer.relation.document_ids)


def test_a_foreign_file_is_no_embedding(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(af.DamagedFile):
        load_embedding(path)


@pytest.mark.parametrize(
    ("relation", "options"),
    [
        ([[0.0, float("nan")]], {}),
        (np.zeros((0, 3)), {}),
        ([[1, 0]], {"dim": 0}),
        ([[1, 0]], {"dim": 2.5}),
        ([[1, 0]], {"bits": 1}),
        ([[1, 0]], {"documents": 1}),
        ({"a": ["x"]}, {"documents": ["y"]}),
        ({"a": ["x"]}, {"documents": ["x", "x"]}),
        ([("a", "x", 1), ("a", "x", 0)], {}),
        ([("a", "x", "good")], {}),
        ({}, {}),
    ],
)
def test_bad_requests_are_refused(relation: object, options: dict[str, object]) -> None:
    with pytest.raises(af.InvalidRequest):
        af.embed_dim(relation, **options)


# What the project must show, at full size.


@pytest.mark.slow
def test_all_pairs_of_46_documents() -> None:
    answer = af.embed_dim(subsets(46, 2), table=[6, 12])
    holds(answer)
    assert answer.lower == answer.upper == 4 and answer.bits <= 16
    by_dimension = {row.dimension: row for row in answer.table}
    assert by_dimension[6].bits <= 7 and by_dimension[12].margin >= 0.19


@pytest.mark.slow
def test_all_triples_of_20_documents() -> None:
    answer = af.embed_dim(subsets(20, 3), table=[])
    holds(answer)
    assert answer.lower == answer.upper == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_three_random_of_50(seed: int) -> None:
    answer = af.embed_dim(random_sets(100, 50, 3, seed), table=[])
    holds(answer)
    assert answer.lower >= 3 and answer.upper <= 5


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3, 4, 5, 6])
def test_planted_relations_of_60_documents_and_100_queries(dim: int) -> None:
    """Twenty each: the planted dimension in 19 for 2 and 3, at most one more from 4 on; never more from below."""
    answers = [af.embed_dim(planted(dim, seed), table=[]) for seed in range(20)]
    for answer in answers:
        holds(answer)
        assert answer.lower <= dim and answer.upper <= dim + 1
    assert dim > 3 or sum(answer.upper <= dim for answer in answers) >= 19


@pytest.mark.slow
def test_hadamard_64() -> None:
    answer = af.embed_dim(hadamard(64), table=[])
    holds(answer)
    assert answer.lower >= 7 and answer.upper < 64 and answer.obstruction.kind == "forster"


@pytest.mark.slow
def test_fifty_thousand_documents() -> None:
    answer = af.embed_dim(random_sets(1000, 50_000, 2, 5))
    assert answer.lower >= 2 and answer.upper <= 4
    assert check_obstruction(answer.relation, answer.obstruction) == answer.lower
    assert check_embedding(answer.relation, answer.queries, answer.documents).gap > 0


def test_relevance_of_pairs_and_of_a_relation_are_the_same() -> None:
    pairs = [("a", "x"), ("a", "y"), ("b", "y")]
    one, two = Relevance.of(pairs), Relevance.of({"a": ["x", "y"], "b": ["y"]})
    assert one.query_ids == two.query_ids and all((r == s).all() for r, s in zip(one.rows, two.rows))
    assert of_rows([(0, 1), (1,)], 2).shape == one.shape


def test_rows_that_do_not_decide_a_margin_keep_their_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnfun.limits.embedding import separate

    core = Relevance.of(planted(3, 0)).core
    found = free_at(core, 5, 0)
    assert found is not None
    start = found.queries / np.linalg.norm(found.queries, axis=1, keepdims=True)
    every = np.array([separate.best_query(found.documents, row, q)[1] for row, q in zip(core.rows, start, strict=True)])
    asked, best = [], separate.best_query
    monkeypatch.setattr(separate, "best_query", lambda *given: asked.append(1) or best(*given))
    queries, least = separate.best_queries(core, found.documents, start)
    assert least == every.min() and 0 < len(asked) < core.m
    assert separate.gaps(core, queries, found.documents).min() == pytest.approx(least, rel=1e-12)
    asked.clear()
    separate.best_queries(core, found.documents, start, above=2.0)
    assert len(asked) == 1
