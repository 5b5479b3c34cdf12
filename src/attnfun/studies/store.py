"""What a run leaves on disk, and when a result that lies there may be used again.

    DIR/NAME/units/KEY.json   rows and times of one unit, written the moment it is done
    DIR/NAME/table.json       all rows in the units' order, one a line; the same bytes for the same code and machine
    DIR/NAME/table.csv        the same for a spreadsheet
    DIR/NAME/timings.csv      the columns that hold seconds, and what every unit took
    DIR/NAME/figure.png
    DIR/NAME/study.json       claim, source, size, parameters, verdict, versions, how to run it again

KEY is a hash of the unit and of everything that can change its rows: the study's own file and what it imports of this
folder, the package below it, the versions of Python and of the numerical packages. A result under another key is never
looked at. Files are replaced whole (written beside, synced, renamed), so a killed run leaves no half of one; a unit's
file that does not read back is a unit that has not run. JSON here is Python's: NaN and Infinity are written as such.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import hashlib
import io
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import attnfun
from attnfun.studies.study import Row, Study, Unit

PACKAGE = Path(attnfun.__file__).parent
OUTPUTS = ("table.json", "table.csv", "timings.csv", "figure.png", "study.json")
UNITS = "units"
_NO_PART_OF_A_UNIT = ("cli", "plots", "studies")
_VERSIONED = ("numpy", "scipy", "torch", "scikit-learn", "python-flint")


@cache
def versions() -> dict[str, str]:
    """Of Python, attnfun and the numerical packages that are installed."""
    found = {"python": platform.python_version(), "attnfun": attnfun.__version__}
    for name in _VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def fingerprint(study: Study) -> str:
    """A hash of all that can change the rows of the study's units, but the units themselves."""
    file = getattr(sys.modules.get(study.run.__module__), "__file__", None)
    return _hash([study.name, _texts(file) if file else [], _package(), versions()])


def unit_key(study: Study, unit: Unit, code: str) -> str:
    """The name of the unit's file, where `code` is the study's fingerprint."""
    return _hash([study.name, unit, code])[:32]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@cache
def _package() -> str:
    """The text of the rooms below the studies."""
    rooms = sorted(p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in _NO_PART_OF_A_UNIT)
    return _hash([[str(path.relative_to(PACKAGE)), path.read_text("utf-8")] for path in rooms])


@cache
def _texts(file: str) -> list[str]:
    """Of the file and all files of attnfun.studies that it imports, directly or not, functions' imports included."""
    found: dict[Path, str] = {}
    waiting = [Path(file)]
    while waiting:
        at = waiting.pop()
        if at in found or not at.is_file():
            continue
        found[at] = at.read_text("utf-8")
        for node in ast.walk(ast.parse(found[at])):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            inside = [name for name in names if name.startswith("attnfun.studies.")]
            waiting += [PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in inside]
    return [found[at] for at in sorted(found, key=lambda at: at.name)]


def replace(path: Path, content: str | bytes) -> None:
    """Write the file whole or not at all, on disk when this returns."""
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def clear(folder: Path, units: bool) -> None:
    """Remove what an earlier run of the study left, its units where said, and nothing else that may lie there."""
    mine = [*(folder / name for name in OUTPUTS), *folder.glob(".*.part"), *(folder / UNITS).glob(".*.part")]
    for path in mine + (list((folder / UNITS).glob("*.json")) if units else []):
        path.unlink(missing_ok=True)


def keep(folder: Path, key: str, result: Mapping[str, Any]) -> None:
    """Store a unit's result: its unit, rows, seconds, cpu_seconds."""
    record = {**result, "key": key}
    replace(folder / UNITS / f"{key}.json", json.dumps({**record, "seal": _hash(record)}) + "\n")


def kept(folder: Path, key: str) -> dict[str, Any] | None:
    """The stored result, or None where there is none or it is damaged."""
    try:
        record = json.loads((folder / UNITS / f"{key}.json").read_text("utf-8"))
        return record if record.pop("seal") == _hash(record) and record["key"] == key else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def table_of(study: Study, results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of all results without the columns that hold times."""
    return [{k: v for k, v in row.items() if k not in study.timings} for result in results for row in result["rows"]]


def table_json(table: Sequence[Row]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in table) + "\n]\n"


def table_csv(study: Study, table: Sequence[Row]) -> str:
    columns = [column for column in study.columns if column not in study.timings]
    return _csv(columns, [[row[column] for column in columns] for row in table])


def timings_csv(study: Study, results: Sequence[Mapping[str, Any]]) -> str:
    """A line a row of the table (or a unit without rows): its times, and those of its unit."""
    lines, at = [], 0
    for number, result in enumerate(results):
        unit = json.dumps(result["unit"])
        for row in result["rows"] or [{}]:
            times = [row.get(column) for column in study.timings]
            lines.append([at if row else None, number, unit, *times, result["seconds"], result["cpu_seconds"]])
            at += bool(row)
    return _csv(["row", "unit", "parameters", *study.timings, "unit_seconds", "unit_cpu_seconds"], lines)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
