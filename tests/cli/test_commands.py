"""Every command: its answer, its JSON, its exit code, its one line on stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnfun.cli import main

Run = Callable[..., tuple[int, str, str]]
REQUIRED = {
    "name",
    "status",
    "error",
    "error_low",
    "eps",
    "method",
    "layers",
    "heads",
    "rank",
    "keys",
    "parameters",
    "seconds",
    "slack",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(argv))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("networks") / "f.safetensors"
    code = main(
        ["compile", "sin(3*x)", "--domain", "x=-1:1", "--eps", "1e-4", "--method", "bernstein", "-o", str(path)]
    )
    assert code == 0
    return str(path)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("networks") / "g.safetensors"
    argv = ["compile", "x*y", "-cos(x)+y", "--domain", "x=-1:1;y=0:2", "--eps", "1e-3", "--method", "bernstein"]
    assert main([*argv, "-o", str(path)]) == 0
    return str(path)


def one_object(text: str) -> dict[str, Any]:
    record = json.loads(text)
    assert isinstance(record, dict)
    return record


def is_one_line(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and text.startswith("attnfun: ")


# compile


def test_compile_prints_what_was_proved(run: Run) -> None:
    code, out, err = run("compile", "sin(3*x)", "--domain", "x=-1:1", "--eps", "1e-4")
    assert code == 0 and err == ""
    for word in ("sin(3*x)", "proved", "0.0001", "keys", "parameters"):
        assert word in out


def test_compile_json_is_one_object_with_every_field(run: Run) -> None:
    code, out, err = run("compile", "sin(3*x)", "--domain", "x=-1:1", "--eps", "1e-4", "--json")
    record = one_object(out)
    assert code == 0 and err == ""
    assert set(record) >= REQUIRED
    assert record["status"] == "proved" and 0 < record["error_low"] <= record["error"] <= record["eps"] == 1e-4
    assert record["method"] in ("bernstein", "partition", "tangent", "compose")


@pytest.mark.parametrize("expression", ["-x**2", "-o*o", "-(x+o)"])
def test_compile_takes_expressions_that_begin_with_a_minus(run: Run, expression: str) -> None:
    code, out, err = run(
        "compile", expression, "--domain", "x=-1:1;o=0:1", "--eps", "1e-2", "--method", "bernstein", "--json"
    )
    assert (code, err) == (0, "")
    assert one_object(out)["status"] == "proved"


def test_compile_takes_several_outputs_saves_and_draws(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "two.safetensors"
    argv = ["compile", "sin(x)", "-x", "--domain", "x=0:1", "--eps", "1e-3", "--method", "bernstein", "-o", str(path)]
    code, out, _ = run(*argv, "--png", "--json")
    record = one_object(out)
    assert code == 0 and record["file"] == str(path) and record["png"] == str(tmp_path / "two.png")
    assert (tmp_path / "two.png").read_bytes()[:4] == b"\x89PNG"


def test_relative_eps_is_a_fraction_of_the_range(run: Run) -> None:
    code, out, _ = run("compile", "100*sin(3*x)", "--domain", "x=-1:1", "--eps", "1e-4", "--relative", "--json")
    record = one_object(out)
    assert code == 0 and 1e-4 < record["eps"] <= 200 * 1e-4 and record["error"] <= record["eps"]


INVALID = [
    (["compile", "__import__('os')", "--domain", "x=0:1", "--eps", "1"], 2),
    (["compile", "x.real", "--domain", "x=0:1", "--eps", "1"], 2),
    (["compile", "x+zz", "--domain", "x=0:1", "--eps", "1"], 2),
    (["compile", "x+", "--domain", "x=0:1", "--eps", "1"], 2),
    (["compile", "x", "--domain", "x=1:1", "--eps", "1"], 2),
    (["compile", "x", "--domain", "x=0:inf", "--eps", "1"], 2),
    (["compile", "x", "--domain", "nonsense", "--eps", "1"], 2),
    (["compile", "x", "--eps", "1"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "0"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "nan"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "tiny"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "1", "--method", "magic"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "1", "--dtype", "float8"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "1", "--norm", "0.5"], 2),
    (["compile", "sin(x)", "--domain", "x=0:1", "--eps", "1", "-o", "no/such/folder/f.safetensors"], 2),
    (["compile", "(" * 60_000 + "x" + ")" * 60_000, "--domain", "x=0:1", "--eps", "1"], 2),
    (["verify", "no such file"], 2),
    (["show", "no such file"], 2),
    (["eval", "no such file", "--at", "x=1"], 2),
    (["export", "no such file", "-o", "x.pt2"], 2),
    (["suite", "no such file"], 2),
    (["nonsense"], 2),
    (["verify", "--nonsense"], 2),
]
EITHER = [
    ["compile", "1/x", "--domain", "x=-1:1", "--eps", "1e-3"],
    ["compile", "log(x)", "--domain", "x=0:1", "--eps", "1e-3"],
    ["compile", "sqrt(x)", "--domain", "x=-1:1", "--eps", "1e-3"],
    ["compile", "sign(x)", "--domain", "x=-1:1", "--eps", "1e-3"],
]


@pytest.mark.parametrize(("argv", "expected"), INVALID, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else "")
def test_a_bad_request_is_one_line_and_its_code(run: Run, argv: list[str], expected: int) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (expected, "") and is_one_line(err), err
    assert len(err) < 700


@pytest.mark.parametrize("argv", EITHER, ids=lambda v: v[1])
def test_what_cannot_be_met_is_one_line_and_code_2_or_3(run: Run, argv: list[str]) -> None:
    code, out, err = run(*argv)
    assert code in (2, 3) and out == "" and is_one_line(err), err


@pytest.mark.parametrize(
    "argv", [INVALID[0][0], INVALID[9][0], INVALID[11][0], INVALID[17][0], *EITHER], ids=lambda v: " ".join(v)[:50]
)
def test_failures_in_json_carry_status_and_reason(run: Run, argv: list[str]) -> None:
    code, out, err = run(*argv, "--json")
    record = one_object(out)
    assert record["status"] == {2: "invalid", 3: "infeasible"}[code] and record["reason"]
    assert is_one_line(err)


def test_a_misspelt_option_is_named(run: Run) -> None:
    code, _, err = run("compile", "x", "--domian", "x=0:1", "--eps", "1")
    assert code == 2 and "--domian" in err and is_one_line(err)


# verify


def test_verify_prints_the_target_it_proved(run: Run, saved: str) -> None:
    code, out, err = run("verify", saved)
    assert (code, err) == (0, "")
    for word in ("sin(3*x)", "proved", "x=-1:1"):
        assert word in out


def test_verify_json(run: Run, saved: str) -> None:
    code, out, _ = run("verify", saved, "--json")
    record = one_object(out)
    assert code == 0 and record["status"] == "proved" and record["target"] == "sin(3*x)"
    assert 0 <= record["error_low"] <= record["error"] <= 1e-4
    assert record["proof"] and isinstance(record["hypotheses"], list)


def test_verify_compares_with_the_expected_target(run: Run, saved: str) -> None:
    assert run("verify", saved, "--target", "sin(3*x)")[0] == 0
    code, _, err = run("verify", saved, "--target", "-sin(3*x)")
    assert code in (2, 4) and is_one_line(err)


@pytest.mark.parametrize("damage", ["empty", "cut", "pickle", "text", "flipped"])
def test_a_damaged_file_is_never_verified(run: Run, saved: str, tmp_path: Path, damage: str) -> None:
    data = Path(saved).read_bytes()
    path = tmp_path / "damaged.safetensors"
    flipped = bytearray(data)
    flipped[-9] ^= 0x40
    contents = {"empty": b"", "cut": data[:-20], "pickle": b"\x80\x04N.", "text": b"hello", "flipped": bytes(flipped)}
    path.write_bytes(contents[damage])
    for command in (["verify"], ["show"], ["eval", "--at", "x=0"]):
        code, out, err = run(command[0], str(path), *command[1:], "--json")
        assert code == 2 and is_one_line(err) and one_object(out)["status"] == "invalid"


# show, eval, export


def test_show_lists_the_heads(run: Run, plane: str) -> None:
    code, out, err = run("show", plane)
    assert (code, err) == (0, "") and "heads" in out
    record = one_object(run("show", plane, "--json")[1])
    assert record["inputs"] == ["x", "y"] and len(record["outputs"]) == 2
    assert sum(head["keys"] for head in record["head_list"]) == record["keys"]


def test_show_says_what_each_head_of_a_composed_network_does(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "c.safetensors")
    argv = ["compile", "m/((x-y)**2+1)", "--domain", "m=1:2;x=3:4;y=1:2", "--eps", "1e-3", "--method", "compose"]
    assert run(*argv, "-o", path)[0] == 0
    record = one_object(run("show", path, "--json")[1])
    steps = record["steps"]
    assert sum(step["keys"] for step in steps) == record["keys"] and sum(s["pieces"] for s in steps) == record["heads"]
    assert abs(sum(step["share"] for step in steps) - 1) < 1e-9
    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, err = run("show", path)
        assert (code, err) == (0, "")
        for word in ("layer", "function", "keys", "pieces", "range", "own error", "share", "h1", "(x - y)**2", "%"):
            assert word in out, word


def test_show_draws(run: Run, plane: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, _, err = run("show", plane, "--png", str(tmp_path / "g.png"))
    assert (code, err) == (0, "") and (tmp_path / "g.png").stat().st_size > 10_000
    code, _, err = run("show", plane, "--png", str(tmp_path / "g.xyz"))
    assert code == 2 and is_one_line(err)


def test_eval_at_points(run: Run, saved: str) -> None:
    code, out, err = run("eval", saved, "--at", "x=0.3", "--at", "x=-1")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["x"]) for row in rows] == [0.3, -1.0]
    assert abs(float(rows[0]["f"]) - np.sin(0.9)) <= 1e-4


def test_eval_csv_and_json(run: Run, plane: str, tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text("y,x\n1,0.5\n2,-1\n", encoding="utf-8")
    code, out, _ = run("eval", plane, str(table), "--json", "--compare")
    record = one_object(out)
    assert code == 0 and record["points"] == [[0.5, 1.0], [-1.0, 2.0]]
    assert np.abs(np.array(record["values"])[:, 0] - [0.5, -2.0]).max() <= 1e-3
    assert np.max(record["errors"]) <= record["error"]
    target = tmp_path / "out.csv"
    assert run("eval", plane, str(table), "-o", str(target))[:2] == (0, "")
    assert len(target.read_text().splitlines()) == 3
    code, out, _ = run("eval", plane, str(table), "--table")
    assert code == 0 and "0.5" in out


def test_points_outside_the_domain_are_refused_unless_asked_for(run: Run, saved: str) -> None:
    code, _, err = run("eval", saved, "--at", "x=1.5")
    assert code == 2 and is_one_line(err)
    clamped = one_object(run("eval", saved, "--at", "x=1.5", "--outside", "clamp", "--json")[1])["values"]
    assert clamped == one_object(run("eval", saved, "--at", "x=1", "--json")[1])["values"]
    assert run("eval", saved, "--at", "x=1.5", "--outside", "allow")[0] == 0
    assert run("eval", saved)[0] == 2


def test_export_writes_a_program_torch_runs_alone(run: Run, plane: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "g.pt2"
    code, out, err = run("export", plane, "--to", "torch", "-o", str(path), "--json")
    record = one_object(out)
    assert (code, err) == (0, "") and record["difference"] <= record["allowed"]
    program = torch.export.load(path).module()
    for batch in (1, 5, 64):
        assert program(torch.zeros(batch, 2, dtype=torch.float64)).shape == (batch, 2)


def test_export_refuses_formats_it_does_not_have(run: Run, plane: str, tmp_path: Path) -> None:
    for to in ("jax", "keras"):
        code, _, err = run("export", plane, "--to", to, "-o", str(tmp_path / "g"))
        assert code == 2 and is_one_line(err) and to in err


# suite


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    path = tmp_path / "suite.csv"
    path.write_text(
        "name,formula,domain\nwave,sin(3*x),x=-1:1\nminus,-x**2,x=-1:1\npole,1/x,x=-1:1\ntypo,sni(x),x=-1:1\n"
    )
    return str(path)


def test_suite_reports_every_row(run: Run, suite_file: str, tmp_path: Path) -> None:
    code, out, err = run("suite", suite_file, "--eps", "1e-3", "--relative", "--method", "bernstein", "--json")
    record = one_object(out)
    assert (code, err) == (0, "") and set(record) >= {"rows", "summary"}
    rows = {row["name"]: row for row in record["rows"]}
    assert list(rows) == ["wave", "minus", "pole", "typo"]
    assert rows["wave"]["status"] == rows["minus"]["status"] == "proved"
    assert rows["typo"]["status"] == "invalid" and rows["typo"]["reason"]
    assert rows["pole"]["status"] in ("invalid", "infeasible") and rows["pole"]["reason"]
    assert all(set(row) >= REQUIRED for row in rows.values())
    assert record["summary"]["rows"] == 4 and record["summary"]["proved"] == 2


def test_suite_prints_a_table_and_writes_files(run: Run, suite_file: str, tmp_path: Path) -> None:
    argv = ["suite", suite_file, "--eps", "1e-2", "--only", "wave,typo", "--method", "bernstein"]
    for suffix in ("csv", "json", "md"):
        target = tmp_path / f"out.{suffix}"
        code, out, err = run(*argv, "--output", str(target))
        assert (code, err) == (0, "") and "1 of 2 proved" in out and "typo" in out
        assert "wave" in target.read_text()
    assert run(*argv, "--output", str(tmp_path / "out.xls"))[0] == 2


# the program itself


@pytest.mark.parametrize("command", ["compile", "verify", "show", "eval", "export", "suite"])
def test_help_shows_examples(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0 and "Examples" in out and f"attnfun {command}" in out and "--json" in out


def test_help_groups_the_commands(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0 and "Networks" in out and "compile" in out
    assert run("--version")[1].startswith("attnfun ")


def test_a_fault_is_one_line_unless_debugging(run: Run, monkeypatch: pytest.MonkeyPatch, saved: str) -> None:
    from attnfun import verbs

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("inside\nout")

    monkeypatch.setattr(verbs, "verify", broken)
    code, out, err = run("verify", saved, "--json")
    assert code == 1 and is_one_line(err) and one_object(out)["status"] == "error"
    monkeypatch.setenv("ATTNFUN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["verify", saved])


def test_undecided_and_refuted_have_their_codes(run: Run, monkeypatch: pytest.MonkeyPatch, saved: str) -> None:
    from dataclasses import replace

    from attnfun import verbs
    from attnfun.certify.certificate import Status

    proved = verbs.verify(saved)
    for status, expected in ((Status.UNDECIDED, 5), (Status.REFUTED, 4)):
        monkeypatch.setattr(
            verbs, "verify", lambda *_, s=status, **__: replace(proved, status=s, error=(1.0, float("inf")))
        )
        code, out, err = run("verify", saved, "--json")
        record = one_object(out)
        assert code == expected and is_one_line(err) and record["status"] == str(status) and record["error"] is None
        assert run("verify", saved)[0] == expected


def test_the_installed_program_runs_and_leaves_stdout_to_json(saved: str) -> None:
    script = Path(sys.executable).with_name("attnfun")
    argv = (
        [str(script)]
        if script.exists()
        else [sys.executable, "-c", "import sys; from attnfun.cli import main; sys.exit(main())"]
    )
    environment = {**os.environ, "ATTNFUN_DEBUG": ""}
    done = subprocess.run(
        [*argv, "verify", saved, "--json"], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["status"] == "proved"
    done = subprocess.run(
        [*argv, "compile", "-x+q", "--domain", "x=0:1", "--eps", "1"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and done.stdout == "" and is_one_line(done.stderr)


def test_an_mlp_is_compiled_shown_and_verified(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "f.safetensors")
    code, out, _ = run("compile", "x*y", "--domain", "x=-1:1;y=-1:1", "--eps", "1e-2", "--realise", "mlp", "-o", path)
    assert code == 0 and "units" in out and "keys" not in out
    code, out, _ = run("compile", "x*y", "--domain", "x=-1:1;y=-1:1", "--eps", "1e-2", "--realise", "mlp", "--json")
    record = json.loads(out)
    assert code == 0 and set(record) >= REQUIRED and record["realise"] == "mlp" and record["method"] == "compose"
    assert run("verify", path)[0] == 0
    code, out, _ = run("show", path)
    assert code == 0 and "blocks" in out and "MLP" in out
    code, _, err = run("compile", "x*y", "--domain", "x=-1:1;y=-1:1", "--eps", "1e-2", "--realise", "rnn")
    assert code == 2 and "realise='rnn'" in err
    code, _, err = run("compile", "sin(x)", "--domain", "x=-1:1", "--eps", "1e-14", "--realise", "mlp")
    assert code == 3 and "ReLU units" in err and "nearest: eps=" in err


def test_an_mlp_from_a_file(run: Run, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    weights, out = tmp_path / "model.safetensors", tmp_path / "net.safetensors"
    tensors = {"0.weight": rng.normal(size=(4, 3)), "0.bias": rng.normal(size=4), "2.weight": rng.normal(size=(2, 4))}
    save_file(tensors, weights)
    where = ("--domain", "-1:1", "--domain", "x3=0:5")
    code, text, _ = run("compile", str(weights), *where, "--eps", "1e-3", "-o", str(out), "--json")
    record = json.loads(text)
    assert code == 0 and record.keys() >= REQUIRED and record["method"] == "relu_network"
    code, text, _ = run("verify", str(out), "--target", str(weights), "--json")
    assert code == 0 and json.loads(text)["error"] == record["error"]
    save_file({**tensors, "2.weight": 2 * tensors["2.weight"]}, weights)
    code, _, err = run("verify", str(out), "--target", str(weights))
    assert code == 2 and err.count("\n") == 1
    for bad in (("--domain", "0:1", "--domain", "y=0:1"), ("--domain", "x1=0:1")):
        code, _, err = run("compile", str(weights), *bad, "--eps", "1e-3")
        assert code == 2 and err.count("\n") == 1
    code, _, err = run("compile", str(tmp_path / "none.safetensors"), *where, "--eps", "1e-3")
    assert code == 2 and err.count("\n") == 1
