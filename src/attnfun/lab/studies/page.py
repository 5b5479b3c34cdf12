"""The page of a laboratory: HTML and CSS in one file, pictures inside, no script, nothing from elsewhere.

The template `page.html.jinja` escapes every text that it shows; only links to arXiv are markup that is made here.
"""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.lab.studies.report import Laboratory, cell

ARXIV = re.compile(r"\b(arXiv:? )(\d{4}\.\d{4,5})\b")
_ROWS = 200  # of a table on the page; the files have all
_PHONE = 330  # pixels a picture has on one
_DOTS_PER_PIXEL = 1.3  # pictures are drawn at 130 dots an inch, a page has 100 to 96


def page(laboratory: Laboratory) -> str:
    """The whole page. Readable at 360 px and without scripts; dark where the reader's system is."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise af.AttnfunError("report needs Jinja2, which is not installed: pip install 'attnfun[studies]'") from None
    made = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    made.filters |= {"base64": _base64, "cell": cell, "linked": linked, "pixels": _pixels}
    return made.get_template("page.html.jinja").render(laboratory=laboratory, most=_ROWS, phone=_PHONE)


def linked(text: str) -> Any:
    """Escaped text in which every arXiv number is a link."""
    from markupsafe import Markup, escape

    return Markup(ARXIV.sub(r'\1<a href="https://arxiv.org/abs/\2">\2</a>', str(escape(text))))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _pixels(png: bytes) -> tuple[int, int]:
    width, height = (round(n / _DOTS_PER_PIXEL) for n in struct.unpack(">II", png[16:24]))
    return width, height
