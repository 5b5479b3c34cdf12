"""What holds for every command: nothing is cut, help can be followed, Tab completes, Ctrl-C says how to go on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import application, derive, main, shield
from attnfun.cli.render import Grid, Whole, number, page
from attnfun.kinds import Command, commands, known
from products import few

RUN = [sys.executable, "-c", "import sys; from attnfun.cli import main; sys.exit(main())"]


def every() -> Iterator[Command]:
    for package in (*(kind.commands for kind in known() if kind.commands), "attnfun.cli"):
        yield from commands(package)


COMMANDS = {command.name: command for command in every()}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the requests below name."""
    folder = tmp_path_factory.mktemp("room")
    af.compile("m/((x-y)**2+1)", "m=1:2;x=3:4;y=1:2", 1e-3, method="compose").save(folder / "f.safetensors")
    (folder / "docs.csv").write_text("y,id\n0.1,a\n0.4,b\n0.8,c\n")
    (folder / "scores.csv").write_text("doc,a,b\nx,1,2\ny,2,4.1\nz,3,6\n")
    (folder / "qrels.txt").write_text("".join(f"q{i} 0 d{i} 1\nq{i} 0 d{(i + 1) % 5} 1\n" for i in range(5)))
    (folder / "points.csv").write_text("m,x,y\n1.123456789,3.123456789,1.123456789\n")
    (folder / "targets.csv").write_text("name,formula,domain\na_wave_of_long_name,sin(3*x),x=-1:1\npole,1/x,x=-1:1\n")
    return folder


REQUESTS = """
compile "x*y" --domain "x=-1:1;y=-1:1" --eps 1e-3
set-function "sum(x**2)" --points 3 --domain x=-1:1 --eps 1e-3
relation "exp(x*y)" --left x=0:1 --right y=0:1 --eps 1e-3
ternary "x*y+y*z" --domain "x=0:1;y=0:1;z=0:1" --eps 1e-6
retrieve "exp(x*y)" --left x=0:1 --right y=0:1 --keys docs.csv --eps 1e-3 --queries 20
neighbours --dim 8 --method majority-vote --heads 17 --queries 100
sequence "x_2" "x_1" --rows --tokens 2 --domain x=-1:1 --eps 1e-9
in-context ridge --dim 2 --examples 6 --eps 0.5
interpolation --points 4,8 --heads 2
verify f.safetensors
show f.safetensors
eval f.safetensors points.csv --compare --table
suite targets.csv --eps 1e-2 --relative --method bernstein --jobs 1
preorder --utility "exp(-2*(q-k)**2)" --left q=0:1 --right k=0:1 --eps 1e-2
preorder --lexicographic 100000
embed-dim qrels.txt
rank-of scores.csv --eps 0.05
bounds rank --dim 64 --rank 8 --heads 16 --eps 0.1
bounds neighbours --dim 16 --candidates 7 --rank 1 --heads 4 --value-rank 1 --eps 0.1
bounds cube --dim 16 --values 100 --heads 4 --eps 0.01
bounds energies --dim 64
bounds sets --points 12 --dim 40 --degree 3 --features 500 --eps 0.1
bounds matching --tokens 131072 --rank 64 --bits 32 --heads 16
plan furthest-neighbour --dim 16 --context 4 --eps 0.1
train f.safetensors --steps 3
diagnose f.safetensors --dtype bfloat16
reproduce --list
doctor
""".strip().splitlines()
ELSEWHERE = {"export", "report"}  # `export` needs seconds of torch, `report` a folder of studies: pages without a table


def named(line: str) -> str:
    words = shlex.split(line)
    return " ".join(words[:2]) if words[0] == "bounds" else words[0]


# A command without a request above is tried by its first example.
WITHOUT = set(COMMANDS) - ELSEWHERE - {named(line) for line in REQUESTS}
REQUESTS += [COMMANDS[name].examples[0].removeprefix("attnfun ") for name in sorted(WITHOUT)]


