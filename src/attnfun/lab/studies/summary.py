"""The same laboratory in words and numbers: a Markdown page without pictures."""

from __future__ import annotations

from attnfun.lab.studies.page import ARXIV
from attnfun.lab.studies.report import FINISHED, Found, Laboratory, cell

_ROWS = 16  # a longer table is named, not shown


def summary(laboratory: Laboratory) -> str:
    """A heading, the overview, and a section a study: claim, verdict, paragraph, small tables, how to run it again."""
    parts = [
        "# Studies\n",
        f"{laboratory.sentence()} Written by `attnfun report --markdown`; each verdict is a function of",
    ]
    parts.append("its study's table.\n")
    parts += ["| study | what it asks | verdict |", "| --- | --- | --- |"]
    for _, here, absent in laboratory.groups():
        for one in here:
            title = _inline(str(one.record.get("title", "")))
            parts.append(f"| [{_code(one.name)}](#{_anchor(one.name)}) | {title} | {one.badge} |")
        parts += [f"| `{name}` |  | not run |" for name in absent]
    parts.append("")
    for title, here, _ in laboratory.groups():
        if here:
            parts += [f"## {title}\n", *(_study(one) for one in here)]
    return "\n".join(parts).rstrip() + "\n"


def _study(one: Found) -> str:
    record = one.record
    lines = [f"### {_inline(one.name)}\n"]
    if "claim" in record:
        title = _inline(record["title"])
        lines.append(f"*{title}{'' if title.endswith('?') else '.'}*\n")
        lines.append(f"**Claim.** {_inline(record['claim'])} ({_inline(record['source']).rstrip('.')}.)\n")
    lines.append(f"**{one.badge.capitalize()}.** {_inline(f'{one.finding} {one.evidence}'.strip())}\n")
    if one.status == FINISHED:
        lines += _table(one)
        cost = f"{_inline(record['size'])}: {cell(record['units'])} units, {record['cpu_seconds']:,.0f} s of CPU"
        other = record["full_time"] if record["size"] != "full" else ""
        full = f"; a full run: {_inline(other)}" if other else ""
        lines.append(f"{_code(record['rerun'])} ({cost}{full}).\n")
    else:
        lines.append(f"{_code(record['rerun'])}\n")
    return "\n".join(lines)


def _table(one: Found) -> list[str]:
    columns = [name for name, _ in one.shown]
    if len(one.table) > _ROWS:
        return [f"Its table has {len(one.table):,} rows: {', '.join(_code(c) for c in columns)}.\n"]
    head = f"| {' | '.join(_inline(c) for c in columns)} |"
    rule = f"| {' | '.join('---:' if right else '---' for _, right in one.shown)} |"
    body = [f"| {' | '.join(_inline(cell(row.get(c))) for c in columns)} |" for row in one.table]
    return [head, rule, *body, ""]


def _inline(text: str) -> str:
    """Text on one line that Markdown and its HTML leave as it is, but for links to arXiv."""
    for mark in "\\`*_|<[]":
        text = text.replace(mark, "\\" + mark)
    return ARXIV.sub(r"\1[\2](https://arxiv.org/abs/\2)", " ".join(text.split()))


def _code(text: str) -> str:
    """The same between backticks, where nothing but a backtick ends it and nothing but | ends a cell."""
    return f"`{' '.join(text.replace('`', ' ').replace('|', ' ').split())}`"


def _anchor(name: str) -> str:
    """What Markdown makes of a heading: small letters, digits and hyphens."""
    return "".join(c for c in name.lower().replace(" ", "-") if c.isalnum() or c in "-_")
