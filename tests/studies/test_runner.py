"""The runner: the same bytes whatever happens on the way, and every failure named."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import attnfun
from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.lab.pool import Local
from attnfun.lab.studies import runner, store
from attnfun.lab.studies.runner import Progress, UnitTask, reproduce
from studies import made_up

pytest.importorskip("joblib")
pytest.importorskip("matplotlib")
TESTS = Path(__file__).parent.parent
SAME = ("table.json", "table.csv", "figure.png")
PATHS = os.pathsep.join([str(Path(attnfun.__file__).parent.parent), str(TESTS)])


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in SAME]


def wait_for(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def done(folder: Path) -> int:
    return len(list((folder / store.UNITS).glob("*.json")))


def test_the_table_is_that_of_a_plain_loop_and_the_same_in_every_run(tmp_path: Path) -> None:
    study, told = made_up.study(), []
    first = attnfun.reproduce(study, "tiny", tmp_path / "a", jobs=2, progress=told.append)
    second = reproduce([study, study], "tiny", tmp_path / "b", jobs=1)
    assert files(tmp_path / "a" / "made-up") == files(tmp_path / "b" / "made-up")
    assert (first[0].status, first[0].kept, first[0].rows, len(second)) == ("holds", 0, 12, 1)
    plain = [{k: v for k, v in row.items() if k != "seconds"} for row in study.table("tiny")]
    text = (tmp_path / "a" / "made-up" / "table.json").read_text("utf-8")
    strict = [{**row, "worst": row["worst"] and "nan"} for row in plain]  # JSON has no NaN, and null is another thing
    assert text.splitlines()[1:-1] == [json.dumps(row) + "," * (row is not strict[-1]) for row in strict]
    assert "nan" in (tmp_path / "a" / "made-up" / "table.csv").read_text("utf-8")
    assert first[0].verdict == study.judge(json.loads(text))
    header, *lines = (tmp_path / "a" / "made-up" / "timings.csv").read_text("utf-8").splitlines()
    assert header == "row,unit,parameters,seconds,unit_seconds,unit_cpu_seconds" and len(lines) == 12
    record = json.loads((tmp_path / "a" / "made-up" / "study.json").read_text("utf-8"))
    assert record["status"] == "finished" and record["verdict"]["kind"] == "holds" and record["versions"]["numpy"]
    assert [at.done for at in told] == list(range(7)) and told[-1] == Progress(6, 6, "made-up", 0.0)


def test_resume_keeps_what_is_whole_and_runs_the_rest_again(tmp_path: Path) -> None:
    study, folder = made_up.study(), tmp_path / "made-up"
    reproduce(study, "tiny", tmp_path, jobs=2)
    before = files(folder)
    torn, forged, gone, *_ = sorted((folder / store.UNITS).iterdir())
    torn.write_bytes(torn.read_bytes()[:-20])
    forged.write_text(forged.read_text("utf-8").replace('"root": 0.0', '"root": 1.0'), "utf-8")
    gone.unlink()
    (folder / "notes.txt").write_text("mine", "utf-8")
    assert reproduce(study, "tiny", tmp_path, jobs=2, resume=True)[0].kept == 3
    assert files(folder) == before
    assert reproduce(study, "full", tmp_path, jobs=2, resume=True)[0].kept == 6  # the first half is the same units
    assert reproduce(study, "tiny", tmp_path, jobs=2)[0].kept == 0
    assert files(folder) == before and done(folder) == 6 and (folder / "notes.txt").exists()


def test_nothing_of_the_users_is_removed_or_replaced(tmp_path: Path) -> None:
    study, folder = made_up.study(count=2), tmp_path / "made-up"
    folder.mkdir()
    (folder / "table.csv").write_text("mine", "utf-8")
    for record in (None, "[", '{"name": "another"}'):
        if record is not None:
            (folder / "study.json").write_text(record, "utf-8")
        with pytest.raises(InvalidRequest, match="not written by a study"):
            reproduce(study, "tiny", tmp_path, jobs=2)
    assert (folder / "table.csv").read_text("utf-8") == "mine" and not (folder / store.UNITS).exists()
    (folder / "table.csv").unlink()
    (folder / "study.json").unlink()
    reproduce(study, "tiny", tmp_path, jobs=2)
    theirs = [folder / ".notes.tmp", folder / store.UNITS / "results.json", folder / store.UNITS / ".attnfun-mine.tmp"]
    left = folder / ".attnfun-0123456789abcdef.tmp"
    for path in (*theirs, left):
        path.write_text("mine", "utf-8")
    (folder / "study.json").write_text('{"na', "utf-8")  # torn, but the units are there
    assert reproduce(study, "tiny", tmp_path, jobs=2)[0].kept == 0 and done(folder) == 3
    assert all(path.exists() for path in theirs) and not left.exists()


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    study = made_up.study(count=2)
    reproduce(study, "tiny", tmp_path, jobs=2)
    before = files(tmp_path / study.name)
    with store.alone(tmp_path / study.name), pytest.raises(InvalidRequest, match="another run is writing"):
        reproduce(study, "tiny", tmp_path, jobs=2)
    assert files(tmp_path / study.name) == before and done(tmp_path / study.name) == 2
    assert reproduce(study, "tiny", tmp_path, jobs=2, resume=True)[0].kept == 2


def test_what_other_programs_read_is_strict_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    rows = [{"a": float("nan"), "b": float("inf"), "c": 0.1, "d": None, "e": True}, {"a": -float("inf")}]
    found = json.loads(store.table_json(rows), parse_constant=refuse)
    assert found == [{"a": "nan", "b": "inf", "c": 0.1, "d": None, "e": True}, {"a": "-inf"}]
    assert json.loads(store.strict_json({"p": [1, (float("inf"),)]}, 1), parse_constant=refuse) == {"p": [1, ["inf"]]}


def test_results_of_other_code_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from the folder nor from a worker: the workers of this test still have the code of before."""
    study = made_up.study()
    reproduce(study, "tiny", tmp_path, jobs=2)
    monkeypatch.setattr(store, "_package", lambda: "edited")
    outcome = reproduce(study, "tiny", tmp_path, jobs=2, resume=True)[0]
    assert outcome.kept == 0 and outcome.verdict is None and len(outcome.failures) == 6
    assert all("another version of attnfun" in failure for failure in outcome.failures)
    assert not any((tmp_path / "made-up" / name).exists() for name in SAME)


