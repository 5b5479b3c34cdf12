"""The suite command: every row of CSV files of targets, compiled and proved in parallel; a table, a summary, a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_eps, read_norm, read_table, unshield
from attnfun.cli.records import model_record
from attnfun.cli.render import (
    clean,
    console,
    failure,
    grid,
    literal,
    number,
    print_json,
    progress_bar,
    shortened,
    status_text,
)
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


def suite_command(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="CSV|NAME...",
            help="Files with columns name, formula, domain; or the shipped classic, feynman, genz.",
            show_default=False,
        ),
    ],
    eps: Annotated[str, typer.Option("--eps", metavar="NUMBER", help="The tolerance of every row.")] = "1e-6",
    relative: Annotated[bool, typer.Option("--relative", help="eps is a fraction of each target's range.")] = False,
    method: Annotated[str, typer.Option("--method", help="auto, partition, bernstein, …")] = "auto",
    norm: Annotated[str, typer.Option("--norm", help="sup, or p >= 1 for L^p.")] = "sup",
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32.")] = "float64",
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same weights.")] = 0,
    accept: Annotated[str, typer.Option("--accept", help="proved or sampled.")] = "proved",
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAMES|N", help="Names or patterns (a,b*), or N rows spread evenly.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", metavar="N", help="Worker processes (default: one a core).")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="The most time for one target.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="Run the targets on a dask scheduler's workers.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the rows: .csv, .json or .md.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="FILE", help="Compare with an earlier run (.json or .csv).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Compile and prove every target of CSV files, in parallel.

    A row that cannot be met, takes too long or takes its process down is reported in its place, with its reason, and
    does not stop the others; the exit code is 0 once every row was tried. Shipped suites: classic, feynman, genz.

    \b
    [bold]Examples[/bold]
      attnfun suite feynman --eps 1e-6 --relative --timeout 60
      attnfun suite targets.csv --only 'franke,runge*' --json
      attnfun suite classic feynman genz --relative --jobs 4 --output all.md
      attnfun suite genz --relative --output today.json --against yesterday.json
    """
    from attnfun.lab.suite import run_suite

    order, tolerance = read_norm(norm), read_eps(eps)
    if jobs is not None and jobs < 1:
        raise InvalidRequest(f"--jobs {jobs}: at least one worker process is needed")
    if jobs is not None and cluster is not None:
        raise InvalidRequest("--jobs counts processes of this machine: leave it out with --cluster")
    if timeout is not None and not 0 < timeout < 1e6:
        raise InvalidRequest(f"--timeout {timeout:g}: give a positive number of seconds below 1e6")
    check_writable(output)
    if output and Path(output).suffix not in FORMATS:
        raise InvalidRequest(f"--output {output!r}: the name must end in .csv, .json or .md")
    earlier = read_report(against) if against else None
    cases = select([case for table in tables for case in read_suite(unshield(table))], only)
    options = dict(eps=tolerance, method=method, norm=order, relative=relative, dtype=dtype, seed=seed, accept=accept)
    start = time.perf_counter()
    with progress_bar("suite", total=len(cases)) as progress:

        def news(name: str) -> None:
            progress(name, step=True)

        rows = run_suite(
            cases, options, model_record, _failure, jobs=jobs, cluster=cluster, timeout=timeout, progress=news
        )
    rows = [{"suite": case["suite"], **row} for case, row in zip(cases, rows, strict=True)]
    suites = list(dict.fromkeys(case["suite"] for case in cases))
    report: dict[str, Any] = {"rows": rows, "summary": summarise(rows), "suite": ", ".join(suites)}
    if len(suites) > 1:
        report["summary"]["suites"] = {s: summarise([row for row in rows if row["suite"] == s]) for s in suites}
    report |= {"eps": tolerance, "relative": relative, "dtype": dtype, "method": method}
    report["wall_seconds"] = round(time.perf_counter() - start, 3)
    if earlier is not None and against is not None:
        report = compare(report, earlier, against)
    if output:
        Path(output).write_text(written(report, Path(output).suffix), encoding="utf-8")
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0


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


def _print(report: dict[str, Any]) -> None:
    screen, rows = console(), report["rows"]
    shown = ["name", "status", "error", "eps", "method", "layers", "heads", "keys", "parameters", "seconds", "slack"]
    if "against" in report["summary"]:
        shown += ["change", "keys_ratio", "seconds_ratio"]
    for table in _tables(screen, shown, rows):
        screen.print(table)
    for row in rows:
        if row["status"] not in GOOD:
            screen.print(literal(shortened(f"{row['name']}: {why(row)}", 280)), style="dim")
    for suite, summary in report["summary"].get("suites", {}).items():
        screen.print(literal(f"{suite}: {sentence(summary)}"))
    screen.print(literal(sentence(report["summary"]) + f", {number(report['wall_seconds'])} s on the clock"))
    if "against" in report["summary"]:
        screen.print(literal(comparison_sentence(report["summary"]["against"])))


def _tables(screen: Any, shown: Sequence[str], rows: Sequence[Row]) -> list[Any]:
    """The columns in as few tables as the screen's width allows, the names in each: no number is ever cut."""
    from rich.measure import Measurement

    short = {"keys_ratio": "keys ×", "seconds_ratio": "seconds ×", "parameters": "params"}
    left = ("name", "status", "method", "change")

    def cell(row: Row, key: str) -> Any:
        text = number(row.get(key))
        return status_text(text) if key == "status" else literal(shortened(text, max(8, screen.width // 2)))

    def table(keys: Sequence[str]) -> Any:
        columns = [(short.get(key, key), "left" if key in left else "right") for key in keys]
        return grid(None, columns, [[cell(row, key) for key in keys] for row in rows])

    found = [[*shown[:2]]]
    for key in shown[2:]:
        wide = Measurement.get(screen, screen.options.update_width(10_000), table([*found[-1], key])).maximum
        if wide > screen.width:
            found.append([shown[0]])
        found[-1].append(key)
    return [table(keys) for keys in found]


def _failure(error: BaseException) -> Row:
    return dict(clean(failure(error)))