def test_every_request_is_of_a_command() -> None:
    assert {named(line) for line in REQUESTS} | ELSEWHERE == set(COMMANDS)


def numbers(text: str) -> set[str]:
    return set(re.findall(r"[\d,.]*\d(?:e[-+]?\d+)?(?![\d.,]*\d)", text))


def pages(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[int, str]:
    """What a command prints on screens of several widths."""
    held: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(derive, "page", lambda parts: held.extend(parts))
        assert main(shlex.split(line)) == 0
    assert held
    capsys.readouterr()
    found = {}
    for width in (1000, 80, 60, 40):
        monkeypatch.setenv("COLUMNS", str(width))
        page(held)
        found[width] = capsys.readouterr().out
    return found


@pytest.mark.parametrize("line", few(REQUESTS, 14))
def test_no_number_is_cut_on_a_narrow_screen(
    line: str, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if line.startswith("train"):
        pytest.importorskip("torch")
    monkeypatch.chdir(room)
    found = pages(line, monkeypatch, capsys)
    wide = found.pop(1000)
    whole = numbers(wide)
    assert whole and "…" not in wide
    for width, text in found.items():
        assert "…" not in text and text.count("...") == wide.count("..."), width
        assert max(map(len, text.splitlines())) <= width
        assert whole <= numbers(text), (width, whole - numbers(text))


@pytest.mark.parametrize("seed", range(20))
def test_tables_of_random_numbers_are_whole_at_any_width(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(seed)
    columns = [f"column {'x' * int(rng.integers(0, 9))}{k}" for k in range(int(rng.integers(2, 12)))]
    texts = ["a short text", "a_long_name_without_any_space_in_it", "words " * 12]
    kinds = rng.integers(0, 4, len(columns))

    def cell(kind: int) -> Any:
        if kind == 0:
            return int(rng.integers(10 ** int(rng.integers(1, 13))))
        size = float(rng.normal() * 10.0 ** rng.integers(-12, 12))
        return texts[rng.integers(3)] if kind == 1 else size if kind == 2 else Whole(f"{size:.12g}")

    rows = [[cell(kind) for kind in kinds] for _ in range(4)]
    for width in (40, 57, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        page([Grid(columns, rows)])
        out = capsys.readouterr().out
        assert "…" not in out and max(map(len, out.splitlines())) <= width
        for value in (one for row in rows for one in row):
            if not isinstance(value, str) or isinstance(value, Whole):
                assert (value if isinstance(value, str) else number(value)) in out.split()


# help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_every_option_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for one in derive.asked(COMMANDS[name]):
        assert one.help, f"{name}: no words for {one.name}"
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples" in out and "--json" in out and f"attnfun {name}" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_words_are_those_of_the_verb(name: str) -> None:
    """An entry about an option that the verb does not have any more is a mistake."""
    command = COMMANDS[name]
    taken = {one.name for one in derive.asked(command)}
    for entry in (command.words, command.options, command.defaults, command.names, command.required):
        assert set(entry) <= taken, set(entry) - taken
    assert set(command.arguments) <= taken and not set(command.leave) & taken


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_help_can_be_typed(name: str) -> None:
    group = application("*")
    for example in COMMANDS[name].examples:
        program, *tokens = shlex.split(example)
        if program == "python":
            continue
        assert program == "attnfun" and "'" not in example and tokens[: len(name.split())] == name.split()
        command: Any = group
        rest = shield(group, tokens)
        for word in name.split():
            command, rest = command.commands[word], rest[1:]
        command.make_context(name, rest)  # raises where the parser would


LONG = ("attnfun suite feynman", "attnfun suite classic", "attnfun suite genz", "attnfun reproduce", "attnfun report")
LONG += ("attnfun train f.safetensors --steps 100000", "attnfun sequence --examples", "attnfun embed-dim qrels.txt")
LONG += ("python", "attnfun in-context ridge.safetensors")
REFUSED = {
    'attnfun preorder --utility "sign(x-0.5) + y/2" --right "x=0:1;y=0:1" --json': 3,
    "attnfun preorder --lexicographic continuum": 3,
}
EXAMPLES = [one for command in COMMANDS.values() for one in command.examples if not one.startswith(LONG)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples of help name."""
    from safetensors.numpy import save_file

    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    layers = {"0.weight": rng.normal(size=(4, 3)), "0.bias": rng.normal(size=4), "2.weight": rng.normal(size=(1, 4))}
    save_file(layers, folder / "model.safetensors")
    save_file({"K": rng.normal(size=(9, 2)), "V": rng.normal(size=(9, 1))}, folder / "head.safetensors")
    af.compile("sin(3*x)+cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6).save(folder / "f.safetensors")
    af.compile("sin(x)", "x=0:1", 1e-2).save(folder / "trained.safetensors")
    af.relation("exp(x*y)", "x=0:1", "y=0:1", 1e-3).save(folder / "relation.safetensors")
    af.in_context("ridge", 2, 6, eps=0.5).save(folder / "ridge.safetensors")
    X, header = rng.normal(size=(20, 2)), {"header": "a,b", "delimiter": ",", "comments": ""}
    np.savetxt(folder / "train.csv", np.column_stack([X, X.sum(1)]), **(header | {"header": "a,b,y"}))
    np.savetxt(folder / "new.csv", X[:3] / 2, **header)
    np.savetxt(folder / "points.csv", rng.uniform(0, 1, (5, 2)), **(header | {"header": "x,y"}))
    np.save(folder / "scores.npy", np.outer(np.arange(4.0), np.ones(3)))
    texts = {"docs.csv": "y,id\n0.1,a\n0.4,b\n0.8,c\n", "scores.csv": "1,2\n2,4.1\n3,6\n"}
    texts["pairs.tsv"] = "".join(f"q{i}\td{j}\n" for i in range(4) for j in (i, (i + 1) % 5))
    texts["relevance.csv"] = "1,0,0,1\n0,1,1,0\n0,0,1,1\n"
    texts["data.csv"] = "t,v\n0,0\n1,1\n2.5,0.5\n4,2\n"
    texts["targets.csv"] = "name,formula,domain\nfranke,sin(x),x=0:1\nrunge,1/(1+x**2),x=-1:1\n"
    texts["prompt.json"] = json.dumps([(X[:6] / 9).tolist(), (X[:6].sum(1) / 9).tolist(), [0.1, 0.2]])
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_help_run(example: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)  # an example may write over the file of another one
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(example)[1:]) == REFUSED.get(example, 0)


def test_help_imports_no_verb() -> None:
    code = "from attnfun.cli import main; main(['--help']); import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    verbs = {command.verb.partition(":")[0] for command in every()} - {"attnfun"}  # the public names, loaded when used
    assert not set(done.stderr.split()) & {"torch", "scipy", "matplotlib", "flint", *verbs}


# completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("attnfun comp", "compile"), ("attnfun compile --ep", "--eps"), ("attnfun bounds ma", "matching")],
)
def test_the_shell_completes_names_and_options(typed: str, offered: str) -> None:
    shell = {"_ATTNFUN_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(RUN, env=os.environ | shell, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and offered in done.stdout.split()


def test_completion_can_be_installed(tmp_path: Path) -> None:
    where = os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run([*RUN, option, "bash"], env=where, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert option == "--install-completion" or "complete -o default" in done.stdout
    assert "attnfun" in (tmp_path / ".bashrc").read_text()


# Ctrl-C


@pytest.mark.parametrize(
    ("argv", "where", "said"),
    [
        (["compile", "x", "--domain", "x=0:1", "--eps", "1"], "attnfun.cli.derive.named", "interrupted"),
        (["verify", "f.safetensors"], "attnfun.verbs.verify", "interrupted"),
        (["train", "f.safetensors"], "attnfun.verbs.load", "--checkpoint FILE"),
        (["train", "f.safetensors", "--checkpoint", "run"], "attnfun.verbs.load", "the same command goes on from run"),
        (
            ["reproduce", "all", "--out", "there"],
            "attnfun.lab.studies.runner.reproduce",
            "--resume goes on with what is in there",
        ),
        (["suite", "targets.csv"], "attnfun.lab.suite.run_suite", "--output FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_ctrl_c_is_one_sentence_and_code_130(
    argv: list[str],
    where: str,
    said: str,
    room: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(room)
    application(argv[0])
    monkeypatch.setattr(where, stop)
    assert main(argv) == 130
    seen = capsys.readouterr()
    assert seen.out == "" and said in seen.err and seen.err.count("\n") == 1
    assert main([*argv, "--json"]) == 130
    assert said in json.loads(capsys.readouterr().out)["reason"]


def test_a_suite_goes_on_where_ctrl_c_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from attnfun.lab import suite

    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("name,formula,domain\nfirst,2*x,x=0:1\nsecond,3*x,x=0:1\n")
    argv, real = ["suite", "t.csv", "--eps", "1e-2", "-o", "rows.json"], suite.run_suite
    seen: list[str] = []

    def stopped(cases: Any, *rest: Any, progress: Any, **options: Any) -> None:
        progress(cases[0], {"name": cases[0]["name"], "status": "proved", "seconds": 1.0})
        raise KeyboardInterrupt

    def listed(cases: Any, *rest: Any, **options: Any) -> Any:
        seen.extend(case["name"] for case in cases)
        return real(cases, *rest, **options)

    monkeypatch.setattr(suite, "run_suite", stopped)
    assert main(argv) == 130
    assert "1 of 2 rows are in rows.json.rows, and --resume goes on" in capsys.readouterr().err
    assert not Path("rows.json").exists()
    monkeypatch.setattr(suite, "run_suite", listed)
    assert main([*argv, "--resume", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["first", "second"]
    assert seen == ["second"] and len(json.loads(Path("rows.json").read_text())["rows"]) == 2
    assert not Path("rows.json.rows").exists()
    for name, value in (("eps", "1e-3"), ("norm", "2"), ("seed", "1"), ("dtype", "float32")):
        assert main([*argv, f"--{name}", value, "--resume"]) == 2
        assert f"another {name}" in capsys.readouterr().err
    assert main([*argv[:4], "--resume"]) == 2 and "--output: name it" in capsys.readouterr().err
    Path("t.csv").write_text(
        "name,formula,domain\nfirst,2*x,x=0:1\nsecond,4*x,x=0:1\n"
    )  # the same name, another target
    assert main([*argv, "--resume"]) == 0 and seen == ["second", "second"]


def test_a_signal_ends_a_run_that_is_under_way() -> None:
    hears = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background jobs are born deaf to it
    code = f"import signal, sys; {hears}; from attnfun.cli import main; print('ready', flush=True); sys.exit(main())"
    argv = ["neighbours", "--dim", "8", "--method", "majority-vote", "--heads", "17", "--queries", "1000000000"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process: Any = subprocess.Popen([sys.executable, "-c", code, *argv], **streams)
    try:
        assert process.stdout.readline() == "ready\n"
        for _ in range(12):  # a signal that falls into an import of C code may be lost: one presses again
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=10)
                break
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "attnfun: error: interrupted\n")


def test_a_group_without_a_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bounds"]) == 2
    assert capsys.readouterr().err.endswith("attnfun: invalid: a command is needed; the help lists them\n")


def test_every_command_has_an_example_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
    missing = [name for name in COMMANDS if not re.search(rf"^attnfun {name} ", page, re.MULTILINE)]
    others = re.search(r"^attnfun bounds rank .*# also: bounds (.*)$", page, re.MULTILINE)
    assert others is not None
    assert [name for name in missing if name.removeprefix("bounds ") not in others.group(1).split(", ")] == []
