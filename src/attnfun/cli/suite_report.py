"""What a suite says: summary, comparison with an earlier run, and the report as CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnfun.cli.render import clean, number
from attnfun.errors import InvalidRequest
from attnfun.files import read_text

if TYPE_CHECKING:
    from attnfun.lab.suite import Row

GOOD = ("proved", "conditional", "sampled")
COLUMNS = (
    *("name", "status", "error", "error_low", "slack", "eps", "method"),
    *("layers", "heads", "rank", "keys", "parameters", "seconds"),
)
CHANGES = ("was", "change", "keys_ratio", "seconds_ratio")
FORMATS = (".csv", ".json", ".md")
_NUMBERS = {"error", "error_low", "slack", "eps", "keys", "seconds", "layers", "heads", "rank", "parameters"}


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts by status; median and worst of size, time and slack over the rows that have a network."""
    good = [row for row in rows if row["status"] in GOOD]
    summary: dict[str, Any] = {
        "rows": len(rows),
        **{status: count for status, count in sorted(Counter(str(row["status"]) for row in rows).items())},
        "proved": sum(row["status"] == "proved" for row in rows),
        "not_proved": sum(row["status"] != "proved" for row in rows),
    }
    for key in ("keys", "heads", "layers", "parameters", "seconds", "slack"):
        values = [row[key] for row in good if row.get(key) is not None]
        summary[f"median_{key}"] = statistics.median(values) if values else None
        summary[f"max_{key}"] = max(values, default=None)
    return summary | {"seconds": round(sum(row["seconds"] for row in rows), 3)}


# ---------------------------------------------------------------- an earlier run


def read_report(path: str) -> dict[str, Any]:
    """The report an earlier run wrote with --output (.json or .csv) or printed with --json."""
    try:
        text = read_text(path)
        if path.endswith(".csv"):
            rows = [
                {key: _number(value) if key in _NUMBERS else value for key, value in row.items() if key}
                for row in csv.DictReader(io.StringIO(text))
            ]
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
    names = [row["name"] for row in rows]
    ratios = {
        key: [row[f"{key}_ratio"] for row in rows if row[f"{key}_ratio"] is not None] for key in ("keys", "seconds")
    }
    against = {
        "file": path,
        "rows": sum(row["was"] is not None for row in rows),
        "newly_proved": [row["name"] for row in rows if row["change"] == "newly proved"],
        "lost": [row["name"] for row in rows if row["change"] == "lost"],
        "missing": [row["name"] for row in earlier["rows"] if row["name"] not in names],
        "median_keys_ratio": statistics.median(ratios["keys"]) if ratios["keys"] else None,
        "median_seconds_ratio": statistics.median(ratios["seconds"]) if ratios["seconds"] else None,
        "settings": {
            key: [earlier[key], report[key]]
            for key in ("eps", "relative", "dtype", "method")
            if key in earlier and earlier[key] != report[key]
        },
    }
    return {**report, "rows": rows, "summary": {**report["summary"], "against": against}}


def _change(row: Row, before: Row | None) -> Row:
    if before is None:
        return {"was": None, "change": "new", "keys_ratio": None, "seconds_ratio": None}
    proved, was = row["status"] == "proved", before["status"] == "proved"
    change = "" if proved == was else "newly proved" if proved else "lost"
    both = row["status"] in GOOD and before["status"] in GOOD
    ratios = {
        f"{key}_ratio": row[key] / before[key] if both and row.get(key) and before.get(key) else None
        for key in ("keys", "seconds")
    }
    return {"was": before["status"], "change": change, **ratios}


# ---------------------------------------------------------------- words


def sentence(summary: dict[str, Any]) -> str:
    """One line: how many are proved, and median (worst) of what they cost."""
    both = [
        f"{key} {number(summary[f'median_{key}'])} ({number(summary[f'max_{key}'])})"
        for key in ("keys", "heads", "layers", "seconds", "slack")
    ]
    done = f"{summary['proved']} of {summary['rows']} proved"
    if summary["median_keys"] is None:
        return f"{done}; {number(summary['seconds'])} s in all"
    return f"{done}; median (worst): {', '.join(both)}; {number(summary['seconds'])} s in all"


def comparison_sentence(against: dict[str, Any]) -> str:
    """One line: what was won and lost since the earlier run."""

    def listed(names: Sequence[str]) -> str:
        more = [f"and {len(names) - 12} more"] if len(names) > 12 else []
        return f" ({', '.join([*names[:12], *more])})" if names else ""

    parts = [
        f"against {against['file']}, {against['rows']} rows in common",
        f"{len(against['newly_proved'])} newly proved{listed(against['newly_proved'])}",
        f"{len(against['lost'])} lost{listed(against['lost'])}",
        f"median ratio new/old: keys {number(against['median_keys_ratio'])}, "
        f"seconds {number(against['median_seconds_ratio'])}",
    ]
    if against["missing"]:
        parts.append(f"{len(against['missing'])} of the earlier rows not run")
    for key, (then, now) in against["settings"].items():
        parts.append(f"{key} was {number(then)}, is {number(now)}")
    return "; ".join(parts)


# ---------------------------------------------------------------- files


def written(report: dict[str, Any], suffix: str) -> str:
    """The report as the text of a .json, .csv or .md file."""
    if suffix == ".json":
        return json.dumps(clean(report), indent=2, ensure_ascii=False) + "\n"
    return _csv(report["rows"]) if suffix == ".csv" else _markdown(report)


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    changes = CHANGES if any("was" in row for row in rows) else ()
    columns = ["suite", *COLUMNS, *changes, "target", "domain", "reason", "nearest"]
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        nearest = row.get("nearest")
        writer.writerow(row | ({"nearest": json.dumps(nearest)} if nearest else {}))
    return buffer.getvalue()


def _markdown(report: dict[str, Any]) -> str:
    """A section a suite: its summary, its table, the reasons of its refusals below."""
    kind = " of each target's range" if report["relative"] else ""
    lines = [f"# Suites at eps = {report['eps']:g}{kind}, {report['dtype']}", "", sentence(report["summary"]) + ".", ""]
    if "against" in report["summary"]:
        lines += [comparison_sentence(report["summary"]["against"]) + ".", ""]
    suites = list(dict.fromkeys(row["suite"] for row in report["rows"]))
    for suite in suites:
        rows = [row for row in report["rows"] if row["suite"] == suite]
        lines += [f"## {suite}", ""]
        if len(suites) > 1:
            lines += [sentence(summarise(rows)) + ".", ""]
        columns = (*COLUMNS, *(CHANGES[1:] if "was" in rows[0] else ()))
        lines.append("| " + " | ".join(columns).replace("_", " ") + " |")
        lines.append("|" + "".join(" --- |" if key in ("name", "status", "method") else " ---: |" for key in columns))
        for row in rows:
            cells = [number(row.get(key)) for key in columns]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        refused = [f"- `{row['name']}`: {why(row)}" for row in rows if row["status"] not in GOOD]
        lines += ["", *refused, *([""] if refused else [])]
    return "\n".join(lines)


def why(row: Row) -> str:
    """The reason of a refusal, and the nearest request that would succeed where one is known."""
    nearest = row.get("nearest")
    tail = f" (nearest: {', '.join(f'{key}={number(value)}' for key, value in nearest.items())})" if nearest else ""
    return f"{row.get('reason') or row['status']}{tail}"
