"""What is typed reaches the command as it was meant."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from attnfun.cli import application
from attnfun.cli.arguments import (
    picture_path,
    read_domain,
    read_point,
    read_points,
    shield,
    unshield,
)
from attnfun.cli.suite import select
from attnfun.errors import InvalidRequest
from attnfun.files import require_writable
from attnfun.search import read_norm


def shielded(*tokens: str) -> list[str]:
    return shield(application("*"), list(tokens))


@pytest.mark.parametrize(
    "expression", ["-x", "-o*x", "-o", "--x", "-h(x)", "-(x+1)", "-1", "--1*x", "-x**2", "--eps*x"]
)
def test_an_expression_may_begin_with_a_minus(expression: str) -> None:
    out = shielded("compile", expression, "--domain", "x=-1:1", "--eps", "1e-3")
    if expression == "-o":  # exactly an option: it stays one
        assert out[1] == "-o"
    else:
        assert out[1] == " " + expression
        assert unshield(out[1]) == expression


def test_values_of_options_are_left_alone() -> None:
    tokens = ["verify", "f.safetensors", "--target", "-x", "--json"]
    assert shielded(*tokens) == tokens
    assert shielded("compile", "--eps", "-1", "-x", "-o", "-file") == ["compile", "--eps", "-1", " -x", "-o", "-file"]


def test_a_value_may_be_joined_to_its_option() -> None:
    assert shielded("compile", "--eps=1e-3", "-x") == ["compile", "--eps=1e-3", " -x"]


def test_a_misspelt_option_is_not_taken_for_an_expression() -> None:
    assert shielded("compile", "x", "--epss", "1")[2] == "--epss"
    assert shielded("compile", "x", "--domian", "x=0:1")[2] == "--domian"


def test_after_two_dashes_everything_is_as_it_is() -> None:
    assert shielded("compile", "--eps", "1", "--", "-o", "-x") == ["compile", "--eps", "1", "--", "-o", "-x"]


def test_an_unknown_command_is_left_to_the_parser() -> None:
    assert shielded("nonsense", "-x") == ["nonsense", "-x"]
    assert shielded("--help") == ["--help"]
    assert shielded() == []


def test_png_may_stand_alone() -> None:
    assert shielded("show", "a.safetensors", "--png") == ["show", "a.safetensors", "--png", ""]
    assert shielded("show", "--png", "a.safetensors") == ["show", "--png", "", "a.safetensors"]
    assert shielded("show", "a.safetensors", "--png", "--json")[2:] == ["--png", "", "--json"]
    assert shielded("show", "a.safetensors", "--png", "b.png")[2:] == ["--png", "b.png"]
    assert picture_path("", "folder/a.safetensors") == str(Path("folder/a.png"))
    assert picture_path(None, "a.safetensors") is None
    assert picture_path("b.png", "a.safetensors") == "b.png"


def test_domains_may_be_repeated_or_joined() -> None:
    assert read_domain(["x=-1:1;y=0:2", " z=0:1 "]) == ["x=-1:1", "y=0:2", "z=0:1"]
    with pytest.raises(InvalidRequest, match="no domain"):
        read_domain([])


def test_norms() -> None:
    """As texts, for the verbs read them."""
    assert read_norm("sup") == math.inf and read_norm("2") == 2.0
    with pytest.raises(InvalidRequest, match="norm='two'"):
        read_norm("two")


def test_points_are_read_in_the_order_of_the_variables() -> None:
    assert read_point("y=1, x=-0.3", ["x", "y"]) == [-0.3, 1.0]


@pytest.mark.parametrize("text", ["x=1", "x=1,y=2,z=3", "x=1,y", "x=1,x=2,y=1", "x=one,y=2", ""])
def test_a_bad_point_is_named_in_the_message(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--at"):
        read_point(text, ["x", "y"])


def test_csv_points(tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text("\ufeffy, x ,note\n1,2,a\n\n3,4e-1,b\n", encoding="utf-8")
    assert read_points(str(table), ["x", "y"]) == [[2.0, 1.0], [0.4, 3.0]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x,z\n1,2\n", "no column y"),
        (b"x,y\n1,two\n", "line 2"),
        (b"x,y\n1\n", "fewer cells"),
        (b"", "no column"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
    ],
)
def test_a_bad_csv_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    table = tmp_path / "p.csv"
    table.write_bytes(content)
    with pytest.raises(InvalidRequest, match=said):
        read_points(str(table), ["x", "y"])


def test_outputs_are_checked_before_the_work(tmp_path: Path) -> None:
    require_writable(str(tmp_path / "new.png"))
    with pytest.raises(InvalidRequest, match="no folder"):
        require_writable(str(tmp_path / "missing" / "a.png"))
    with pytest.raises(InvalidRequest, match="is a folder"):
        require_writable(str(tmp_path))


def test_rows_of_a_suite_are_chosen_by_pattern_or_count() -> None:
    cases = [{"name": name} for name in ("runge", "rung2", "abs", "max")]
    assert [c["name"] for c in select(cases, "rung*,max")] == ["runge", "rung2", "max"]
    assert [c["name"] for c in select(cases, "2")] == ["runge", "abs"]
    assert select(cases, "99") == cases == select(cases, None)
    with pytest.raises(InvalidRequest, match="leaves no row"):
        select(cases, "nothing")
