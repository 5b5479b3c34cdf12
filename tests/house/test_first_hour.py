"""docs/first-hour.md: what three new users type in their first ten steps, run from top to bottom, and what they see."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import attnfun as af
from attnfun.cli import main
from house.sources import PACKAGE

PAGE = (PACKAGE.parents[1] / "docs" / "first-hour.md").read_text("utf-8")
NEEDED = {"plot(": "matplotlib", "--png": "matplotlib", "torch": "torch", "af.train": "torch", "onnx": "onnxruntime"}
NEEDED |= {"pretrained": "huggingface_hub", "to_hooked": "transformer_lens"}
"""A word of a step, and the package that it needs."""


def steps(reader: str) -> list[tuple[str, list[tuple[str, str]], str]]:
    """Of one reader's steps: its name, its blocks as (language, code), and what it shows."""
    (part,) = re.findall(rf"^## {reader}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    found = []
    for name, text in re.findall(r"^\*\*(\d+\. .+?)\*\*(.*?)(?=^\*\*\d|\Z)", part, re.S | re.M):
        *blocks, (language, shown) = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M)
        assert language == "text" and blocks and {kind for kind, _ in blocks} <= {"python", "sh"}
        found.append((name, blocks, shown))
    return found


def python(code: str, names: dict[str, Any]) -> None:
    """What a session does with a cell: run it, and show the value of its last line or the sentence of a refusal."""
    tree = ast.parse(code)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(last, "<cell>", "eval"), names) if last else None
        print("" if value is None else repr(value))
    except af.AttnfunError as refusal:
        print(f"{type(refusal).__name__}: {refusal}")


def shell(code: str) -> None:
    for line in code.splitlines():
        program, *words = shlex.split(line)
        assert program == "attnfun"
        status = main(words)
        print(f"exit code {status}" if status else "")


def assert_shown(wanted: str, seen: str) -> None:
    """All of `wanted`, its parts between … in their order; a line may have more around it, and spaces do not count."""
    parts = [" ".join(re.sub(r"[─│]", " ", part).split()) for part in re.split("…|\n", wanted)]
    at, text = 0, " ".join(seen.split())
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"not shown: {part!r}\nin: {text[at:]}"
        at = found + len(part)


@pytest.mark.parametrize("reader", ["The student", "The engineer", "The researcher in interpretability"])
def test_the_first_ten_steps(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, names = steps(reader), dict[str, Any]()
    assert [name.split(".")[0] for name, _, _ in listed] == [str(k) for k in range(1, 11)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, blocks, wanted in listed:
        for word, package in NEEDED.items():
            if any(word in code for _, code in blocks):
                pytest.importorskip(package, reason=f"from step {name!r} on {package} is needed")
        capsys.readouterr()
        for language, code in blocks:
            python(code, names) if language == "python" else shell(code)
        told = capsys.readouterr()
        assert_shown(wanted, told.err + told.out)
    sys.modules.pop("f_numpy", None)


def test_a_step_that_shows_something_else_is_seen() -> None:
    assert_shown("1 layer, … keys\nProved", "net: 1 layer, 1 head, 4 keys\n  Proved: it is")
    for wanted in ("2 layers", "4 keys, … 1 layer", "Proved\n1 layer"):
        with pytest.raises(AssertionError, match="not shown"):
            assert_shown(wanted, "net: 1 layer, 1 head, 4 keys\n  Proved: it is")
