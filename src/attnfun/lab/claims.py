"""CLAIMS.md, from the code: what is proved, conditional, tested, sampled, open.

What is proved is read from docstrings, which state every construction and every method of proof; hypotheses are those
of certificates made here; the rest, which no code can know about itself, is listed in `claims.toml`.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.page import template

PACKAGE = Path(af.__file__).parent
THEOREM = ("Statement", "Source", "Size", "Bound", "Failure mode")
_LABEL = re.compile(
    r"(?:^|(?<=\n)|(?<= {2}))(Statement|Source|Construction|Derivation|Size|Bound|L\^p|Failure modes?|Example)"
    r"(?: \([^)]*\))?[.:]\s"
)


def docstrings() -> dict[Path, str]:
    """Of every module, in the alphabet's order."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in files}


def methods() -> dict[Path, str]:
    """The modules whose docstring begins with “Method”: each offers a way to prove."""
    return {path: doc for path, doc in docstrings().items() if doc.startswith("Method ")}


def constructions() -> dict[Path, str]:
    """The modules of kinds whose docstring is a whole theorem: each builds networks."""
    kinds = PACKAGE / "kinds"
    return {p: doc for p, doc in docstrings().items() if kinds in p.parents and set(THEOREM) <= set(labelled(doc))}


def labelled(doc: str) -> dict[str, str]:
    """The parts of a docstring that begin with a label such as “Statement.” or “Failure mode:”, by label."""
    places = list(_LABEL.finditer(doc))
    ends = [m.start() for m in places[1:]] + [len(doc)]
    return {m.group(1).removesuffix("s"): doc[m.end() : end].strip() for m, end in zip(places, ends, strict=False)}


def hypotheses(dtype: str) -> tuple[str, ...]:
    """What a certificate of one head rests on; taken from one, made here."""
    return af.compile("sin(x)", "x=0:1", 0.1, method="bernstein", dtype=dtype).certificate.hypotheses


def black_box_hypotheses() -> tuple[str, ...]:
    """What a certificate about an untraceable function adds to them."""

    def opaque(x: Any) -> Any:
        return np.interp(np.asarray(x, dtype=np.float64), (-1.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    certificate = af.compile(opaque, domain={"x": (-1.0, 1.0)}, eps=1.5, lipschitz=1.0).certificate
    assert certificate.status is af.Status.CONDITIONAL
    return tuple(h for h in certificate.hypotheses if h not in hypotheses("float64"))


def text() -> str:
    """CLAIMS.md, by the template `claims.md.jinja`."""
    here = Path(__file__)
    filters = {"flat": _flat, "column": _column, "labelled": labelled, "place": _place}
    made = template(here.with_name("claims.md.jinja"), {**filters, "heading": _heading, "blocks": _blocks})
    found = {"methods": methods(), "constructions": constructions(), "hypotheses": hypotheses}
    listed = tomllib.loads(here.with_name("claims.toml").read_text("utf-8"))
    written = made.render(**found, statuses=af.Status, theorem=THEOREM, listed=listed, black_box=black_box_hypotheses())
    return str(written).rstrip() + "\n"


def _heading(path: Path, doc: str) -> str:
    kind, *_, name = path.relative_to(PACKAGE / "kinds").with_suffix("").parts
    head = _flat(doc.partition("\n\n")[0]).removeprefix(f"{name}: ")
    named = f"`{name}`: {head}"
    return named if kind == "function" else f"{kind}, {named}"


def _place(path: Path) -> str:
    return f"src/attnfun/{path.relative_to(PACKAGE).as_posix()}"


def _flat(part: str) -> str:
    return " ".join(part.split())


def _column(part: str) -> str:
    return _flat(part).removesuffix(".").replace("|", "\\|")


def _blocks(part: str) -> str:
    """Paragraphs on one line each, indented formulas as they stand."""
    blocks = re.split(r"\n\s*\n", part)
    return "\n\n".join(block.rstrip() if block.startswith("    ") else _flat(block) for block in blocks)


if __name__ == "__main__":
    sys.stdout.write(text())
