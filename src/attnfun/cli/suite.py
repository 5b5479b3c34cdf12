"""The suite command: every row of CSV files of targets, compiled and proved in parallel; a table, a summary, a file.

A report may be compared with an earlier one, and is written as CSV, JSON or Markdown. Until it is written, its rows lie
beside it in FILE.rows: a line for what was asked, then a line for each row, on disk the moment it is done. So a run
that was stopped, in whatever way, goes on with --resume. A row is used again only for the same formula on the same
domain.
"""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnfun.cli.derive import Answer
from attnfun.cli.records import model_record
from attnfun.cli.render import clean, failure, number
from attnfun.errors import InvalidRequest, require
from attnfun.files import TEXT_LIMIT, Table, read_bytes, read_text, write_whole
from attnfun.language.numbers import at_least, at_most

if TYPE_CHECKING:
    from attnfun.lab.suite import Case, Row

SHIPPED = Path(__file__).parent.parent / "data" / "suites"
GOOD = ("proved", "conditional", "sampled")
COLUMNS = (
    *("name", "status", "error", "error_low", "slack", "eps", "method"),
    *("layers", "heads", "rank", "keys", "parameters", "seconds"),
)
SIZES = ("keys", "heads", "layers", "parameters", "seconds", "slack")
CHANGES = ("was", "change", "keys_ratio", "seconds_ratio")
FORMATS = (".csv", ".json", ".md")
BESIDE = ".rows"
MOST_SHOWN = 300
SETTINGS = ("eps", "relative", "dtype", "method")
_NUMBERS = set(COLUMNS) - {"name", "status", "method"}


def compiled(
    tables: list[str],
    eps: float = 1e-6,
    only: str | None = None,
    jobs: int | None = None,
    timeout: float | None = None,
    cluster: str | None = None,
    output: str | None = None,
    against: str | None = None,
    resume: bool = False,
    progress: Any = None,
    **options: Any,
) -> Answer:
    """A row a target, their summary, and what changed since an earlier run."""
    from attnfun.lab.suite import run_suite

    require(jobs is None or jobs >= 1, f"--jobs {jobs}: at least one worker process is needed")
    require(jobs is None or cluster is None, "--jobs counts processes of this machine: leave it out with --cluster")
    require(timeout is None or 0 < timeout < 1e6, f"--timeout {timeout}: give a positive number of seconds below 1e6")
    require(not output or Path(output).suffix in FORMATS, f"--output {output!r}: the name must end in .csv, .json, .md")
    require(output or not resume, "--resume goes on with the rows of an earlier --output: name it")
    earlier = read_report(against) if against else None
    cases = select([case for table in tables for case in read_suite(table)], only)
    options |= {"eps": eps}
    settings = clean(options)
    start = time.perf_counter()
    kept = _kept(output, settings) if resume and output else ()
    rows = Rows(output and output + BESIDE, settings, cases, kept)
    left = [case for case in cases if case not in rows]

    def news(case: Case, row: Row) -> None:
        rows.add(case, {"suite": case["suite"], **row, "asked": _asked(case)})
        progress(f"{len(rows)} of {len(cases)} · {case['name']}", len(rows) / len(cases))

    try:
        run_suite(left, options, model_record, _failure, jobs=jobs, cluster=cluster, timeout=timeout, progress=news)
    except KeyboardInterrupt:
        if not (len(rows) and output):
            raise
        done = f"{len(rows)} of {len(cases)} rows are in {output}{BESIDE}"
        raise KeyboardInterrupt(f"{done}, and --resume goes on with the others") from None
    found = reported(rows) | settings | {"wall_seconds": round(time.perf_counter() - start, 3)}
    if earlier is not None:
        found = compare(found, earlier, str(against))
    if output:
        write_whole(Path(output), (part.encode() for part in written(found, Path(output).suffix)))
        with suppress(PermissionError):  # where a file that is open cannot be removed
            Path(output + BESIDE).unlink()
    return Answer(found, said=_said(found, output))


def reported(rows: Iterable[Row]) -> dict[str, Any]:
    """The rows with their summary, and one a suite where there are several."""
    suites = list(dict.fromkeys(row["suite"] for row in rows))
    summary = summarise(rows)
    if len(suites) > 1:
        summary["suites"] = {suite: summarise(row for row in rows if row["suite"] == suite) for suite in suites}
    return {"rows": rows, "summary": summary, "suite": ", ".join(suites)}


