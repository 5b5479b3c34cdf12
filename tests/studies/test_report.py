"""The page of all studies: everything is on it, nothing comes from elsewhere, and a phone can show it."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import InvalidRequest
from attnfun.lab.studies import NAMES, tables
from attnfun.lab.studies.drawing import panels
from attnfun.lab.studies.report import Found, Laboratory, cell, read
from attnfun.lab.studies.runner import _Run, png
from attnfun.lab.studies.study import find
from studies import made_up

pytest.importorskip("matplotlib")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VOID = {"meta", "img", "br"}


def finish(study: Any, root: Path) -> Path:
    """What a run of the study leaves, without its processes; a unit that raises is its failure."""
    run = _Run(study, "tiny", root / study.name, resume=False)
    for task in list(run.waiting.values()):
        try:
            rows = study.rows(task.unit)
            run.take({"key": task.key, "unit": task.unit, "rows": rows, "seconds": 0.0, "cpu_seconds": 0.0})
        except ValueError as error:
            run.take({"key": task.key, "error": f"ValueError: {error}"})
    return run.finish().folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is whole, one of each kind that is not, and one as wide as they come."""
    root = tmp_path_factory.mktemp("studies")
    finish(made_up.study("whole"), root)
    finish(made_up.study("raising", raises=1), root)
    _Run(made_up.study("stopped"), "tiny", root / "stopped", resume=False)
    (finish(made_up.study("torn"), root) / "table.json").write_text("[\n{", "utf-8")
    wide = finish(made_up.study("wide"), root)
    record = json.loads((wide / "study.json").read_text("utf-8"))
    columns = {f"a_column_with_a_long_name_{k}": f"{'meaning' * 12} of {k}" for k in range(14)}
    record |= {
        "columns": columns,
        "timings": [],
        "title": "W" * 120,
        "parameters": {"p": list(range(100)), "q" * 60: 1},
    }
    (wide / "study.json").write_text(json.dumps(record), "utf-8")
    (wide / "table.json").write_text(json.dumps([dict.fromkeys(columns, -1.23456789e-300)] * 3), "utf-8")
    (wide / "figure.png").write_bytes(png(panels(3)[0]))
    return root


