"""Relevance files: every format, and one-line refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.limits.embedding.files import load_matrix, read_documents, read_relevance
from attnfun.limits.embedding.relevance import Relevance

WANTED = {"a": {"x", "y"}, "b": {"y"}, "c": set()}


def _as_sets(path: Path) -> dict[str, set[str]]:
    relation = read_relevance(path)
    return {q: {relation.document_ids[j] for j in row} for q, row in zip(relation.query_ids, relation.rows)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.tsv", "a\tx\t1\na\ty\t2\nb\ty\t1\nb\tx\t0\nc\tx\t-1\n"),
        ("r.tsv", "query-id\tcorpus-id\tscore\na\tx\t1\na\ty\t1\nb\ty\t1\nc\tx\t0\n"),
        ("r.tsv", "# judged\n\na\tx\t1\r\na\tx\t1\r\na\ty\t1\r\nb\ty\t0.5\r\nc\ty\t0\r\n"),
        ("qrels", "a 0 x 1\na 0 y 1\nb 0 y 1\nc 0 x 0\n"),
        ("qrels.tsv", "a\t0\tx\t1\na\t0\ty\t1\nb\t0\ty\t1\nc\t0\tx\t0\n"),
        ("m.csv", "query,x,y\na,1,1\nb,0,2\nc,0,0\n"),
        ("m.csv", "\ufeff,x,y\na,1,1\nb,0,1\nc,-1,0\n"),
    ],
)
def test_every_format_says_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8", newline="")
    assert _as_sets(tmp_path / name) == WANTED


def test_matrices_without_names_get_some(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("1,1\n0,1\n")
    np.save(tmp_path / "m.npy", [[1, 1], [0, 1]])
    assert _as_sets(tmp_path / "m.csv") == _as_sets(tmp_path / "m.npy") == {"q1": {"d1", "d2"}, "q2": {"d2"}}
    assert (load_matrix(tmp_path / "m.csv") == [[1, 1], [0, 1]]).all()


def test_pairs_without_grades_are_relevant(tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_text("query\tdocument\na\tx\nb\ty\n")
    assert _as_sets(tmp_path / "r.tsv") == {"a": {"x"}, "b": {"y"}}


def test_the_collection_is_a_number_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("query,x,y,z\na,1,1,0\n")
    (tmp_path / "ids").write_text("z\ny\n\nx\nw\n")
    assert read_documents("12") == 12
    listed = read_relevance(tmp_path / "m.csv", read_documents(tmp_path / "ids"))
    assert listed.document_ids == ("z", "y", "x", "w") and listed.rows[0].tolist() == [1, 2]
    counted = read_relevance(tmp_path / "m.csv", 5)
    assert counted.document_ids[:3] == ("x", "y", "z") and len(counted.document_ids) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n# nothing\n",
        "query\tdocument\tgrade\n",
        "a\tx\tgood\n",
        "a\tx\tnan\n",
        "a\tx\tinf\n",
        "a\tx\t1\na\tx\t0\n",
        "a\tx\t1\na\ty\n",
        "a\t\t1\n",
        "a\n",
        "a b c d e\n",
        "query,x,x\na,1,0\n",
        "query,x,y\na,1,0\na,0,1\n",
        "query,x,y\na,1\n",
        "1,0\n1,nan\n",
        "1,0\n1,\n",
    ],
)
def test_what_is_no_relation_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text(text)
    with pytest.raises(InvalidRequest) as refusal:
        read_relevance(tmp_path / "r.txt")
    assert "\n" not in str(refusal.value) and "r.txt" in str(refusal.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    (tmp_path / "empty").write_text("\n")
    for name in ("binary", "bad.npy", "missing"):
        with pytest.raises(InvalidRequest):
            read_relevance(tmp_path / name)
    with pytest.raises(InvalidRequest):
        read_documents(tmp_path / "empty")


@pytest.mark.parametrize("corner", ["", "id", "Query"])
def test_columns_named_by_numbers_are_no_row(corner: str, tmp_path: Path) -> None:
    """What pandas writes: an empty corner and numbered columns. Read as a row it would be one query more."""
    (tmp_path / "r.csv").write_text(f"{corner},0,1,2\n7,1,0,0\n8,0,1,0\n")
    relation = read_relevance(tmp_path / "r.csv")
    assert relation.query_ids == ("7", "8") and relation.document_ids == ("0", "1", "2")
    assert [row.tolist() for row in relation.rows] == [[0], [1]]
    assert load_matrix(tmp_path / "r.csv").tolist() == [[1, 0, 0], [0, 1, 0]]


def test_ids_may_hold_what_is_no_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_text("a\u2028b\tx\x0cy\r\nc\x85\u00a0d\tx\x0cy\n", "utf-8")
    relation = read_relevance(tmp_path / "r.tsv")
    assert relation.query_ids == ("a\u2028b", "c\x85\u00a0d") and relation.document_ids == ("x\x0cy",)


def test_spoilt_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "good.npy", np.eye(3))
    good = (tmp_path / "good.npy").read_bytes()
    huge = good.replace(b"(3, 3)", b"(10000000000, 100000)").replace(b" " * 20 + b"\n", b" " * 5 + b"\n")
    spoilt = [b"", good[:-3], good[:30], good.replace(b"}", b" "), good.replace(b"<f8", b"|O"), b"PK\x03\x04", huge]
    for at, data in enumerate(spoilt):
        (tmp_path / f"{at}.npy").write_bytes(data)
        with pytest.raises(InvalidRequest):
            load_matrix(tmp_path / f"{at}.npy")


def test_a_collection_past_all_memory_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most"):
        Relevance.from_pairs([("a", "x")], 10**23)
