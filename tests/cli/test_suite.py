"""Suites: every row survives the others; earlier runs are compared; shipped suites read as they are."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from attnfun.cli import main
from attnfun.cli.render import Grid, page
from attnfun.cli.suite import (
    COLUMNS,
    MOST_SHOWN,
    SHIPPED,
    compare,
    comparison_sentence,
    read_report,
    read_suite,
    sentence,
    summarise,
    written,
)
from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.lab.suite import run_suite
from attnfun.language import parse
from attnfun.language.domain import Box
from cli.stunts import failure, record

OPTIONS = {"eps": 0.1, "method": "auto"}


def stunts(*names: str, timeout: float | None = None, **workers: Any) -> list[Any]:
    cases = [{"name": name, "formula": "typo(" if name == "typo" else "x", "domain": "x=0:1"} for name in names]
    place = {id(case): k for k, case in enumerate(cases)}
    heard: dict[int, Any] = {}

    def news(case: dict[str, str], row: dict[str, Any]) -> None:
        assert place[id(case)] not in heard and row["name"] == case["name"]
        heard[place[id(case)]] = row

    run_suite(cases, OPTIONS, record, failure, timeout=timeout, progress=news, **workers)
    return [heard[k] for k in range(len(cases))]


def test_a_crash_costs_its_own_row_and_no_other() -> None:
    rows = stunts("fine", "exit 7", "fine", "die 11", "odd", "exit 0", "typo", "die 9", jobs=2)
    assert [row["status"] for row in rows] == ["proved", "error", "proved", *["error"] * 3, "invalid", "error"]
    reasons = [row.get("reason", "") for row in rows]
    assert "exit code 7" in reasons[1] and "SIGSEGV" in reasons[3] and "SIGKILL" in reasons[7]
    assert rows[1]["keys"] is None and rows[1]["target"] == "x"


def test_a_time_out_is_an_infeasible_row_and_the_rest_runs_on() -> None:
    rows = stunts("sleep 600", "fine", "sleep 601", "fine", timeout=2.0, jobs=2)
    assert [row["status"] for row in rows] == ["infeasible", "proved", "infeasible", "proved"]
    assert rows[0]["reason"] == "time-out after 2 s" and 2.0 <= rows[0]["seconds"] < 600


def test_workers_are_kept_and_every_target_has_a_process_of_its_own() -> None:
    rows = stunts(*["fine"] * 6, jobs=2)
    assert len({row["worker"] for row in rows}) <= 2 and len({row["pid"] for row in rows}) == 6
    one = sorted((row["began"], row["ended"]) for row in stunts(*["sleep 0.2"] * 3, jobs=1))
    assert all(a[1] <= b[0] for a, b in pairwise(one))  # one job: one at a time


def test_one_job_needs_no_joblib_and_keeps_a_process_for_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    rows = stunts("fine", "exit 7", "sleep 600", "typo", "fine", timeout=2.0, jobs=1)
    assert [row["status"] for row in rows] == ["proved", "error", "infeasible", "invalid", "proved"]
    assert {rows[0]["worker"], rows[4]["worker"]} == {os.getpid()} and rows[0]["pid"] != rows[4]["pid"]
    for workers in ({"jobs": 2}, {"jobs": None}, {"cluster": "tcp://127.0.0.1:1"}):
        with pytest.raises(AttnfunError, match=r"^joblib is not installed: pip install joblib"):
            stunts("fine", **workers)


def test_a_cluster_runs_the_targets_and_outlives_those_that_crash_or_hang() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        rows = stunts("fine", "exit 7", "sleep 600", "fine", timeout=2.0, cluster=cluster.scheduler_address)
    assert [row["status"] for row in rows] == ["proved", "error", "infeasible", "proved"]


@pytest.mark.parametrize("joblib", [True, False])
def test_nothing_is_left_running_after_an_interruption(joblib: bool) -> None:
    """The children of a suite whose process is killed, or stopped by Ctrl-C, end with it, hung ones too."""
    hide = "" if joblib else "import sys; sys.modules['joblib'] = None\n"
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs are born deaf
    code = (
        hide
        + hears
        + (
            "import sys; sys.path[:0] = {path!r}\nfrom cli.stunts import failure, record\n"
            "from attnfun.lab.suite import run_suite\n"
            "case = {{'name': 'sleep 600', 'formula': 'x', 'domain': 'x=0:1'}}\n"
            "run_suite([case], {{'eps': 0.1, 'method': 'auto'}}, record, failure, jobs=1)"
        )
    )
    process = subprocess.Popen([sys.executable, "-c", code.format(path=sys.path)])
    try:
        below: list[Any] = []
        while process.poll() is None and all(one.ppid() == process.pid for one in below):
            time.sleep(0.2)  # until a worker has a child of its own
            below = psutil.Process(process.pid).children(recursive=True)
            if below and not joblib:
                break  # the target itself
        assert process.poll() is None
        if not joblib:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) != 0
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_what_a_killed_run_has_done_is_not_done_again(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are on disk one by one; of the line that a killed run was writing, half is left."""
    monkeypatch.chdir(tmp_path)
    names = ["a\u2028b"] + [f"t{k}" for k in range(MOST_SHOWN)]
    Path("t.csv").write_text("name,formula,domain\n" + "".join(f"{name},x,x=0:1\n" for name in names))
    ran: list[str] = []

    def run(cases: Any, *rest: Any, progress: Any, **options: Any) -> None:
        for case in cases:
            if len(ran) == 7:
                ran.append("killed")
                raise MemoryError
            ran.append(case["name"])
            full = {key: 1.0 for key in COLUMNS} | row(case["name"], target="x", domain="x=0:1")
            progress(case, full)
            assert f'"{case["name"]}"' in Path(output + ".rows").read_text().split("\n")[-2]

    output = f"rows{suffix}"
    monkeypatch.setattr("attnfun.lab.suite.run_suite", run)
    with contextlib.suppress(MemoryError):
        main(["suite", "t.csv", "-o", output, "--resume"])
    assert not Path(output).exists()
    with Path(output + ".rows").open("a") as file:
        file.write('{"name": "t7", "sta')
    capsys.readouterr()
    assert main(["suite", "t.csv", "-o", output, "--resume"]) == 0
    assert sorted(ran) == sorted([*names, "killed"])  # none twice
    said = capsys.readouterr().out
    assert f"{len(names)} rows are in {output}" in said and "t5" not in said  # nobody reads so many on a screen
    assert Path(output).read_text().count("proved") >= len(names) and not Path(output + ".rows").exists()


