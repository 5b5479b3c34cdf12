"""The suite command: every row of a CSV of targets, compiled and proved; a table, a summary, a file."""

from __future__ import annotations

import csv
import io
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_domain, read_eps, read_norm, read_table, unshield
from attnfun.cli.records import network_record
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
from attnfun.errors import InvalidRequest

GOOD = ("proved", "conditional", "sampled")
COLUMNS = ("name", "status", "error", "eps", "method", "layers", "heads", "rank", "keys", "parameters", "seconds")
Case = dict[str, str]


def suite_command(
    table: Annotated[str, typer.Argument(metavar="CSV", help="Columns name, formula, domain.", show_default=False)],
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
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the rows: .csv, .json or .md.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Compile and prove every target of a CSV file.

    A row that cannot be met is reported in its place, with its reason, and does not stop the others; the exit code is
    0 once every row was tried.

    \b
    [bold]Examples[/bold]
      attnfun suite classic.csv --eps 1e-6 --relative
      attnfun suite classic.csv --only 'franke,runge*' --json
      attnfun suite feynman.csv --relative --only 10 --output feynman.md
    """
    path = unshield(table)
    order, tolerance = read_norm(norm), read_eps(eps)
    check_writable(output)
    if output and Path(output).suffix not in (".csv", ".json", ".md"):
        raise InvalidRequest(f"--output {output!r}: the name must end in .csv, .json or .md")
    cases = select([row for _, row in read_table(path, ("name", "formula", "domain"))], only)
    options = dict(eps=tolerance, method=method, norm=order, relative=relative, dtype=dtype, seed=seed, accept=accept)
    from attnfun import verbs

    rows = []
    with progress_bar("suite", total=len(cases)) as progress:
        for case in cases:
            progress(case["name"])
            rows.append(run_case(verbs.compile, case, options))
            progress(step=True)
    report = {"rows": rows, "summary": summarise(rows), "suite": path, "eps": tolerance, "relative": relative}
    if output:
        Path(output).write_text(written(report, Path(output).suffix), encoding="utf-8")
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0


def select(cases: Sequence[Case], only: str | None) -> list[Case]:
    """Rows named by `only`: patterns joined by commas, or a count of rows spread evenly over the file."""
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


def run_case(build: Any, case: Case, options: dict[str, Any]) -> dict[str, Any]:
    """One row; whatever goes wrong is the row's own status and reason."""
    start = time.perf_counter()
    try:
        net = build(case["formula"], domain=read_domain([case["domain"]]), **options)
        return network_record(case["name"], net, time.perf_counter() - start)
    except Exception as error:
        blank = dict.fromkeys(("error", "layers", "heads", "rank", "keys", "parameters"))
        seconds = round(time.perf_counter() - start, 3)
        asked = {"eps": options["eps"], "method": options["method"], "seconds": seconds}
        known = {"name": case["name"], **failure(error), **blank, **asked}
        return clean({**known, "target": case["formula"], "domain": case["domain"]})


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts by status, and medians over the rows that have a network."""
    good = [row for row in rows if row["status"] in GOOD]

    def median(key: str) -> float | None:
        values = [row[key] for row in good if row.get(key) is not None]
        return statistics.median(values) if values else None

    slacks = [row["error"] / row["error_low"] for row in good if row.get("error_low") and row.get("error")]
    return {
        "rows": len(rows),
        **{status: count for status, count in sorted(Counter(str(row["status"]) for row in rows).items())},
        "proved": sum(row["status"] == "proved" for row in rows),
        "median_keys": median("keys"),
        "median_parameters": median("parameters"),
        "median_seconds": median("seconds"),
        "median_slack": statistics.median(slacks) if slacks else None,
        "seconds": round(sum(row["seconds"] for row in rows), 3),
    }


def written(report: dict[str, Any], suffix: str) -> str:
    """The report as the text of a .json, .csv or .md file."""
    if suffix == ".json":
        return json.dumps(clean(report), indent=2, ensure_ascii=False) + "\n"
    rows = report["rows"]
    if suffix == ".csv":
        buffer = io.StringIO()
        columns = [*COLUMNS, "error_low", "target", "domain", "reason"]
        writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue()
    lines = ["| " + " | ".join((*COLUMNS, "reason")) + " |", "|" + " --- |" * (len(COLUMNS) + 1)]
    for row in rows:
        cells = [*(number(row.get(key)) for key in COLUMNS), str(row.get("reason") or "")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, "", sentence(report["summary"]), ""])


def sentence(summary: dict[str, Any]) -> str:
    medians = ", ".join(f"{key} {number(summary[f'median_{key}'])}" for key in ("keys", "seconds", "slack"))
    return f"{summary['proved']} of {summary['rows']} proved; median {medians}; {number(summary['seconds'])} s in all"


def _print(report: dict[str, Any]) -> None:
    screen = console()
    shown = ["name", "status", "error", "method", "keys", "parameters", "seconds"]
    if screen.width >= 105:
        shown[3:3] = ["eps"]
        shown[5:5] = ["layers", "heads"]
    columns = [(key, "left" if key in ("name", "status", "method") else "right") for key in shown]
    body = []
    for row in report["rows"]:
        cells: list[Any] = [literal(number(row.get(key))) for key in shown]
        cells[1] = status_text(row["status"])
        body.append(cells)
    screen.print(grid(None, columns, body))
    for row in report["rows"]:
        if row["status"] not in GOOD:
            screen.print(literal(shortened(f"{row['name']}: {row.get('reason') or row['status']}", 280)), style="dim")
    screen.print(sentence(report["summary"]))
