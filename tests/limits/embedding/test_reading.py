"""Relevance files: every format, and one-line refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.limits.embedding.reading import load_matrix, read_documents, read_relevance

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