def test_a_unit_that_raises_or_dies_costs_its_study_the_verdict_and_no_other(tmp_path: Path) -> None:
    kinds = {"raising": {"raises": 2}, "dying": {"dies": 1}, "sound": {}}
    studies = [made_up.study(name, count=3, **kind) for name, kind in kinds.items()]
    raising, dying, sound = reproduce(studies, "tiny", tmp_path, jobs=2)
    assert raising.failures == ('{"n": 2, "raises": 2}: ValueError: this one raises',)
    assert dying.failures == ('{"n": 1, "dies": 1}: its process died: killed, or out of memory',)
    assert sound.status == "holds" and not sound.failures
    for outcome in (raising, dying):
        record = json.loads((outcome.folder / "study.json").read_text("utf-8"))
        assert outcome.status == record["status"] == "failed" and record["verdict"] is None and outcome.rows == 4
        assert record["failures"] == list(outcome.failures) and not (outcome.folder / "table.json").exists()


def test_a_run_killed_on_the_way_resumes_to_the_same_table(tmp_path: Path) -> None:
    """SIGKILL, which nothing can catch; the workers of the dead run end by themselves."""
    script = [sys.executable, str(Path(made_up.__file__).with_name("run_made_up.py")), "made-up", "12", "0.2"]
    argv = [*script, "--jobs", "2", "--out", str(tmp_path / "killed")]
    folder, env = tmp_path / "killed" / "made-up", {**os.environ, "PYTHONPATH": PATHS}
    process = subprocess.Popen(argv, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: done(folder) >= 3)
        process.kill()
        process.wait()
        kept = done(folder)
        assert kept < 12 and json.loads((folder / "study.json").read_text("utf-8"))["status"] == "unfinished"

        def nobody_left() -> bool:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 0)
                return False
            return True

        wait_for(nobody_left)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    again = reproduce(made_up.study(count=12, sleep=0.2), "quick", tmp_path / "killed", jobs=2, resume=True)[0]
    assert again.kept == kept and again.status == "holds"
    reproduce(made_up.study(count=12), "quick", tmp_path / "whole", jobs=2)
    assert files(folder) == files(tmp_path / "whole" / "made-up")


