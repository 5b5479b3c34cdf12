"""`attnfun compile --table`: numbers in a CSV file, and one sentence for each that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnfun.cli import main

BAD = {
    "no header": ("0,0\n1,1\n", "first line must name the columns"),
    "one column": ("v\n1\n2\n", "a column for every coordinate"),
    "no rows": ("x,v\n", "no rows below the header"),
    "nan": ("x,v\n0,0\n1,nan\n", "entry 2 is nan"),
    "no number": ("x,v\n0,0\n1,one\n", "'one' in column 'v' is not a number"),
    "not sorted": ("x,v\n1,0\n0,1\n", "x must increase, but 0.0 follows 1.0"),
    "twice": ("x,v\n1,0\n1,1\n", "1.0 stands twice"),
    "one row": ("x,v\n1,0\n", "two at least"),
    "no grid": ("x,y,v\n0,0,1\n0,1,1\n1,0,1\n", "[1.0, 1.0] is missing"),
    "bad name": ("for,v\n0,1\n1,2\n", "no names"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_ends_with_one_line_and_exit_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, said = BAD[name]
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main(["compile", "--table", str(path), "--eps", "1e-3"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and "bad.csv" in err


def test_a_table_is_compiled_saved_and_proved_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "d.csv", str(tmp_path / "n.safetensors")
    path.write_text("a,b,v\n0,0,1\n1,0,2\n0,1,0\n1,1,3\n")
    assert main(["compile", "--table", str(path), "--eps", "1e-2", "-o", out, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proved" and record["domain"] == "a=0:1;b=0:1" and record["method"] == "table"
    assert main(["verify", out]) == 0
    assert main(["compile", "--table", str(path), "--domain", "a=0:0.5", "--domain", "b=0:1", "--eps", "1e-2"]) == 0


def test_a_table_and_an_expression_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "x", "--table", "d.csv", "--eps", "1e-2"]) == 2
    assert main(["compile", "x", "--domain", "x=0:1", "--kind", "cubic", "--eps", "1e-2"]) == 2
    assert main(["compile", "--eps", "1e-2"]) == 2
    assert "no expression" in capsys.readouterr().err
