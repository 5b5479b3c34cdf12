"""A laboratory as a page: HTML and CSS in one file, pictures inside, no script, nothing from elsewhere; and as Markdown
in words and numbers.

The template `page.html.jinja` escapes every text that it shows; only links to arXiv are markup that is made here. In
`studies.md.jinja` texts pass through `inline` or `code`.
"""

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.lab.studies.report import Laboratory, cell

ARXIV = re.compile(r"\b(arXiv:? )(\d{4}\.\d{4,5})\b")
_ROWS, _FEW_ROWS = 200, 16  # of a table on the page; in Markdown a longer table is named, not shown
_HERE = Path(__file__).parent
_PHONE = 330  # pixels a picture has on one
_DOTS_PER_PIXEL = 1.3  # pictures are drawn at 130 dots per inch, a page has 100 to 96


def page(laboratory: Laboratory) -> str:
    """The whole page. Readable at 360 px and without scripts; dark where the reader's system is."""
    filters: dict[str, Any] = {"base64": _base64, "linked": linked, "pixels": _pixels, "json": json.dumps}
    made = template(_HERE / "page.html.jinja", {"cell": cell, **filters}, autoescape=True)
    return str(made.render(laboratory=laboratory, most=_ROWS, phone=_PHONE))


def summary(laboratory: Laboratory) -> str:
    """Markdown: an overview, and one section per study: claim, finding, evidence, small tables, how to run it again."""
    made = template(_HERE / "studies.md.jinja", {"cell": cell, "inline": _inline, "code": _code, "anchor": _anchor})
    return str(made.render(laboratory=laboratory, most=_FEW_ROWS)).rstrip() + "\n"


def template(file: Path, filters: dict[str, Any], autoescape: bool = False) -> Any:
    """A template of Jinja2; lines that hold nothing but its statements leave no line."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise af.AttnfunError("report needs Jinja2, which is not installed: pip install jinja2") from None
    options: Any = {"undefined": StrictUndefined, "autoescape": autoescape, "trim_blocks": True, "lstrip_blocks": True}
    made = Environment(loader=FileSystemLoader(file.parent), **options)
    made.filters |= filters
    return made.get_template(file.name)


def linked(text: str) -> Any:
    """Escaped text in which every arXiv number is a link."""
    from markupsafe import Markup, escape

    return Markup(ARXIV.sub(r'\1<a href="https://arxiv.org/abs/\2">\2</a>', str(escape(text))))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _pixels(png: bytes) -> tuple[int, int]:
    width, height = (round(n / _DOTS_PER_PIXEL) for n in struct.unpack(">II", png[16:24]))
    return width, height


def _inline(text: str) -> str:
    """Text on one line that Markdown and its HTML leave as it is, but for links to arXiv."""
    text = re.sub(r"[\\`*_|<\[\]]", r"\\\g<0>", str(text))
    return ARXIV.sub(r"\1[\2](https://arxiv.org/abs/\2)", " ".join(text.split()))


def _code(text: str) -> str:
    """The same between backticks, where nothing but a backtick ends it and nothing but | ends a cell."""
    return f"`{' '.join(text.replace('`', ' ').replace('|', ' ').split())}`"


def _anchor(name: str) -> str:
    """What Markdown makes of a heading: small letters, digits and hyphens."""
    return "".join(c for c in name.lower().replace(" ", "-") if c.isalnum() or c in "-_")