def test_a_narrow_screen_gets_more_tables_and_loses_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = row("a_target_with_a_long_name", error=1.234e-07, parameters=123_456_789, keys=1_234_567, seconds=12.3)
    for width in (40, 60, 80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        page([Grid([*wide, "change"], [[*wide.values(), "newly proved"]])])
        text = capsys.readouterr().out
        assert "…" not in text and max(map(len, text.splitlines())) <= width
        for value in ("1.23e-07", "123,456,789", "1,234,567", "12.3", "1e-07", "1e-06"):
            assert value in text.split(), (width, value)


# reports


def row(name: str, status: str = "proved", **more: Any) -> dict[str, Any]:
    full = {"suite": "s", "name": name, "status": status, "error": 2e-7, "error_low": 1e-7, "eps": 1e-6, "slack": 2.0}
    full |= {"method": "compose", "layers": 2, "heads": 3, "rank": 2, "keys": 40, "parameters": 100, "seconds": 2.0}
    if status != "proved":
        full |= dict.fromkeys(("error", "error_low", "slack", "layers", "heads", "rank", "keys", "parameters"))
        full |= {"reason": "too | hard", "nearest": {"eps": 1e-4}}
    return full | more


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    common = {"eps": 1e-6, "relative": True, "dtype": "float64", "method": "auto"}
    return {"rows": list(rows), "summary": summarise(rows), "suite": "s", **common}


def test_the_summary_counts_and_takes_medians_over_what_was_built() -> None:
    rows = [row("a", keys=10, slack=1.0), row("b", keys=30, slack=4.0), row("c", "infeasible", seconds=100.0)]
    summary = summarise(rows)
    assert (summary["rows"], summary["proved"], summary["not_proved"], summary["infeasible"]) == (3, 2, 1, 1)
    assert (summary["median_keys"], summary["max_keys"]) == (20, 30)
    assert (summary["median_slack"], summary["max_slack"], summary["max_seconds"]) == (2.5, 4.0, 2.0)
    assert "2 of 3 proved" in sentence(summary) and "keys 20 (30)" in sentence(summary)
    assert summarise([row("c", "invalid")])["median_keys"] is None
    assert "0 of 1 proved" in sentence(summarise([row("c", "invalid")]))


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_an_earlier_run_is_compared_row_by_row(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"old{suffix}"
    old = report(row("kept", keys=80), row("won", "infeasible"), row("lost"), row("gone"))
    path.write_text("".join(written(old, suffix)), encoding="utf-8")
    new = report(row("kept", seconds=1.0), row("won"), row("lost", "error"), row("new"))
    compared = compare(new, read_report(str(path)), str(path))
    rows = {r["name"]: r for r in compared["rows"]}
    assert (rows["kept"]["keys_ratio"], rows["kept"]["seconds_ratio"]) == (0.5, 0.5)
    assert [rows[name]["change"] for name in ("kept", "won", "lost", "new")] == ["", "newly proved", "lost", "new"]
    against = compared["summary"]["against"]
    assert against["newly_proved"] == ["won"] and against["lost"] == ["lost"] and against["missing"] == ["gone"]
    assert against["rows"] == 3 and against["median_keys_ratio"] == 0.5
    said = comparison_sentence(against)
    assert "1 newly proved (won)" in said and "1 lost (lost)" in said
    for other in (".md", ".csv", ".json"):
        assert "newly proved" in "".join(written(compared, other))


def test_other_settings_of_the_earlier_run_are_said() -> None:
    compared = compare(report(row("a")), {**report(row("a")), "eps": 1e-3}, "old.json")
    assert "eps was 0.001, is 1e-06" in comparison_sentence(compared["summary"]["against"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{}]}', '{"rows": 3}', "{"])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match="--against"):
        read_report(str(path))


def test_files_hold_every_row_with_reason_and_nearest() -> None:
    full = report(row("a"), row("b", "infeasible"))
    rows = list(csv.DictReader(io.StringIO("".join(written(full, ".csv")))))
    assert [r["name"] for r in rows] == ["a", "b"] and rows[0]["slack"] == "2.0" and rows[1]["keys"] == ""
    assert json.loads(rows[1]["nearest"]) == {"eps": 1e-4} and rows[1]["reason"] == "too | hard"
    assert json.loads("".join(written(full, ".json")))["rows"][1]["nearest"] == {"eps": 1e-4}
    text = "".join(written(full, ".md"))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1 and len(table) == 4
    assert "nearest: eps=0.0001" in text


@pytest.mark.parametrize("seed", range(3))
def test_bounds_in_a_table_are_rounded_to_the_safe_side(seed: int) -> None:
    high, low = (float(v) for v in np.random.default_rng(seed).uniform(0, 1, 2))
    lines = "".join(written(report(row("a") | {"error": high, "error_low": low}), ".md")).splitlines()
    names, cells = ([cell.strip() for cell in line.split("|")] for line in lines if line.startswith(("| name", "| a")))
    shown = dict(zip(names, cells, strict=True))
    assert Fraction(shown["error"]) > Fraction(high) and Fraction(shown["error low"]) < Fraction(low)


# shipped suites


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("classic", 13), ("feynman", 50), ("genz", 25), ("large", 20)),
        *(("pieces", 31), ("jumps", 22), ("special", 14), ("composites", 52)),
    ],
)
def test_shipped_suites_can_be_read(name: str, count: int) -> None:
    cases = read_suite(name)
    assert len(cases) == len({case["name"] for case in cases}) == count
    for case in cases:
        parse(case["formula"], Box.parse(case["domain"]).names)
    assert f"| `{name}` | {count} |" in (SHIPPED / "README.md").read_text(encoding="utf-8")


