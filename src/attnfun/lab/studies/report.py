"""report: one page of all studies in a folder. Reads what `reproduce` wrote, runs nothing."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.lab.studies import study
from attnfun.lab.studies.store import replace
from attnfun.lab.studies.study import SIZES, VERDICTS, Row
from attnfun.lab.studies.tables import Told

Place = str | os.PathLike[str]
PAGE = "report.html"
FINISHED, UNFINISHED, FAILED, DAMAGED = "finished", "unfinished", "failed", "damaged"
GROUP_TITLES = {"max-affine": "Max-affine partitions"}
GROUP_TITLES |= {name: name.replace("-", " ").capitalize() for name in study.GROUPS if name not in GROUP_TITLES}
GROUP_TITLES |= {"": "Other studies"}
_PNG_HEAD, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_TEXTS = ("name", "group", "title", "claim", "source", "size", "status", "full_time", "rerun")


@dataclass(frozen=True)
class Found:
    """What lies in DIR/NAME/: the record of study.json, the table and the picture, where the study is finished."""

    name: str
    status: str
    record: Mapping[str, Any]
    table: Sequence[Row] = ()
    figure: bytes | None = None

    @property
    def group(self) -> str:
        return str(self.record.get("group", "")) if self.record.get("group") in GROUP_TITLES else ""

    @property
    def finished(self) -> bool:
        return self.status == FINISHED

    @property
    def full_time(self) -> str:
        """What a full run took; nothing where this is one."""
        return "" if self.record["size"] == "full" else str(self.record["full_time"])

    @property
    def badge(self) -> str:
        """holds, holds with limits, refuted; or why there is no verdict."""
        return str(self.record["verdict"]["kind"]) if self.finished else self.status

    @property
    def evidence(self) -> str:
        return str(self.record["verdict"]["evidence"]) if self.finished else ""

    @property
    def shown(self) -> list[tuple[str, bool]]:
        """(column, whether it holds numbers) of the table, times left out."""
        names = [name for name in self.record["columns"] if name not in self.record["timings"]]
        return [(name, any(is_number(row.get(name)) for row in self.table)) for name in names]

    @property
    def finding(self) -> str:
        """What was found, in a sentence or two; or why nothing was."""
        if self.finished:
            return str(self.record["verdict"]["finding"])
        if self.status == FAILED:
            failures = [str(failure) for failure in self.record["failures"]]
            more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
            return "No verdict: " + "; ".join(failures[:3]) + more
        if self.status == UNFINISHED:
            return f"The run has not ended; {self.record['rerun']} --resume goes on with it."
        return "The files of this study do not read back: run it again."


@dataclass(frozen=True)
class Laboratory:
    """All studies found in a folder, in the order of the registry, and the names of those that were not run."""

    found: tuple[Found, ...]
    missing: tuple[str, ...]

    def groups(self) -> list[tuple[str, list[Found], list[str]]]:
        """(title, studies found, names not run) of every group that has any of them."""
        groups = []
        for group, title in GROUP_TITLES.items():
            here = [one for one in self.found if one.group == group]
            absent = [name for name in study.GROUPS.get(group, ()) if name in self.missing]
            if here or absent:
                groups.append((title, here, absent))
        return groups

    def sentence(self) -> str:
        """How many studies there are, of which size where it is one, and of which verdict."""
        badges = [one.badge for one in self.found]
        kinds = (*VERDICTS, FAILED, UNFINISHED, DAMAGED)
        counts = ", ".join(_counted(kind, badges.count(kind)) for kind in kinds if kind in badges)
        left = f"; {len(self.missing)} not run here" if self.missing else ""
        sizes = {str(one.record.get("size")) for one in self.found}
        size = f" at {min(sizes)} size" if sizes <= set(SIZES) and len(sizes) == 1 else ""
        return f"{len(badges)} {'study' if len(badges) == 1 else 'studies'}{size}: {counts}{left}."


def _counted(kind: str, count: int) -> str:
    return f"{count} {kind.replace('holds', 'hold') if count != 1 else kind}"


def read(folder: Place) -> Laboratory:
    """The studies of the folder; a study whose files are damaged is named as such, an empty folder refused."""
    root = Path(folder)
    if not root.is_dir():
        raise af.InvalidRequest(f"{str(folder)!r} is not a folder; reproduce writes one")
    names = [path.parent.name for path in root.glob("*/study.json")]
    if not names:
        raise af.InvalidRequest(f"{str(folder)!r} has no studies: attnfun reproduce NAME --out {folder} writes some")
    order = {name: place for place, name in enumerate(study.NAMES)}
    names.sort(key=lambda name: (order.get(name, len(order)), name))
    missing = tuple(name for name in study.NAMES if name not in names)
    return Laboratory(tuple(_read(root / name) for name in names), missing)


def _read(folder: Path) -> Found:
    name = folder.name
    home = next((group for group, names in study.GROUPS.items() if name in names), "")
    try:
        return Found(name, *_whole(folder, home))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Found(name, DAMAGED, {"group": home, "title": "", "rerun": f"attnfun reproduce {name}"})


def _whole(folder: Path, home: str) -> tuple[str, Mapping[str, Any], Sequence[Row], bytes | None]:
    """(status, record, table, figure), every part of the kind that the page takes it for; else an exception."""
    record = json.loads((folder / "study.json").read_text("utf-8"))
    _require(all(isinstance(record[key], str) for key in _TEXTS) and isinstance(record["columns"], dict))
    record["group"] = home or record["group"]
    if record["status"] != FINISHED:
        _require(record["status"] in (UNFINISHED, FAILED) and isinstance(record["failures"], list))
        return record["status"], record, (), None
    said = record["verdict"]
    _require(said["kind"] in VERDICTS and all(isinstance(said[key], str) for key in ("finding", "evidence")))
    _require(isinstance(record["parameters"], dict) and isinstance(record["versions"], dict))
    _require(isinstance(record["timings"], list) and all(is_number(record[key]) for key in ("units", "cpu_seconds")))
    table = json.loads((folder / "table.json").read_text("utf-8"))
    _require(isinstance(table, list) and all(isinstance(row, dict) for row in table))
    figure = (folder / "figure.png").read_bytes()
    _require(figure.startswith(_PNG_HEAD) and figure.endswith(_PNG_END) and len(figure) > 40)
    return FINISHED, record, table, figure


def _require(true: bool) -> None:
    if not true:
        raise ValueError("not what a run writes")


def report(folder: Place, out: Place | None = None, *, markdown: Place | None = None) -> Path:
    """Write one self-contained HTML page (default: FOLDER/report.html) of all studies in the folder; its path.

    `markdown` names a file for a summary in words and numbers, without pictures.
    """
    from attnfun.lab.studies.page import page, summary

    found = read(folder)
    path = Path(out) if out is not None else Path(folder) / PAGE
    replace(path, page(found).encode("utf-8", "replace"))  # names of files need not be text
    if markdown is not None:
        replace(Path(markdown), summary(found).encode("utf-8", "replace"))
    return path


def cell(value: Any, meaning: str = "") -> str:
    """A value of a table, rounded for reading: 4 digits, of a bound to the safe side; – where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{Told(value):{meaning[0]}4}" if meaning[:1] in ("≤", "≥") else f"{value:.4g}"
    return str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
