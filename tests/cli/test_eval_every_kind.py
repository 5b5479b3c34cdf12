"""attnfun eval on files of every kind: a list of arguments in JSON, and one line where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds import NAMES
from house.requests import model

kinds = pytest.mark.parametrize("kind", NAMES)


def drawn(one: Any) -> list[Any]:
    """Inputs of the kind, flags and what is wanted of them left out."""
    inputs = [np.asarray(part) for part in one.target.draw(np.random.default_rng(4), 3) if not isinstance(part, bool)]
    return inputs[:1] if one.target.kind == "sampled" else inputs


@pytest.fixture
def file(kind: str, tmp_path: Path) -> str:
    model(kind, 0).save(tmp_path / "m.safetensors")
    return str(tmp_path / "m.safetensors")


def written(tmp_path: Path, given: Any) -> str:
    (tmp_path / "inputs.json").write_text(json.dumps(given))
    return str(tmp_path / "inputs.json")


@kinds
def test_a_list_of_arguments_is_what_a_call_in_python_takes(
    kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = model(kind, 0)
    inputs = drawn(one)
    argv = ["eval", file, written(tmp_path, [part.tolist() for part in inputs])]
    known = kind != "sampled"  # its sampler, which knows what is wanted, is not in the file
    assert main([*argv, "--json", *["--compare"] * known]) == 0
    record = json.loads(capsys.readouterr().out)
    assert np.array_equal(record["values"], one(*inputs)) and record["verified"] is False
    if known:
        assert np.array_equal(np.ravel(record["target_values"]), np.ravel(one.target.exact(*inputs)))
    assert main([*argv, "--csv"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    seen = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    assert header.startswith("output") and np.array_equal(seen.ravel(), np.ravel(one(*inputs)))


@kinds
def test_kinds_without_a_table_say_what_they_take(kind: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, rows = model(kind, 0), True
    try:
        one.target.columns(one.weights)
    except af.InvalidRequest:
        rows = False
    assert main(["eval", file, "--at", "nothing=1"]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert ("no variable 'nothing'" in said) == rows and (".json" in said) != rows


@kinds
def test_inputs_of_any_other_shape_are_one_line(
    kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, refused = np.random.default_rng(NAMES.index(kind)), 0
    for _ in range(25):
        given = []
        for part in drawn(model(kind, 0)):
            shape = list(part.shape)
            shape[int(rng.integers(len(shape)))] = int(rng.integers(0, 5))
            shape = [[*shape], shape[1:], [1, *shape]][int(rng.integers(3))]
            given.append((rng.integers(0, 5, shape) * rng.choice([1.0, 1e3, 0.1])).tolist())
        code = main(["eval", file, written(tmp_path, given), "--json"])
        said = capsys.readouterr()
        assert code in (0, 2, 3), given
        assert len(said.err.strip().splitlines()) == (code != 0) and "Traceback" not in said.err
        refused += code != 0
    assert refused


@pytest.mark.parametrize("kind", ["in_context", "ternary"])
@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "not JSON"),
        ("{}", "a list of a call's arguments"),
        ("[]", "a list of a call's arguments"),
        ("[[[1, 2], [3]], 1, 1]", "not equally long"),
        ('["a", "b", "c"]', "numbers"),
        ("[null, 1, 1]", "numbers"),
        ("[[[1]], [[1]]]", "needed"),
        ("[" * 20000, "not JSON"),
    ],
)
def test_what_is_no_list_of_arguments_is_one_line(
    kind: str, text: str, why: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inputs.json").write_text(text)
    assert main(["eval", file, str(tmp_path / "inputs.json")]) == 2
    said = capsys.readouterr().err
    assert why in said and len(said.strip().splitlines()) == 1


@kinds
def test_outside_is_for_kinds_that_cut_their_inputs(
    kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = written(tmp_path, [part.tolist() for part in drawn(model(kind, 0))])
    code = main(["eval", file, given, "--outside", "clamp"])
    assert code == (0 if kind in ("function", "sequence", "set") else 2)
    assert ("are never cut" in capsys.readouterr().err) == (code == 2)
