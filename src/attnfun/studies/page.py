"""The page of a laboratory: HTML and CSS in one file, pictures inside, no script, nothing from elsewhere."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from attnfun.studies.report import FINISHED, Found, Laboratory, cell, is_number
from attnfun.studies.study import HOLDS, LIMITS, REFUTED

_CLASS = {HOLDS: "holds", LIMITS: "limits", REFUTED: "refuted"}
_ROWS = 200  # of a table on the page; the files have all
_PHONE = 330  # pixels a picture has on one
_DOTS_PER_PIXEL = 1.3  # pictures are drawn at 130 dots an inch, a page has 100 to 96


def page(laboratory: Laboratory) -> str:
    """The whole page. Readable at 360 px and without scripts; dark where the reader's system is."""
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    sections = "".join(
        f"<section>\n<h2>{escape(title)}</h2>\n{''.join(_study(one) for one in here)}</section>\n"
        for title, here, _ in laboratory.groups()
        if here
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>attnfun: what the studies say</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>What the studies say</h1>
<p>{escape(laboratory.sentence())} Each tests one claim by experiment; its verdict is a function of its table.</p>
</header>
<main>
<section id="overview">
<h2>Overview</h2>
{_overview(laboratory)}</section>
{sections}</main>
<footer><p>Written by <code>attnfun report</code>.</p></footer>
</body>
</html>
"""


def _overview(laboratory: Laboratory) -> str:
    parts = ['<table class="overview">\n']
    for title, here, absent in laboratory.groups():
        parts.append(f'<tbody>\n<tr><th colspan="2" scope="rowgroup">{escape(title)}</th></tr>\n')
        for one in here:
            subject = escape(str(one.record.get("title", "")))
            link = f'<a href="#{escape(one.name)}">{escape(one.name)}</a>'
            parts.append(f"<tr><td>{link}<br><small>{subject}</small></td><td>{_badge(one.badge)}</td></tr>\n")
        if absent:
            names = ", ".join(escape(name) for name in absent)
            parts.append(f'<tr><td class="absent">{names}</td><td>{_badge("not run")}</td></tr>\n')
        parts.append("</tbody>\n")
    return "".join(parts) + "</table>\n"


def _badge(kind: str) -> str:
    return f'<span class="badge {_CLASS.get(kind, "none")}">{escape(kind)}</span>'


def _study(one: Found) -> str:
    record = one.record
    parts = [
        f'<article id="{escape(one.name)}">\n<h3>{escape(str(record.get("title", one.name)))}</h3>\n',
        f'<p class="line"><code>{escape(one.name)}</code> {_badge(one.badge)}</p>\n',
    ]
    if "claim" in record:
        source = escape(str(record["source"]))
        parts.append(f'<blockquote><p>{escape(record["claim"])}</p><p class="source">{source}</p></blockquote>\n')
    parts.append(f"<p>{escape(one.words)}</p>\n")
    if one.status == FINISHED:
        parts += [_picture(one), _table(one), _details(one)]
    parts.append(f"<p>Run it again:</p>\n<pre><code>{escape(str(record['rerun']))}</code></pre>\n")
    parts.append('<p class="up"><a href="#overview">overview</a></p>\n</article>\n')
    return "".join(parts)


def _picture(one: Found) -> str:
    assert one.figure is not None
    width, height = (round(n / _DOTS_PER_PIXEL) for n in struct.unpack(">II", one.figure[16:24]))
    data = base64.b64encode(one.figure).decode("ascii")
    alt = escape(f"Figure of {one.name}: {one.record['title']}. Verdict: {one.badge}.")
    least = round(0.6 * width)  # below this the lettering is too small: a phone scrolls sideways instead
    hint = '<p class="swipe">The figure goes on to the right: swipe it.</p>\n' if least > _PHONE else ""
    return hint + (
        f'<div class="wide figure" tabindex="0"><img src="data:image/png;base64,{data}" alt="{alt}" width="{width}" '
        f'height="{height}" style="min-width:{least}px"></div>\n'
    )


def _table(one: Found) -> str:
    columns = [name for name in one.record["columns"] if name not in one.record["timings"]]
    aligned = {c: ' class="n"' if any(is_number(row.get(c)) for row in one.table) else "" for c in columns}
    head = "".join(f'<th scope="col"{aligned[c]}>{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{aligned[c]}>{escape(cell(row.get(c)))}</td>" for c in columns) + "</tr>\n"
        for row in one.table[:_ROWS]
    )
    more = f"<p>The first {_ROWS:,} rows; all are in table.csv.</p>\n" if len(one.table) > _ROWS else ""
    meanings = _pairs([(c, str(one.record["columns"][c])) for c in columns])
    return (
        f"<details>\n<summary>Table: {len(one.table):,} rows</summary>\n"
        f'<div class="wide" tabindex="0"><table class="rows">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n{more}{meanings}</details>\n"
    )


def _details(one: Found) -> str:
    record = one.record
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    run = [
        ("size", record["size"]),
        *(
            (name, value if isinstance(value, str) else json.dumps(value))
            for name, value in record["parameters"].items()
        ),
        ("units", cell(record["units"])),
        ("CPU", f"{record['cpu_seconds']:,.1f} s"),
        *([("a full run", record["full_time"])] if record["full_time"] and record["size"] != "full" else []),
        ("versions", versions),
    ]
    return f"<details>\n<summary>Parameters and versions</summary>\n{_pairs(run)}</details>\n"


def _pairs(pairs: Sequence[tuple[str, Any]]) -> str:
    body = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>\n" for key, value in pairs)
    return f"<dl>\n{body}</dl>\n" if pairs else ""