def _asked(case: Case) -> tuple[str, ...]:
    return tuple(case[name] for name in ("suite", "name", "formula", "domain", "norm") if case.get(name))


class Rows:
    """The rows of the cases that are done, in the cases' order. They lie in a file, one a line, on disk the moment
    they are added: memory holds where each line begins. Without a path the file has no name.
    """

    def __init__(self, path: str | None, settings: dict[str, Any], cases: Sequence[Case], kept: Iterable[Row]) -> None:
        if path is not None:
            write_whole(path, map(_line, chain([settings], kept)))
        self._file: Any = tempfile.TemporaryFile() if path is None else open(path, "r+b")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        at, place = dict[tuple[str, ...], int](), len(self._file.readline())
        for line in self._file:
            at[tuple(json.loads(line)["asked"])] = place
            place += len(line)
        self._cases = cases
        self._at = {id(case): at[_asked(case)] for case in cases if _asked(case) in at}

    def add(self, case: Case, row: Row) -> None:
        self._at[id(case)] = self._file.seek(0, os.SEEK_END)
        self._file.write(_line(row))
        self._file.flush()

    def __contains__(self, case: Case) -> bool:
        return id(case) in self._at

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[Row]:
        for case in self._cases:
            if case in self:
                self._file.seek(self._at[id(case)])
                yield json.loads(self._file.readline())

    def tolist(self) -> list[Row]:
        return list(self)


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(clean(record), ensure_ascii=False) + "\n").encode()


def _kept(output: str, settings: dict[str, Any]) -> Iterator[Row]:
    """The rows that an earlier run has left, if it asked for the same: beside the output, or in a .json of it."""
    path = output + BESIDE if Path(output + BESIDE).is_file() else output
    if path == output and not (output.endswith(".json") and Path(output).is_file()):
        return
    if path == output:
        earlier = read_report(path)
        rows = iter(earlier["rows"])
    else:
        rows = _whole_lines(read_bytes(path, TEXT_LIMIT))
        earlier = next(rows, settings)
    other = [name for name in settings if earlier.get(name) != settings[name]]
    require(not other, f"--resume: {path} was made with another {' and '.join(other)}; name another --output")
    yield from (row for row in rows if "asked" in row)


def _whole_lines(data: bytes) -> Iterator[Row]:
    for line in data.split(b"\n"):  # and at no other end of a line, which a name may hold
        with suppress(ValueError):  # a line that a killed run has left half, in the middle of a letter perhaps
            yield json.loads(line)


def read_suite(name: str) -> list[Case]:
    """The cases of a CSV file, or of a shipped suite where no file has that name; each knows its suite."""
    shipped = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = name
    if name in shipped and not Path(name).is_file():
        path = str(SHIPPED / f"{name}.csv")
    elif name != "-" and not Path(name).exists() and not Path(name).suffix:
        raise InvalidRequest(f"{name!r}: no such file, and no shipped suite ({', '.join(shipped)})")
    suite = Path(path).stem if path != "-" else "stdin"
    table = Table.read(path)
    names = ("name", "formula", "domain", *(("norm",) if "norm" in table.header else ()))
    return [dict(zip(names, row), suite=suite) for _, row in table.picked(names)]


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
        names = ", ".join(case["name"] for case in cases[:8]) or "none"
        raise InvalidRequest(f"--only {only!r} leaves no row of {names}" if only else "the suite has no rows")
    return chosen


def _said(report: dict[str, Any], output: str | None) -> dict[str, Any]:
    """What the page says besides the rows: refusals, a sentence a suite, one about all, and one about what changed.

    Of more rows than a person reads it shows none, if a file has them."""
    summary = report["summary"]
    if output and len(report["rows"]) > MOST_SHOWN:
        return {"rows": [], "done": sentence(summary), "kept": f"{len(report['rows'])} rows are in {output}"}
    refused = [{"name": row["name"], "why": why(row)} for row in report["rows"] if row["status"] not in GOOD]
    each = [f"{suite}: {sentence(one)}" for suite, one in summary.get("suites", {}).items()]
    compared = comparison_sentence(summary["against"]) if "against" in summary else None
    return {"refused": refused, "each": each, "done": sentence(summary), "compared": compared}


