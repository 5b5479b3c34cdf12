"""attnfun preorder: its JSON, its tables, its refusals."""

from __future__ import annotations

import json

import pytest

from attnfun.cli import main


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object], str]:
    code = main(["preorder", *arguments, "--json"])
    seen = capsys.readouterr()
    return code, json.loads(seen.out), seen.err


def test_a_utility_with_its_towers(capsys: pytest.CaptureFixture[str]) -> None:
    code, record, _ = answer(
        capsys, "--utility", "-exp((q-k)**2)", "--left", "q=0:1", "--right", "k=0:1", "--eps", "1e-3"
    )
    assert code == 0 and record["status"] == "proved"
    towers = record["relation"]
    assert isinstance(towers, dict) and towers["status"] == "proved" and towers["rank"] >= towers["rank_lower"] > 1
    assert main(["preorder", "--utility", "-k", "--right", "k=0:1"]) == 0
    assert "rank 1" in capsys.readouterr().out


def test_a_jump_is_refused_in_one_line_with_its_witness(capsys: pytest.CaptureFixture[str]) -> None:
    code, record, err = answer(capsys, "--utility", "sign(x - 0.5) + y/2", "--right", "x=0:1;y=0:1")
    assert code == 3 and record["status"] == "infeasible" and err.count("\n") == 1
    witness = record["witness"]
    assert isinstance(witness, dict) and witness["kind"] == "jump" and witness["distance"] < 1e-9


def test_the_continuum_is_refused_with_what_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, record, err = answer(capsys, "--lexicographic", "continuum", "--coordinates", "3")
    nearest = record["nearest"]
    assert code == 3 and isinstance(nearest, dict) and {"grid", "cascade", "utility"} <= set(nearest)
    assert "nearest" in err and err.count("\n") == 1


def test_grids(capsys: pytest.CaptureFixture[str]) -> None:
    code, record, _ = answer(capsys, "--lexicographic", "100000")
    assert code == 0 and record["method"] == "cascade" and record["status"] == "proved"
    assert record["fits"] == {"one_number": False, "centred": False, "cascade": True} and record["tied_pair"]
    code, record, _ = answer(capsys, "--lexicographic", "16", "--dtype", "bfloat16")
    assert code == 0 and record["fits"] == {"one_number": True, "centred": True, "cascade": False}
    assert main(["preorder", "--lexicographic", "4096"]) == 0
    assert "one head" in capsys.readouterr().out
    assert main(["preorder", "--lexicographic", "300", "--dtype", "float16", "--coordinates", "3"]) == 3
    assert main(["preorder", "--lexicographic", "4097", "--method", "one head"]) == 3
    assert "cascade" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--utility", "k"],
        ["--utility", "k", "--lexicographic", "5", "--right", "k=0:1"],
        ["--utility", "m", "--right", "k=0:1"],
        ["--utility", "k", "--right", "k=0:1", "--eps", "small"],
        ["--lexicographic", "many"],
        ["--lexicographic", "5", "--right", "k=0:1"],
        ["--lexicographic", "5", "--coordinates", "0"],
        ["--lexicographic", "5", "--dtype", "float8"],
        ["--lexicographic", "continuum", "--coordinates", "1"],
        ["--utility", "1/k", "--right", "k=-1:1"],
    ],
)
def test_requests_that_are_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preorder", *arguments]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and seen.err.count("\n") == 1 and seen.err.startswith("attnfun: invalid: ")
