"""The suite command: every row of CSV files of targets, compiled and proved in parallel; a table, a summary, a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfun.cli.arguments import read_table
from attnfun.cli.derive import Answer
from attnfun.cli.records import model_record
from attnfun.cli.render import Grid, Part, clean, failure, literal, number, status_text
from attnfun.cli.suite_report import (
    FORMATS,
    GOOD,
    compare,
    comparison_sentence,
    read_report,
    sentence,
    summarise,
    why,
    written,
)
from attnfun.errors import InvalidRequest

if TYPE_CHECKING:
    from attnfun.lab.suite import Case, Row

SHIPPED = Path(__file__).parent.parent / "data" / "suites"


def compiled(
    tables: list[str],
    eps: float = 1e-6,
    relative: bool = False,
    method: str = "auto",
    norm: float | str = "sup",
    dtype: str = "float64",
    seed: int = 0,
    accept: str = "proved",
    only: str | None = None,
    jobs: int | None = None,
    timeout: float | None = None,
    cluster: str | None = None,
    output: str | None = None,
    against: str | None = None,
    resume: bool = False,
    progress: Any = None,
) -> Answer:
    """A row a target, their summary, and what changed since an earlier run."""
    from attnfun.lab.suite import run_suite

    if jobs is not None and jobs < 1:
        raise InvalidRequest(f"--jobs {jobs}: at least one worker process is needed")
    if jobs is not None and cluster is not None:
        raise InvalidRequest("--jobs counts processes of this machine: leave it out with --cluster")
    if timeout is not None and not 0 < timeout < 1e6:
        raise InvalidRequest(f"--timeout {timeout:g}: give a positive number of seconds below 1e6")
    if output and Path(output).suffix not in FORMATS:
        raise InvalidRequest(f"--output {output!r}: the name must end in .csv, .json or .md")
    if resume and not (output and output.endswith(".json")):
        raise InvalidRequest("--resume goes on with the rows of a .json file: name it by --output")
    earlier = read_report(against) if against else None
    cases = select([case for table in tables for case in read_suite(table)], only)
    options = dict(eps=eps, method=method, norm=norm, relative=relative, dtype=dtype, seed=seed, accept=accept)
    kept = _kept(output, options) if resume and output and Path(output).is_file() else {}
    named = {id(case): kept.get((case["suite"], case["name"])) for case in cases}
    done: dict[int, Row] = {place: row for place, row in named.items() if row is not None}
    left = [case for case in cases if id(case) not in done]
    start = time.perf_counter()

    def news(case: Case, row: Row) -> None:
        done[id(case)] = {"suite": case["suite"], **row}
        progress(case["name"], len(done) / len(cases))

    def report() -> dict[str, Any]:
        rows = [done[id(case)] for case in cases if id(case) in done]
        suites = list(dict.fromkeys(row["suite"] for row in rows))
        made: dict[str, Any] = {"rows": rows, "summary": summarise(rows), "suite": ", ".join(suites)}
        if len(suites) > 1:
            made["summary"]["suites"] = {s: summarise([row for row in rows if row["suite"] == s]) for s in suites}
        made |= {name: options[name] for name in _SETTINGS}
        return made | {"wall_seconds": round(time.perf_counter() - start, 3)}

    try:
        run_suite(left, options, model_record, _failure, jobs=jobs, cluster=cluster, timeout=timeout, progress=news)
    except KeyboardInterrupt:
        if not (done and output and output.endswith(".json")):
            raise
        Path(output).write_text(written(report(), ".json"), encoding="utf-8")
        rows = f"{len(done)} of {len(cases)} rows are in {output}"
        raise KeyboardInterrupt(f"{rows}, and --resume goes on with the others") from None
    found = report() if earlier is None else compare(report(), earlier, str(against))
    if output:
        Path(output).write_text(written(found, Path(output).suffix), encoding="utf-8")
    return Answer(found, parts=_page(found))


_SETTINGS = ("eps", "relative", "dtype", "method")


def _kept(path: str, options: dict[str, Any]) -> dict[tuple[str, str], Row]:
    """The rows of a run that was interrupted, if it asked for the same."""
    earlier = read_report(path)
    other = [name for name in _SETTINGS if earlier.get(name) != options[name]]
    if other:
        raise InvalidRequest(f"--resume: {path} was made with another {' and '.join(other)}; name another --output")
    return {(row.get("suite", ""), row["name"]): row for row in earlier["rows"]}


def read_suite(name: str) -> list[Case]:
    """The cases of a CSV file, or of a shipped suite where no file has that name; each knows its suite."""
    shipped = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = name
    if name in shipped and not Path(name).is_file():
        path = str(SHIPPED / f"{name}.csv")
    elif name != "-" and not Path(name).exists() and not Path(name).suffix:
        raise InvalidRequest(f"{name!r}: no such file, and no shipped suite ({', '.join(shipped)})")
    suite = Path(path).stem if path != "-" else "stdin"
    return [{**row, "suite": suite} for _, row in read_table(path, ("name", "formula", "domain"))]


def select(cases: Sequence[Case], only: str | None) -> list[Case]:
    """Rows named by `only`: patterns joined by commas, or a count of rows spread evenly over the files."""
    chosen: list[Case]
    if only is None:
        chosen = list(cases)
    elif only.strip().isdigit():
        count = min(max(int(only), 1), len(cases))
        chosen = [cases[i * len(cases) // count] for i in range(count)] if cases else []
    else:
        patterns = [part.strip() for part in only.split(",") if part.strip()]
        chosen = [case for case in cases if any(fnmatchcase(case["name"], pattern) for pattern in patterns)]
    if not chosen:
        names = ", ".join(case["name"] for case in cases[:8])
        raise InvalidRequest(
            f"--only {only!r} leaves no row; the file has {names or 'none'}" if only else "the suite has no rows"
        )
    return chosen


def _page(report: dict[str, Any]) -> list[Part]:
    rows, summary = report["rows"], report["summary"]
    shown = ["name", "status", "error", "eps", "method", "layers", "heads", "keys", "parameters", "seconds", "slack"]
    if "against" in summary:
        shown += ["change", "keys_ratio", "seconds_ratio"]
    short = {"keys_ratio": "keys ×", "seconds_ratio": "seconds ×", "parameters": "params"}
    parts: list[Part] = [
        Grid([short.get(key, key) for key in shown], [[_cell(row, key) for key in shown] for row in rows])
    ]
    parts += [f"[dim]{literal(row['name'])}: {literal(why(row))}[/]" for row in rows if row["status"] not in GOOD]
    parts += [literal(f"{suite}: {sentence(one)}") for suite, one in summary.get("suites", {}).items()]
    parts.append(sentence(summary) + f", {number(report['wall_seconds'])} s on the clock")
    return parts + ([literal(comparison_sentence(summary["against"]))] if "against" in summary else [])


def _cell(row: Row, key: str) -> Any:
    value = row.get(key)
    return status_text(str(value)) if key == "status" else literal(value) if isinstance(value, str) else value


def _failure(error: BaseException) -> Row:
    return dict(clean(failure(error)))
