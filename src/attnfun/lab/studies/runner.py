"""reproduce: studies in, tables, pictures and verdicts on disk out; what was done before a kill is not done again."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.lab.pool import Local, Pool, Result, connected, one_line, run_all
from attnfun.lab.studies import store, study
from attnfun.lab.studies.study import Study, Unit, Verdict

FOLDER = "attnfun-studies"
PACKAGES = {"sklearn": "scikit-learn", "distributed": "dask.distributed"}


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units; `name` is the study of the last one; `left` seconds at the pace so far, once known."""

    done: int
    total: int
    name: str = ""
    left: float | None = None

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.total} units", self.name]
        if self.left is not None:
            minutes, seconds = divmod(round(self.left), 60)
            parts.append(f"{minutes} min left" if minutes else f"{seconds} s left")
        return " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class Outcome:
    """What came of one study: its verdict, or the reasons why there is none."""

    name: str
    size: str
    folder: Path
    verdict: Verdict | None
    failures: tuple[str, ...]
    units: int
    kept: int
    rows: int
    cpu_seconds: float

    @property
    def status(self) -> str:
        return self.verdict.kind if self.verdict else "failed"

    @property
    def files(self) -> list[str]:
        return [str(self.folder / name) for name in store.OUTPUTS if (self.folder / name).is_file()]

    def to_json(self) -> dict[str, Any]:
        verdict = self.verdict.to_json() if self.verdict else None
        said = {key: getattr(self, key) for key in ("name", "size", "status", "units", "kept", "rows", "cpu_seconds")}
        return said | {"verdict": verdict, "failures": list(self.failures), "files": self.files}