def _failure(error: BaseException) -> Row:
    return dict(clean(failure(error)))


# ---------------------------------------------------------------- summaries


def summarise(rows: Iterable[Row]) -> dict[str, Any]:
    """Counts by status; median and worst of size, time and slack over the rows that have a network."""
    counts, seconds, good = Counter[str](), 0.0, {key: list[Any]() for key in SIZES}
    for row in rows:
        counts[str(row["status"])] += 1
        seconds += row["seconds"]
        for key in SIZES if row["status"] in GOOD else ():
            good[key] += [row[key]] if row.get(key) is not None else []
    total = counts.total()
    summary: dict[str, Any] = {"rows": total, **dict(sorted(counts.items())), "proved": counts["proved"]}
    summary |= {"not_proved": total - counts["proved"]}
    for key, values in good.items():
        summary |= {f"median_{key}": _median(values), f"max_{key}": max(values, default=None)}
    return summary | {"seconds": round(seconds, 3)}


def _known(rows: Sequence[Row], key: str) -> list[Any]:
    return [row[key] for row in rows if row.get(key) is not None]


def _median(values: Sequence[Any]) -> Any:
    return statistics.median(values) if values else None


# ---------------------------------------------------------------- an earlier run


def read_report(path: str) -> dict[str, Any]:
    """The report an earlier run wrote with --output (.json or .csv) or printed with --json."""
    try:
        text = read_text(path)
        if path.endswith(".csv"):
            table = csv.DictReader(io.StringIO(text))
            rows = [{k: _number(v) if k in _NUMBERS else v for k, v in row.items() if k} for row in table]
            report: Any = {"rows": rows}
        else:
            report = json.loads(text)
        if not all(isinstance(row["name"], str) and isinstance(row["status"], str) for row in report["rows"]):
            raise KeyError("name")
    except (ValueError, KeyError, TypeError, csv.Error):
        raise InvalidRequest(f"--against {path!r} holds no rows of an earlier suite (.json or .csv)") from None
    return dict(report)


def _number(text: str | None) -> float | None:
    value = float(text) if text else None
    return int(value) if value is not None and value.is_integer() else value


def compare(report: dict[str, Any], earlier: dict[str, Any], path: str) -> dict[str, Any]:
    """The report with was, change, keys_ratio and seconds_ratio in its rows, and `against` in its summary.

    Rows are matched by suite and name, or by name alone where the earlier run names no suite. Ratios are new over old.
    """
    old = {(row.get("suite"), row["name"]): row for row in earlier["rows"]}
    by_name = {name: row for (suite, name), row in old.items() if suite is None}
    rows = []
    for row in report["rows"]:
        before = old.get((row.get("suite"), row["name"])) or by_name.get(row["name"])
        rows.append({**row, **_change(row, before)})
    names = _known(rows, "name")
    against: dict[str, Any] = {"file": path, "rows": len(_known(rows, "was"))}
    for change in ("newly proved", "lost"):
        against[change.replace(" ", "_")] = [row["name"] for row in rows if row["change"] == change]
    against["missing"] = [row["name"] for row in earlier["rows"] if row["name"] not in names]
    against |= {f"median_{ratio}": _median(_known(rows, ratio)) for ratio in CHANGES[2:]}
    other = [key for key in SETTINGS if key in earlier and earlier[key] != report[key]]
    against["settings"] = {key: [earlier[key], report[key]] for key in other}
    return {**report, "rows": rows, "summary": {**report["summary"], "against": against}}


def _change(row: Row, before: Row | None) -> Row:
    if before is None:
        return {"was": None, "change": "new", "keys_ratio": None, "seconds_ratio": None}
    proved, was = row["status"] == "proved", before["status"] == "proved"
    made: Row = {"was": before["status"], "change": "" if proved == was else "newly proved" if proved else "lost"}
    both = row["status"] in GOOD and before["status"] in GOOD
    for key in ("keys", "seconds"):
        made[f"{key}_ratio"] = row[key] / before[key] if both and row.get(key) and before.get(key) else None
    return made


# ---------------------------------------------------------------- words


