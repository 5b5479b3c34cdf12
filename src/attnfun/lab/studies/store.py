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
file that does not read back is a unit that has not run. JSON has no NaN and no infinity: table.json and study.json have
the texts "nan", "inf" and "-inf" there, as table.csv has, and null only where a column does not apply; the units, which
only this program reads, have Python's NaN and Infinity.

Whatever else lies in DIR stays. A folder DIR/NAME that somebody else has put files of these names in is refused, and so
is one into which another run is writing.
"""

import ast
import contextlib
import csv
import hashlib
import io
import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.lab.studies.study import Row, Study, Unit

PACKAGE = Path(af.__file__).parent
OUTPUTS = ("table.json", "table.csv", "timings.csv", "figure.png", "study.json")
UNITS = "units"
_KEY = "[0-9a-f]" * 32
_SCRATCH = f".attnfun-{'[0-9a-f]' * 16}.tmp"  # a file that a killed run was writing
_NO_PART_OF_A_UNIT = ("cli", "plots", "lab")
_VERSIONED = ("numpy", "scipy", "torch", "scikit-learn", "python-flint")


@cache
def versions() -> dict[str, str]:
    """Of Python, attnfun and the numerical packages that are installed."""
    found = {"python": platform.python_version(), "attnfun": af.__version__}
    for name in _VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def fingerprint(study: Study) -> str:
    """A hash of all that can change the rows of the study's units, but the units themselves."""
    file = getattr(sys.modules.get(study.run.__module__), "__file__", None)
    return _hash([study.name, _texts(file) if file else [], surroundings()])


def surroundings() -> str:
    """A hash of the package below the laboratory and of the versions it stands on."""
    return _hash([_package(), versions()])


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
    """Of the file and all files of attnfun.lab that it imports, directly or not, functions' imports included."""
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
            inside = [name for name in names if name.startswith("attnfun.lab.")]
            waiting += [PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in inside]
    return [found[at] for at in sorted(found, key=lambda at: at.name)]


def replace(path: Path, content: str | bytes) -> None:
    """Write the file whole or not at all, on disk when this returns."""
    af.parts.write_whole(path, content.encode() if isinstance(content, str) else content)


def require_own(folder: Path, name: str) -> None:
    """Refuse a folder with files that a run would replace, where no run of the study has put them."""
    taken = [file for file in OUTPUTS if (folder / file).exists()]
    if not taken or (folder / UNITS).is_dir():
        return
    try:
        if json.loads((folder / "study.json").read_text("utf-8"))["name"] == name:
            return
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    raise af.InvalidRequest(f"{folder / taken[0]} was not written by a study and would be replaced: name another --out")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The folder, made, for this run only; another one that is under way there is a refusal. Ends with the process."""
    (folder / UNITS).mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    place = os.open(folder / UNITS, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(place)
        raise af.InvalidRequest(f"another run is writing to {folder}: wait for its end or name another --out") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(place)


def clear(folder: Path, units: bool) -> None:
    """Remove what an earlier run of the study left, its units where said, and nothing else that may lie there."""
    kept = (folder / UNITS).glob(f"{_KEY}.json") if units else ()
    torn = (*folder.glob(_SCRATCH), *(folder / UNITS).glob(_SCRATCH))
    for path in (*(folder / name for name in OUTPUTS), *torn, *kept):
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
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def table_of(study: Study, results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of all results without the columns that hold times."""
    return [{k: v for k, v in row.items() if k not in study.timings} for result in results for row in result["rows"]]


def table_json(table: Sequence[Row]) -> str:
    return "[\n" + ",\n".join(strict_json(row) for row in table) + "\n]\n"


def strict_json(value: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: the texts "nan", "inf" and "-inf" in the place of these numbers."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