def test_a_file_goes_before_a_shipped_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("classic").write_text("name,formula,domain\nmine,x,x=0:1\n")
    assert [case["name"] for case in read_suite("classic")] == ["mine"]
    with pytest.raises(InvalidRequest, match="classic, composites, feynman, genz, jumps, large, pieces, special"):
        read_suite("feynmann")


def test_a_row_that_names_a_norm_is_compiled_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "norms.csv"
    table.write_text("name,formula,domain,norm\nmean,sign(x),x=-1:1,1\nsup,sign(x),x=-1:1,sup\nplain,2*x,x=-1:1,\n")
    assert main(["suite", str(table), "--eps", "0.1", "--jobs", "1", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["mean"]["status"] == rows["plain"]["status"] == "proved"
    assert rows["sup"]["status"] in ("invalid", "infeasible") and "jump" in rows["sup"]["reason"]


# the command


def test_the_command_takes_suites_jobs_time_outs_and_an_earlier_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table, old, new = tmp_path / "s.csv", tmp_path / "old.json", tmp_path / "new.md"
    table.write_text("name,formula,domain\nline,2*x+1,x=0:1\ncurve,sin(20*x)*exp(cos(9*x)),x=-9:9\n")
    common = ["--relative", "--eps", "1e-3", "--jobs", "2"]
    assert main(["suite", str(table), "--only", "line", *common, "--output", str(old)]) == 0
    argv = ["suite", str(table), "classic", "--only", "line,curve,steep_tanh", *common, "--against", str(old)]
    capsys.readouterr()
    assert main([*argv, "--timeout", "0.001", "--output", str(new), "--json"]) == 0
    seen = capsys.readouterr()
    record = json.loads(seen.out)
    assert seen.err == "" and {r["suite"] for r in record["rows"]} == {"s", "classic"}
    assert {r["status"] for r in record["rows"]} <= {"proved", "infeasible"}
    assert record["rows"][1]["reason"] == "time-out after 0.001 s"
    assert set(record["summary"]["suites"]) == {"s", "classic"}
    assert record["summary"]["against"]["rows"] == 1 and "## classic" in new.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--jobs", "0"],
        ["--jobs", "1", "--cluster", "tcp://x:1"],
        ["--cluster", "x"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--against", "missing.json"],
        ["nothing"],
    ],
)
def test_bad_options_are_refused_before_the_work(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "classic", *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
