"""embed-dim and rank-of: their JSON, their files, their refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnfun.cli import main
from attnfun.limits.embedding import check_embedding, load_embedding
from attnfun.limits.embedding.files import read_relevance


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    path = tmp_path / "r.qrels"
    path.write_text("".join(f"q{i} 0 d{j} 1\nq{i} 0 d{(j + 1) % 5} 1\n" for i, j in enumerate(range(5))))
    return path


def test_json_has_both_bounds_and_the_file_is_the_certificate(
    qrels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "v.safetensors"
    assert main(["embed-dim", str(qrels), "-o", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {"lower", "upper", "dimension", "margin", "bits", "obstruction", "seconds", "table"} <= set(record)
    assert record["lower"] == record["upper"] == record["dimension"] == 2
    queries, documents, meta = load_embedding(out)
    relation = read_relevance(qrels)
    assert meta["query_ids"] == list(relation.query_ids) and meta["document_ids"] == list(relation.document_ids)
    assert check_embedding(relation, queries, documents).margin == record["margin"]


def test_stored_vectors_are_checked_against_any_relation(
    qrels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "v.safetensors")
    assert main(["embed-dim", str(qrels), "-o", out, "--dim", "2", "--json"]) == 0
    margin = json.loads(capsys.readouterr().out)["margin"]
    assert main(["embed-dim", str(qrels), "--check", out, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["status"], seen["margin"], seen["dimension"]) == ("proved", margin, 2)
    other = tmp_path / "other.qrels"  # the same ids in another order, and one document more for one query
    lines = qrels.read_text().splitlines()[::-1]
    other.write_text("\n".join(lines))
    assert main(["embed-dim", str(other), "--check", out]) == 0
    other.write_text("\n".join([*lines, "q0 0 d3 1"]))
    capsys.readouterr()
    assert main(["embed-dim", str(other), "--check", out]) == 4
    assert "q0" in capsys.readouterr().err
    other.write_text("\n".join([*lines, "q9 0 d3 1"]))
    assert main(["embed-dim", str(other), "--check", out]) == 2


def test_the_page_says_why(qrels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed-dim", str(qrels), "--dim", "3", "--documents", "9"]) == 0
    out = capsys.readouterr().out
    for phrase in ("9 documents", "at least", "which", "ranked exactly", "margin"):
        assert phrase in out


def test_a_table_may_ask_for_more_dimensions_than_there_are_documents(
    qrels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["embed-dim", str(qrels), "--table", "4,6,8,11", "--bits", "8", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["table"]
    assert [row["dimension"] for row in rows] == [2, 4, 6, 8, 11]
    margins = [row["margin"] for row in rows]
    assert margins[2:] == pytest.approx(margins[2:3] * 3) and margins[2] >= margins[1] * (1 - 1e-12)


def test_rank_of_gives_a_proved_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "s.csv", tmp_path / "f.safetensors"
    path.write_text("doc,a,b\nx,1,2\ny,2,4.1\nz,3,6\n")
    assert main(["rank-of", str(path), "--eps", "0.05", "--json", "-o", str(out)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["rank_lower"], record["rank"]) == (1, 1) and 0 < record["error"] <= 0.05 and out.is_file()
    assert main(["rank-of", str(path), "--eps", "1e-3"]) == 0
    assert "rank" in capsys.readouterr().out


def test_impossible_requests_have_code_3(qrels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed-dim", str(qrels), "--dim", "1", "--json"]) == 3
    seen = json.loads(capsys.readouterr().out)
    assert seen["status"] == "infeasible" and seen["nearest"] == {"dim": 2}


@pytest.mark.parametrize(
    "argv",
    [
        ("embed-dim", "missing.tsv"),
        ("embed-dim", "{empty}"),
        ("embed-dim", "{qrels}", "--dim", "0"),
        ("embed-dim", "{qrels}", "--documents", "2"),
        ("embed-dim", "{qrels}", "--documents", "missing.txt"),
        ("embed-dim", "{qrels}", "--table", "x"),
        ("embed-dim", "{qrels}", "-o", "vectors.txt"),
        ("embed-dim", "{qrels}", "-o", "/nowhere/at/all.npz"),
        ("rank-of", "{empty}", "--eps", "0.1"),
        ("rank-of", "{qrels}", "--eps", "0.1"),
        ("rank-of", "{scores}", "--eps", "0"),
        ("rank-of", "{scores}", "--eps", "small"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    argv: tuple[str, ...], qrels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("")
    np.save(tmp_path / "s.npy", np.eye(2))
    names = {"empty": tmp_path / "empty", "qrels": qrels, "scores": tmp_path / "s.npy"}
    assert main([part.format(**names) for part in argv]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and len(seen.err.strip().splitlines()) == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    main(["embed-dim", "--help"])
    assert "attnfun embed-dim qrels.txt --documents 50000" in capsys.readouterr().out
    main(["rank-of", "--help"])
    assert "attnfun rank-of scores.csv --eps 0.01" in capsys.readouterr().out
