"""Pipes that close, files that are none, pictures without matplotlib."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import pytest

import attnfun.plots
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.files import TooLong, read_bytes, read_text, require_regular

RUN = [sys.executable, "-c", "import sys; from attnfun.cli import main; sys.exit(main())"]


@pytest.mark.parametrize("arguments", [["--help"], ["compile", "sin(", "--domain", "x=0:1", "--eps", "0.1", "--json"]])
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