def reproduce(
    names: str | Study | Iterable[str | Study] = "all",
    size: str = "quick",
    out: str | os.PathLike[str] = FOLDER,
    *,
    resume: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    skip_missing: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> list[Outcome]:
    """Run studies, all their units in one pool, and write OUT/NAME/ for each (see `store`).

    names         "all", one name, or several; a Study is taken as it is
    size          "tiny", "quick" or "full"
    resume        keep the units that an earlier run finished with this very code; otherwise all is run anew
    jobs          processes of this machine; left out, one a core
    cluster       the address of a dask scheduler that runs the units instead
    skip_missing  leave out studies whose packages are not installed, instead of refusing

    A killed run loses at most the units under way. A unit that raises or dies leaves its study without a verdict, with
    the reason in `failures`; the others go on. Missing packages are said before anything runs. With the same code, the
    same machine and any number of processes `table.json` has the same bytes. Nothing else in OUT is touched.
    """
    studies = chosen(names)
    for one in studies:
        one.parameters(size)
    if jobs is not None and not (isinstance(jobs, int) and not isinstance(jobs, bool) and jobs >= 1):
        raise af.InvalidRequest(f"jobs = {jobs!r:.30}: a whole number from 1 on is needed")
    if jobs is not None and cluster is not None:
        raise af.InvalidRequest("jobs are processes of this machine: the number of a cluster's workers is its own")
    studies = installed(studies, cluster is not None, skip_missing)
    pool = Local(jobs) if cluster is None else connected(cluster, _fingerprints, studies)
    imports = tuple(sorted({module for one in studies for module in one.needs}))
    folders = [Path(out) / one.name for one in studies]
    for one, folder in zip(studies, folders, strict=True):
        store.require_own(folder, one.name)
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(store.alone(folder))
        pairs = zip(studies, folders, strict=True)
        return _run([_Run(one, size, folder, resume, imports) for one, folder in pairs], pool, progress)


def chosen(names: str | Study | Iterable[str | Study]) -> list[Study]:
    """The studies meant, each once, in the order of asking."""
    if isinstance(names, str | Study):
        names = study.NAMES if names == "all" else [names]
    found: dict[str, Study] = {}
    for item in names:
        one = item if isinstance(item, Study) else study.find(item)
        found[one.name] = one
    if not found:
        raise af.InvalidRequest(f"no study is named; there are: {', '.join(study.NAMES)}, or all")
    return list(found.values())


def installed(studies: Sequence[Study], on_cluster: bool = False, skip_missing: bool = False) -> list[Study]:
    """The studies that can run here; what is missing is one sentence with the command that installs it."""
    for module in ("matplotlib", "joblib", *(["distributed"] if on_cluster else [])):
        if find_spec(module) is None:
            raise af.AttnfunError(_lacking("reproduce", "needs", module))
    lack = {one.name: [m for m in one.needs if find_spec(m) is None] for one in studies}
    able = [one for one in studies if not lack[one.name]]
    if len(able) == len(studies) or (skip_missing and able):
        return able
    module = next(m for modules in lack.values() for m in modules)
    lame = [name for name, modules in lack.items() if module in modules]
    sentence = _lacking(", ".join(lame), "needs" if len(lame) == 1 else "need", module)
    if able:
        sentence += f"; --skip-missing runs the others: {', '.join(one.name for one in able)}"
    raise af.AttnfunError(sentence)


def _lacking(who: str, verb: str, module: str) -> str:
    package = PACKAGES.get(module, module)
    return f"{who} {verb} {package}, which is not installed: {af.parts.how_to_install(module)}"


def _run(runs: Sequence[_Run], pool: Pool, progress: Callable[[Progress], None] | None) -> list[Outcome]:
    total, start, ran = sum(len(run.keys) for run in runs), time.monotonic(), 0
    done = sum(len(run.kept) for run in runs)
    owner = {key: run for run in runs for key in run.keys}

    def tell(name: str = "") -> None:
        if progress is not None:
            pace = (time.monotonic() - start) / ran if ran else None
            progress(Progress(done, total, name, pace * (total - done) if pace is not None else None))

    tell()
    for run in runs:
        if not run.waiting:
            run.finish()
    for result in run_all(pool, [task for run in runs for task in run.waiting.values()]):
        run = owner[result["key"]]
        run.take(result)
        done, ran = done + 1, ran + 1
        tell(run.study.name)
        if not run.waiting:
            run.finish()
    return [run.finish() for run in runs]


@dataclass(frozen=True)
class UnitTask:
    """One unit of a study, and the key under which its result is kept.

    `imports` are the packages that any unit of the run needs. A worker imports them before its first one: joblib starts
    a worker anew that has grown much since then (a leak, it thinks), and a late import of torch would look like it.
    """

    study: Study
    unit: Unit
    key: str
    imports: tuple[str, ...] = ()

    def run(self) -> Result:
        """In the worker: rows and times."""
        if self.key != store.unit_key(self.study, self.unit, store.fingerprint(self.study)):
            raise af.AttnfunError("the worker has another version of attnfun or of a package it stands on")
        for name in self.imports:
            import_module(name)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        clock, cpu = time.perf_counter(), time.process_time()
        rows = self.study.rows(self.unit)
        times = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
        return {"key": self.key, "unit": self.unit, "rows": rows, **{k: round(v, 4) for k, v in times.items()}}


def _fingerprints(studies: Sequence[Study]) -> list[str]:
    return [store.fingerprint(study) for study in studies]


class _Run:
    """One study under way: the units that wait, those that failed, and the folder."""

    def __init__(self, study: Study, size: str, folder: Path, resume: bool, imports: tuple[str, ...] = ()) -> None:
        self.study, self.size, self.folder = study, size, folder
        code = store.fingerprint(study)
        units = study.units(study.parameters(size))
        self.keys = {store.unit_key(study, unit, code): unit for unit in units}
        (folder / store.UNITS).mkdir(parents=True, exist_ok=True)
        store.clear(folder, units=not resume)
        self.kept = [key for key in self.keys if store.kept(folder, key) is not None]
        left = [(key, unit) for key, unit in self.keys.items() if key not in self.kept]
        self.waiting = {key: UnitTask(study, unit, key, imports) for key, unit in left}
        self.failures: list[str] = []
        self.outcome: Outcome | None = None
        self._describe("unfinished", None, 0, 0.0)

    def take(self, result: dict[str, Any]) -> None:
        """Write a result, or note the failure."""
        task = self.waiting.pop(result["key"])
        if "error" in result:
            self.failures.append(f"{json.dumps(task.unit)}: {result['error']}")
        else:
            store.keep(self.folder, result["key"], result)

    def finish(self) -> Outcome:
        """The files of the study, from the results on disk; done once."""
        if self.outcome is None:
            self.outcome = self._finish()
        return self.outcome

    def _finish(self) -> Outcome:
        results = [found for key in self.keys if (found := store.kept(self.folder, key)) is not None]
        if not self.failures and len(results) < len(self.keys):
            self.failures.append("results were removed or changed on disk while the study ran")
        table, verdict = store.table_of(self.study, results), None
        if not self.failures:
            store.replace(self.folder / "table.json", store.table_json(table))
            store.replace(self.folder / "table.csv", store.table_csv(self.study, table))
            store.replace(self.folder / "timings.csv", store.timings_csv(self.study, results))
            try:
                verdict = self.study.verdict(table)
                store.replace(self.folder / "figure.png", png(self.study.draw(table)))
            except Exception as error:
                verdict = None
                self.failures.append(f"the table has no verdict or no picture: {one_line(error)}")
        cpu = round(sum(result["cpu_seconds"] for result in results), 2)
        self._describe("failed" if self.failures else "finished", verdict, len(table), cpu)
        counts = (len(self.keys), len(self.kept), len(table), cpu)
        return Outcome(self.study.name, self.size, self.folder, verdict, tuple(self.failures), *counts)

    def _describe(self, status: str, verdict: Verdict | None, rows: int, cpu: float) -> None:
        said = ("name", "group", "title", "claim", "source", "full_time", "columns", "timings", "needs")
        record = {key: getattr(self.study, key) for key in said}
        record |= {"size": self.size, "parameters": self.study.parameters(self.size), "status": status}
        record |= {"verdict": verdict.to_json() if verdict else None, "failures": self.failures}
        record |= {"rerun": command(self.study.name, self.size), "versions": store.versions()}
        record |= {"units": len(self.keys), "rows": rows, "cpu_seconds": cpu}
        store.replace(self.folder / "study.json", store.strict_json(record, indent=1) + "\n")


def command(name: str, size: str) -> str:
    """What runs the study again."""
    return f"attnfun reproduce {name} --{size}" if size != "tiny" else f'attnfun.reproduce("{name}", size="tiny")'


def png(figure: Any) -> bytes:
    """The picture's bytes: no date and no version in them."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