@contextlib.contextmanager
def dask_cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and worker processes on this machine: (address, workers)."""
    file = folder / "scheduler.json"
    env = {**os.environ, "PYTHONPATH": PATHS}
    dask = [sys.executable, "-m", "dask"]
    common = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
    commands = [["scheduler", "--port", "0"], *[["worker", "--nthreads", "1", "--no-nanny"]] * workers]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with open(folder / f"dask{len(started)}.log", "wb") as log:
                argv = [*dask, *command, *common]
                started.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log, cwd=folder))
        wait_for(lambda: file.is_file() and file.stat().st_size > 0)
        yield json.loads(file.read_text("utf-8"))["address"], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cluster_gives_the_same_table_though_a_worker_is_killed_on_the_way(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    study = made_up.study(count=16, sleep=0.15)
    folder = tmp_path / "cluster" / study.name
    with dask_cluster(tmp_path, workers=2) as (address, workers):
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)

        def kill() -> None:
            wait_for(lambda: done(folder) >= 4)
            workers[0].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        (outcome,) = reproduce(study, "tiny", tmp_path / "cluster", cluster=address)
        killer.join()
        assert workers[0].wait() == -signal.SIGKILL and workers[1].poll() is None
    assert outcome.status == "holds" and outcome.units == 16 and not outcome.failures
    reproduce(made_up.study(count=16), "tiny", tmp_path / "here", jobs=2)
    assert files(folder) == files(tmp_path / "here" / study.name)


def test_what_is_not_installed_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = [made_up.study("plain"), made_up.study("trained", needs=("torch",))]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(AttnfunError) as refused:
        reproduce(studies, "tiny", tmp_path)
    said, way_out = str(refused.value).split("; ")
    assert said == "trained needs torch, which is not installed: pip install torch"
    assert way_out == "--skip-missing runs the others: plain"
    assert not list(tmp_path.iterdir())
    assert [one.name for one in runner.installed(studies, skip_missing=True)] == ["plain"]
    with pytest.raises(AttnfunError, match=r"^trained needs torch, which is not installed: pip install \S+$"):
        runner.installed(studies[1:], skip_missing=True)
    for module, package in (("matplotlib", "matplotlib"), ("distributed", '"dask[distributed]"')):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            said = rf"reproduce needs .*{module}, .* pip install {re.escape(package)}$"
            with pytest.raises(AttnfunError, match=said):
                runner.installed(studies[:1], on_cluster=True)


def test_reproduce_says_that_it_needs_joblib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(AttnfunError, match=r"^reproduce needs joblib, which is not installed: pip install \S+$"):
        reproduce(made_up.study("plain"), "tiny", tmp_path)
    assert not list(tmp_path.iterdir())


def test_impossible_requests_are_refused(tmp_path: Path) -> None:
    study = made_up.study()
    for names, options in (
        ([], {}),
        ("partition-3d", {}),
        (study, {"size": "huge"}),
        (study, {"jobs": 0}),
        (study, {"jobs": 1.5}),
        (study, {"jobs": True}),
        (study, {"cluster": ""}),
        (study, {"cluster": "a-host-without-a-port"}),
        (study, {"jobs": 2, "cluster": "tcp://127.0.0.1:1"}),
    ):
        with pytest.raises(InvalidRequest):
            reproduce(names, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_fingerprint_sees_the_files_a_study_imports(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("def f():\n    from attnfun.lab.studies.softmax_attention import interpolation_rate\n", "utf-8")
    texts = store._texts(str(file))
    here = Path(runner.__file__).parent
    wanted = (here / "study.py", here / "softmax_attention" / "interpolation_rate.py", file)
    assert {path.read_text("utf-8") for path in wanted} <= set(texts)
    assert not any("def reproduce(" in text for text in texts)


def test_no_more_processes_are_started_than_there_are_units(monkeypatch: pytest.MonkeyPatch) -> None:
    import joblib

    started: list[int] = []

    class Parallel:
        def __init__(self, n_jobs: int, **options: object) -> None:
            started.append(n_jobs)

        def __call__(self, tasks: object) -> Iterator[object]:
            return iter(())

    monkeypatch.setattr(joblib, "Parallel", Parallel)
    study = made_up.study(count=3)
    tasks = [UnitTask(study, unit, str(unit["n"])) for unit in study.units(study.parameters("tiny"))]
    for jobs in (1_000_000, 2, 1):
        list(Local(jobs).results(tasks))
    assert started == [3, 2, 2]
