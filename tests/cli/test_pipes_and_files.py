"""Pipes that close, files that are none, pictures without matplotlib."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import pkgutil
import random
import subprocess
import sys

import pytest

import attnfun.plots
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.files import TooLong, read_bytes, read_text, require_regular, write_whole
from products import few

RUN = [sys.executable, "-c", "import sys; from attnfun.cli import main; sys.exit(main())"]


@pytest.mark.parametrize(
    "arguments", few([["compile", "sin(", "--domain", "x=0:1", "--eps", "0.1", "--json"], ["--help"]], 1)
)
def test_a_closed_pipe_changes_neither_the_code_nor_stderr(arguments):
    whole = subprocess.run([*RUN, *arguments], capture_output=True, text=True)
    read, write = os.pipe()
    os.close(read)
    try:
        cut = subprocess.run([*RUN, *arguments], stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert whole.stdout
    assert (cut.returncode, cut.stderr) == (whole.returncode, whole.stderr)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_pipe_into_head_takes_is_the_beginning_and_nothing_else_is_said(seed):
    rng = random.Random(seed)
    compiled = ["compile", f"sin({rng.randint(1, 5)}*x)", "--domain", "x=0:1", "--eps", "1e-3"]
    votes = ["neighbours", "--dim", str(rng.randint(3, 6)), "--method", "tally", "--queries", "200"]
    listed = [["--help"], ["plan", "--help"], votes, compiled]
    arguments = [*listed, [*compiled, "--json"]][seed]
    whole = subprocess.run([*RUN, *arguments], capture_output=True, text=True)
    for taken in (0, rng.randint(1, 40)):  # with 0 the pipe is closed before the first word
        with subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cut:
            begun = cut.stdout.read(taken)
            cut.stdout.close()
            said = cut.stderr.read().decode()
        assert (cut.wait(), said) == (whole.returncode, whole.stderr)
        assert len(begun) == taken and whole.stdout.encode().startswith(begun)


def test_only_regular_files_of_bounded_length_are_read(tmp_path, capsys):
    pipe, plain = tmp_path / "pipe", tmp_path / "plain.csv"
    os.mkfifo(pipe)
    plain.write_bytes(b"\xef\xbb\xbfx,y\r\n1,2\r\n")
    assert read_text(plain) == "x,y\r\n1,2\r\n" and read_bytes(plain, 13) == plain.read_bytes()
    with pytest.raises(TooLong, match="more than 12 bytes"):
        read_bytes(plain, 12)
    for path in (pipe, tmp_path, "/dev/zero", tmp_path / "nothing", "a\0b"):
        for reader in (lambda p: read_bytes(p, 100), read_text, require_regular):
            with pytest.raises(InvalidRequest, match="cannot read"):
                reader(path)
    for path in (pipe, tmp_path, "/dev/zero"):
        assert main(["show", str(path)]) == main(["verify", str(path)]) == 2
        assert main(["in-context", str(plain), "--data", str(path), "--query", str(path)]) == 2
    assert "regular file" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(3))
def test_text_that_is_no_csv_is_refused_by_every_reader(tmp_path, capsys, seed):
    rng = random.Random(seed)
    field = rng.choice(["x", "1", "\0"]) * rng.randint(140_000, 300_000)
    path = tmp_path / "long.csv"
    path.write_text(rng.choice(["", "x,y\n", "x,y\n1,2\n"]) + rng.choice([field, f'"{field}', f"1,{field}"]) + "\n")
    keys = ["retrieve", "x*y", "--left", "x=0:1", "--right", "y=0:1", "--eps", "0.1", "--keys"]
    for command in (["rank-of", "--eps", "1"], ["embed-dim"], ["in-context", "ridge", "--eps", "1", "--data"], keys):
        assert main([*command, str(path)]) == 2
        assert "fault" not in capsys.readouterr().err


def test_examples_are_read_once_from_standard_input_too(tmp_path, capsys, monkeypatch):
    rng = random.Random(1)
    rows = [f"{rng.gauss(0, 1)},{rng.gauss(0, 1)},{rng.gauss(0, 1)}" for _ in range(rng.randint(8, 12))]
    text = "\n".join(["a, b, y", *rows])
    path, query = tmp_path / "train.csv", tmp_path / "query.csv"
    path.write_text(text)
    query.write_text("a,b\n0.5,-0.25\n")
    command = ["in-context", "ridge", "--eps", "1e-2", "--query", str(query), "--data"]
    assert main([*command, str(path)]) == 0
    from_file = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main([*command, "-"]) == 0
    assert capsys.readouterr().out == from_file


def test_a_file_past_its_limit_is_refused_by_its_length(tmp_path):
    path = tmp_path / "sparse"
    with open(path, "wb") as stream:
        stream.truncate(random.Random(3).randint(1 << 40, 1 << 42))
    with pytest.raises(TooLong, match="more than"):
        read_bytes(path, 1 << 39)
    assert main(["verify", str(path)]) == main(["embed-dim", str(path)]) == 2


@pytest.mark.parametrize(
    "place, why", [("pipe", "a device or a pipe"), ("no/f", "there is no folder"), (".", "a folder")]
)
def test_no_writer_takes_the_place_of_a_device_or_begins_its_work(place, why, tmp_path, monkeypatch, capsys):
    """A rename onto /dev/null would leave a file in its place. A pipe stands for all devices here."""
    os.mkfifo(tmp_path / "pipe")
    net, file, path = attnfun.compile("x", (0, 1), 0.1), str(tmp_path / "n"), tmp_path / place
    net.save(file)
    for write in (net.save, lambda p: net.export(p, "numpy"), lambda p: write_whole(p, b"")):
        with pytest.raises(InvalidRequest, match=why):
            write(path)
    monkeypatch.setattr("attnfun.verbs.load", lambda *_: pytest.fail("the work was begun"))
    for command in (
        ["export", file, "--to", "tex", "-o"],
        ["eval", file, "--at", "x=0", "-o"],
        ["show", file, "--png"],
    ):
        assert main([*command, str(path)]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert why in said
    assert (tmp_path / "pipe").is_fifo() and sorted(one.name for one in tmp_path.iterdir()) == ["n", "pipe"]


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to("there")
    for text in (b"new", b"newer"):
        assert write_whole(tmp_path / "link", text) == str(tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_bytes() == text


@pytest.mark.parametrize("name", ["a\0b.png", "a" * 300 + ".png"])
def test_a_name_that_no_file_can_have_is_refused_in_one_sentence(name, tmp_path):
    pytest.importorskip("matplotlib")
    net = attnfun.compile("x", (0, 1), 0.1)
    for write in (net.save, net.plot):
        with pytest.raises(InvalidRequest, match=r"^cannot write '"):
            write(tmp_path / name)


def pictures():
    for module in pkgutil.iter_modules(attnfun.plots.__path__):
        found = importlib.import_module(f"attnfun.plots.{module.name}")
        for name, function in inspect.getmembers(found, inspect.isfunction):
            if function.__module__ == found.__name__ and (name == "figure" or name.startswith("draw")):
                yield pytest.param(function, id=f"{module.name}.{name}")


@pytest.mark.parametrize("draw", list(pictures()))
def test_every_picture_without_matplotlib_is_refused(draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidRequest, match="pip install matplotlib"):
        draw(*(None for p in inspect.signature(draw).parameters.values() if p.default is p.empty))


def test_a_picture_is_refused_before_the_work(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["compile", "sin(x)", "--domain", "x=0:1", "--eps", "0.1", "--png", "a.png"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