class Reader(HTMLParser):
    """Elements closed in the order in which they were opened; ids, links and pictures gathered."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs)
        assert tag not in ("script", "link", "iframe") and not any(name.startswith("on") for name in found)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if "href" in found else []
        self.images += [found] if tag == "img" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_everything_is_on_the_page_and_nothing_comes_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    path = af.report(folder, tmp_path / "page.html")
    text = path.read_text("utf-8")
    found = Reader(text)
    assert not re.search(r"(?:src|href)=\"(?!#|data:image/png;base64,)|@import|url\(", text)
    assert {"whole", "raising", "stopped", "torn", "wide"} <= set(found.ids) and len(set(found.ids)) == len(found.ids)
    assert {link.removeprefix("#") for link in found.links} <= set(found.ids)
    assert len(found.images) == 2 and all(image["alt"] for image in found.images)
    shown = [base64.b64decode((image["src"] or "").partition(",")[2]) for image in found.images]
    assert sorted(shown) == sorted((folder / name / "figure.png").read_bytes() for name in ("whole", "wide"))
    verdict = json.loads((folder / "whole" / "study.json").read_text("utf-8"))["verdict"]
    assert verdict["words"] == f"{verdict['finding']} {verdict['evidence']}".strip()
    for words in (
        verdict["finding"],
        verdict["evidence"],
        "Roots <of> numbers",
        "Square roots & their",
        "Nobody 2000.",
        "2 hold, 1 failed",
    ):
        assert words in found.words
    for words in (
        "ValueError: this one",
        "--resume goes on",
        "do not read back",
        "0.3162",
        "a number",
        "numpy",
        *NAMES,
    ):
        assert words in found.words
    assert af.report(folder).parent == folder and (folder / "report.html").read_text("utf-8") == text


def test_the_summary_has_the_verdicts_in_words(folder: Path, tmp_path: Path) -> None:
    af.report(folder, tmp_path / "page.html", markdown=tmp_path / "studies.md")
    text = (tmp_path / "studies.md").read_text("utf-8")
    assert "| [`whole`](#whole) | Roots \\<of> numbers | holds |" in text and "| `noise` |  | not run |" in text
    assert "**Claim.** Square roots & their sums are small. (Nobody 2000.)" in text and "**Failed.**" in text
    assert "\n\n**Holds.** The \\<roots> are small.\n\nThey add up to" in text  # the finding stands above the numbers
    assert "| n | root | worst |\n| ---: | ---: | --- |\n| 0 | 0 | – |\n| 0 | 0.3162 | nan |" in text


def test_numbers_of_arxiv_are_links(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "whole", tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "study.json").read_text("utf-8"))
    record |= {"claim": "As arXiv 2504.19901 has it.", "source": "Nobody, arXiv: 2306.06529."}
    (tmp_path / "whole" / "study.json").write_text(json.dumps(record), "utf-8")
    page = af.report(tmp_path, markdown=tmp_path / "s.md").read_text("utf-8")
    for number in ("2504.19901", "2306.06529"):
        assert f'<a href="https://arxiv.org/abs/{number}">{number}</a>' in page
        assert f"[{number}](https://arxiv.org/abs/{number})" in (tmp_path / "s.md").read_text("utf-8")


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)> `| **b** | [a](javascript:b) \ud800'


def test_text_from_files_is_shown_and_never_obeyed(folder: Path, tmp_path: Path) -> None:
    """Every text of every file, and the name of a folder, is markup; a page of them has no element of theirs."""
    record = json.loads((folder / "whole" / "study.json").read_text("utf-8"))
    texts = {key: HOSTILE for key in ("title", "claim", "source", "size", "full_time", "rerun", "name", "group")}
    record |= texts | {"parameters": {HOSTILE: HOSTILE}}
    record |= {"verdict": {"kind": "holds", "finding": HOSTILE, "evidence": f"{HOSTILE} arXiv 2504.19901"}}
    record |= {"columns": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    failed = record | {"status": "failed", "failures": [HOSTILE]}
    table = json.dumps([{HOSTILE: HOSTILE}, {HOSTILE: [HOSTILE]}, {}])
    for name, one in (("finished", record), ("failed", failed), ('<b onclick="a">|`x', record)):
        shutil.copytree(folder / "whole", tmp_path / "in" / name)
        (tmp_path / "in" / name / "study.json").write_text(json.dumps(one), "utf-8")
        (tmp_path / "in" / name / "table.json").write_text(table, "utf-8")
    page = af.report(tmp_path / "in", tmp_path / "page.html", markdown=tmp_path / "page.md")
    found = Reader(page.read_text("utf-8"))  # which refuses scripts, handlers and elements that are not closed
    assert len(found.images) == 2 and "<script>alert(1)</script>" in found.words
    assert found.links.count("https://arxiv.org/abs/2504.19901") == 2  # the one thing that is made of a text
    text = re.sub(r"`[^`\n]*`", "", (tmp_path / "page.md").read_text("utf-8").replace("\\`", ""))
    assert not re.search(r"(?<!\\)<(?:script|img|b )", text) and not re.search(r"(?<!\\)\]\(javascript", text)


@pytest.mark.parametrize(
    "change",
    [
        {"versions": None},
        {"versions": ["numpy"]},
        {"cpu_seconds": "1"},
        {"units": None},
        {"timings": 3},
        {"parameters": []},
        {"verdict": None},
        {"verdict": {"kind": "holds"}},
        {"verdict": {"kind": "true", "words": "so"}},
        {"status": "done"},
        {"rerun": 7},
        {"columns": ["n"]},
    ],
    ids=json.dumps,
)
def test_a_record_that_no_run_wrote_is_called_damaged(folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    shutil.copytree(folder / "whole", tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "study.json").read_text("utf-8"))
    assert [one.badge for one in read(tmp_path).found] == ["holds"]
    (tmp_path / "whole" / "study.json").write_text(json.dumps(record | change), "utf-8")
    assert [one.badge for one in read(tmp_path).found] == ["damaged"]
    af.report(tmp_path, markdown=tmp_path / "s.md")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("figure.png", None),
        ("figure.png", b""),
        ("figure.png", b"GIF89a" + bytes(100)),
        ("figure.png", "cut"),
        ("table.json", None),
        ("table.json", b"{}"),
        ("table.json", b"[1]"),
        ("table.json", b"[" * 100_000),
        ("study.json", b""),
        ("study.json", b"\xff\xfe"),
        ("study.json", b"[]"),
    ],
)
def test_a_file_that_is_missing_or_cut_is_called_damaged(
    folder: Path, tmp_path: Path, file: str, content: bytes | str | None
) -> None:
    shutil.copytree(folder / "whole", tmp_path / "whole")
    path = tmp_path / "whole" / file
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.unlink()
    assert [one.badge for one in read(tmp_path).found] == ["damaged"]
    assert "do not read back" in af.report(tmp_path).read_text("utf-8")


def test_a_folder_without_studies_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidRequest):
            read(path)


def test_numbers_are_rounded_for_reading() -> None:
    values = [None, True, 7, 12_345_678, 0.123456, 1.5e-12, float("nan"), "text"]
    assert [cell(v) for v in values] == ["–", "yes", "7", "12,345,678", "0.1235", "1.5e-12", "nan", "text"]


@pytest.mark.parametrize("value", np.random.default_rng(5).uniform(0, 1, 8).tolist())
def test_bounds_in_tables_and_sentences_are_rounded_to_the_safe_side(value: float) -> None:
    up, down = cell(value, "≤ proved"), cell(value, "≥ proved")
    (said,) = tables.read([{"proved": value, "least": value}]).say("{proved:≤4} {least:≥4} {proved:.2g}")
    assert said == f"{up} {down} {value:.2g}"
    assert Fraction(down) < Fraction(value) < Fraction(up) and cell(value) in (up, down)


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_bounds_says_on_which_side_they_are(name: str) -> None:
    bounds = {column: text for column, text in find(name).columns.items() if column in ("proved", "least", "bound")}
    assert all(text[:2] in ("≤ ", "≥ ") for text in bounds.values()), bounds


def test_the_order_is_that_of_the_registry() -> None:
    found = tuple(
        Found(name, "damaged", {"group": group, "rerun": ""}) for name, group in (("x", ""), ("y", "relations"))
    )
    groups = Laboratory(found, ("noise",)).groups()
    assert [title for title, _, _ in groups] == ["Max-affine partitions", "Relations", "Other studies"]


MEASURE = """<script>addEventListener("load", () => {
  const images = [...document.images], all = [...document.querySelectorAll("body, body *")];
  parent.postMessage({
    screen: innerWidth, page: document.documentElement.scrollWidth,
    decoded: images.filter(i => i.complete && i.naturalWidth > 100).length,
    articles: document.querySelectorAll("article").length,
    outside: all.filter(e => !e.closest(".wide *") && e.getBoundingClientRect().right > innerWidth).map(e => e.tagName),
  }, "*"); });</script></head>"""
HOST = """<!DOCTYPE html><title>host</title><script>const found = []; addEventListener("message", message => {
  found.push(message.data); if (found.length == 3) document.body.textContent = JSON.stringify(found); });</script>
<body>%s</body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_nothing_is_wider_than_the_screen_of_a_phone(folder: Path, tmp_path: Path) -> None:
    """In Chromium, all details open. The page has no script: a copy of it, in frames of each width, measures itself."""
    page = af.report(folder, tmp_path / "page.html").read_text("utf-8")
    copy, host, widths = tmp_path / "measured.html", tmp_path / "host.html", (360, 390, 1280)
    copy.write_text(page.replace("<details>", "<details open>").replace("</head>", MEASURE), "utf-8")
    frame = f'<iframe src="{copy.as_uri()}" height="800" frameborder="0" width="%d"></iframe>'
    host.write_text(HOST % "".join(frame % width for width in widths), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *flags, host.as_uri()], capture_output=True, text=True, timeout=120)
    answer = re.search(r"<body>(\[.*\])</body>", done.stdout)
    assert answer, done.stderr[-2000:]
    measured = sorted(json.loads(answer[1]), key=lambda one: one["screen"])
    right = {"decoded": 2, "articles": 5, "outside": []}
    assert measured == [{"screen": width, "page": width, **right} for width in widths]
