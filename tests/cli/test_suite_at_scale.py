"""Suites of many rows: what was done is on disk and is not done again, and memory does not grow with the rows."""

from __future__ import annotations

import csv
import json
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import psutil
import pytest

from attnfun.cli import main
from attnfun.cli.records import model_record
from attnfun.kinds.function.verb import compile as af_compile


def quick_formulas(path: Path, count: int) -> None:
    """Most are lines, which one key computes; some have a square, a sine or a kink, and one cannot be read."""
    draw = random.Random(count)
    forms = (*["{a}*x + {b}"] * 46, "{a}*x**2 + {b}", "sin({a}*x)", "max(x, {b})")
    with path.open("w", newline="") as file:
        write = csv.writer(file).writerow
        write(("name", "formula", "domain"))
        for k in range(count):
            a, b = (round(draw.uniform(0.1, 1), 4) for _ in "ab")
            write((f"t{k}", draw.choice(forms).format(a=a, b=b) if k else "x +", "x=-1:1"))


def started(folder: Path, *more: str) -> Any:
    """The command in a process of its own that hears Ctrl-C, its output in files."""
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"import sys; {hears}; from attnfun.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", code, "suite", "t.csv", "--eps", "1e-2", "--resume", *more]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        return subprocess.Popen(argv, cwd=folder, stdout=out, stderr=err)


def lines(path: Path) -> list[str]:
    """What stands in the rows of a run that is under way, or was killed; the first is what was asked."""
    return path.read_text("utf-8", "replace").split("\n") if path.exists() else [""]


def stopped_after(process: Any, rows: Path, count: int, how: signal.Signals) -> dict[int, int]:
    """Sent the signal when there are so many rows; nothing that it had started is left. The most bytes in memory of the
    process or a worker, by the number of rows.
    """
    whole, seen = psutil.Process(process.pid), dict[int, int]()
    while process.poll() is None and max(seen, default=0) < count:
        family = [whole, *whole.children()]
        seen[len(lines(rows)) - 2] = max(one.memory_info().rss for one in family)
        time.sleep(count / 20_000)
    assert process.poll() is None
    below = whole.children(recursive=True)
    for _ in range(20):  # a signal that falls into an import of C code may be lost: one presses again
        process.send_signal(how)
        try:
            process.wait(timeout=10)
            break
        except subprocess.TimeoutExpired:
            continue
    assert not psutil.wait_procs(below, timeout=60)[1]
    return seen


def resumed(folder: Path, count: int, output: str, *more: str) -> tuple[list[Any], dict[int, int]]:
    """The rows of a suite that was stopped by Ctrl-C, killed, and then left alone: none is lost, none done twice. And
    memory by rows, until the kill.
    """
    quick_formulas(folder / "t.csv", count)
    rows, done, seen = folder / f"{output}.rows", {}, dict[int, int]()
    for share, how in ((3, signal.SIGINT), (2, signal.SIGKILL)):
        process = started(folder, "-o", output, *more)
        seen |= stopped_after(process, rows, count // share, how)
        if how is signal.SIGINT:
            assert process.returncode == 130
            assert f"rows are in {output}.rows, and --resume goes on" in (folder / "err").read_text()
        *whole, torn = lines(rows)
        assert torn == "" or how is signal.SIGKILL
        again = {row["name"]: row for row in map(json.loads, whole[1:])}
        assert len(again) == len(whole) - 1 and done.items() <= again.items()  # with the seconds of the first time
        done = again
        with rows.open("ab") as file:
            file.write('{"name": "t0", "reason": "ε'.encode()[:-1])  # as a kill may leave it
    assert count // 2 <= len(done) < count
    process = started(folder, "-o", output, "--json", *more)
    assert process.wait() == 0, (folder / "err").read_text()
    record = json.loads((folder / "out").read_text())
    assert [row["name"] for row in record["rows"]] == [f"t{k}" for k in range(count)]
    assert all(done[row["name"]] == row for row in record["rows"] if row["name"] in done)
    assert not rows.exists() and record["summary"]["rows"] == count
    return list(record["rows"]), seen


def test_a_run_that_is_stopped_and_killed_does_no_row_twice(tmp_path: Path) -> None:
    rows, _ = resumed(tmp_path, 60, "rows.json", "--jobs", "2")
    assert {row["status"] for row in rows} == {"proved", "invalid"}
    assert json.loads((tmp_path / "rows.json").read_text())["rows"] == rows


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_memory_does_not_grow_with_the_rows(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a row that is done there is its place in a file, and its sizes for the summary: less than its line of text."""
    row = json.dumps(model_record(af_compile("x", domain="x=0:1", eps=0.1), "", 0.0))

    def run(cases: Any, *_: Any, progress: Any, **__: Any) -> None:
        tracemalloc.reset_peak()  # the table has been read; its cases stay
        for case in cases:
            progress(case, json.loads(row) | {"name": case["name"], "seconds": 0.1})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnfun.lab.suite.run_suite", run)
    peaks = {}
    for count in (400, 400, 1_200):
        quick_formulas(Path("t.csv"), count)
        tracemalloc.start()
        assert main(["suite", "t.csv", "-o", f"rows{suffix}"]) == 0
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert f"1200 rows are in rows{suffix}" in capsys.readouterr().out
    held = 800 * len(row)
    assert (peaks[1_200] - peaks[400]) < held, (peaks, held)


@pytest.mark.slow
def test_ten_thousand_formulas(tmp_path: Path) -> None:
    """They are interrupted, killed and resumed; neither the process nor its workers need more than for a thousand."""
    rows, seen = resumed(tmp_path, 10_000, "rows.csv", "--jobs", "2")
    assert len(rows) == 10_000 and {row["status"] for row in rows} == {"proved", "invalid"}
    early, late = ([m for n, m in seen.items() if low < n < high] for low, high in ((300, 1_000), (4_000, 6_000)))
    assert max(late) < max(early) + 2**23, seen