def sentence(summary: dict[str, Any]) -> str:
    """One line: how many are proved, and median (worst) of what they cost."""
    shown = ("keys", "heads", "layers", "seconds", "slack")
    both = [f"{key} {number(summary[f'median_{key}'])} ({number(summary[f'max_{key}'])})" for key in shown]
    done = f"{summary['proved']} of {summary['rows']} proved"
    if summary["median_keys"] is None:
        return f"{done}; {number(summary['seconds'])} s in all"
    return f"{done}; median (worst): {', '.join(both)}; {number(summary['seconds'])} s in all"


def comparison_sentence(against: dict[str, Any]) -> str:
    """One line: what was won and lost since the earlier run."""

    def listed(names: Sequence[str]) -> str:
        more = [f"and {len(names) - 12} more"] if len(names) > 12 else []
        return f" ({', '.join([*names[:12], *more])})" if names else ""

    parts = [f"against {against['file']}, {against['rows']} rows in common"]
    for key in ("newly_proved", "lost"):
        parts.append(f"{len(against[key])} {key.replace('_', ' ')}{listed(against[key])}")
    keys, seconds = (number(against[f"median_{ratio}"]) for ratio in CHANGES[2:])
    parts.append(f"median ratio new/old: keys {keys}, seconds {seconds}")
    if against["missing"]:
        parts.append(f"{len(against['missing'])} of the earlier rows not run")
    for key, (then, now) in against["settings"].items():
        parts.append(f"{key} was {number(then)}, is {number(now)}")
    return "; ".join(parts)


# ---------------------------------------------------------------- files


def written(report: dict[str, Any], suffix: str) -> Iterator[str]:
    """The report as the text of a .json, .csv or .md file, part by part."""
    yield from {".json": _json, ".csv": _csv, ".md": _markdown}[suffix](report)


def _json(report: dict[str, Any]) -> Iterator[str]:
    """One object; each of its rows has a line."""
    rest = {key: value for key, value in report.items() if key != "rows"}
    yield '{"rows": ['
    for k, row in enumerate(report["rows"]):
        yield ("," if k else "") + "\n" + json.dumps(clean(row), ensure_ascii=False)
    yield "\n],\n" + json.dumps(clean(rest), indent=2, ensure_ascii=False)[2:] + "\n"


def _csv(report: dict[str, Any]) -> Iterator[str]:
    changes = CHANGES if "against" in report["summary"] else ()
    columns = ["suite", *COLUMNS, *changes, "target", "domain", "reason", "nearest"]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n", restval="")
    writer.writeheader()
    for row in report["rows"]:
        nearest = row.get("nearest")
        writer.writerow(row | ({"nearest": json.dumps(nearest)} if nearest else {}))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _markdown(report: dict[str, Any]) -> Iterator[str]:
    """A section a suite: its summary, its table, the reasons of its refusals below."""
    kind = " of each target's range" if report["relative"] else ""
    yield f"# Suites at eps = {report['eps']:g}{kind}, {report['dtype']}\n\n{sentence(report['summary'])}.\n\n"
    compared = "against" in report["summary"]
    if compared:
        yield comparison_sentence(report["summary"]["against"]) + ".\n\n"
    suites = list(dict.fromkeys(row["suite"] for row in report["rows"]))
    columns = (*COLUMNS, *(CHANGES[1:] if compared else ()))
    for suite in suites:
        rows = (row for row in report["rows"] if row["suite"] == suite)
        yield f"## {suite}\n\n"
        if len(suites) > 1:
            yield sentence(report["summary"]["suites"][suite]) + ".\n\n"
        yield "| " + " | ".join(columns).replace("_", " ") + " |\n"
        yield "|" + "".join(" --- |" if key in ("name", "status", "method") else " ---: |" for key in columns) + "\n"
        refused = []
        for row in rows:
            cells = [_cell(row, key) for key in columns]
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
            refused += [] if row["status"] in GOOD else [f"- `{row['name']}`: {why(row)}\n"]
        yield "".join(["\n", *refused, *(["\n"] if refused else [])])


def _cell(row: Row, key: str) -> str:
    """Bounds are rounded to the safe side."""
    value, side = row.get(key), {"error": at_most, "error_low": at_least}.get(key)
    return number(value) if side is None or value is None else side(value, 3)


def why(row: Row) -> str:
    """The reason of a refusal, and the nearest request that would succeed where one is known."""
    nearest = row.get("nearest")
    tail = f" (nearest: {', '.join(f'{key}={number(value)}' for key, value in nearest.items())})" if nearest else ""
    return f"{row.get('reason') or row['status']}{tail}"
