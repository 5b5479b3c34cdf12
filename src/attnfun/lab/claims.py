"""CLAIMS.md, from the code: what is proved, conditional, tested, sampled, open.

What is proved is read from docstrings, which state every construction and every method of proof; hypotheses are those
of certificates made here; the rest, which no code can know about itself, is listed in `claims.toml`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af

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
    """CLAIMS.md."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    listed = tomllib.loads(Path(__file__).with_name("claims.toml").read_text("utf-8"))
    yield "# Claims"
    yield ""
    yield "Written by `make claims` from the code: change the code, not this file. Proofs: `docs/mathematics.md`."
    yield ""
    yield "| status of a certificate | what it says |"
    yield "| --- | --- |"
    for status in af.Status:
        yield f"| {status.value} | {status.meaning} |"
    yield from ("", "## Proved", "")
    yield "Of a network with status `proved`: its error in real arithmetic, from the stored weights, by one of"
    yield ""
    yield "| method | for | declines | code |"
    yield "| --- | --- | --- | --- |"
    for path, doc in methods().items():
        name, _, scope = _flat(doc.split("\n\n")[0]).removeprefix("Method ").partition(": ")
        declines = labelled(doc).get("Failure mode", "")
        yield f"| {name} | {_cell(scope)} | {_cell(declines)} | `{_path(path)}` |"
    yield ""
    yield "plus the rounding of its evaluation (`src/attnfun/certify/rounding.py`, of MLPs"
    yield "`src/attnfun/certify/relu_rounding.py`). Lower ends are witnessed at a float64 point of the domain"
    yield "(`src/attnfun/certify/witness.py`)."
    yield ""
    yield "The constructions rest on these statements, derived in their files. No certificate relies on them."
    for path, doc in constructions().items():
        yield from _chapter(path, doc)
    yield from ("", "### Limits", "")
    yield "Of finite relations, from the relation and the certificate alone (`docs/finite-relations.md`): integer"
    yield "vectors rank exactly and obstructions exclude what they say (`src/attnfun/limits/embedding/check.py`); a"
    yield "rank is enough, or is not (`src/attnfun/limits/score_rank.py`, with singular values of"
    yield "`src/attnfun/limits/singular.py`)."
    yield ""
    yield "Of lexicographic order: the largest grid that one number ranks in a format, and the winner weight of heads"
    yield "on it, by the arguments of `src/attnfun/limits/grids.py` and `src/attnfun/kinds/lexicographic/build.py`."
    yield "Of a preorder by a continuous utility expression: all its properties (`docs/preorders.md`)."
    yield from ("", "## Conditional", "")
    yield "Hypotheses that certificates print:"
    yield ""
    for dtype in ("float64", "float32"):
        for hypothesis in hypotheses(dtype):
            yield f"- {dtype}: {hypothesis}"
    yield ""
    yield "Of a Python function that cannot be traced (declared constant 1 in this instance), status `conditional`:"
    yield ""
    for hypothesis in black_box_hypotheses():
        yield f"- {hypothesis}"
    yield from ("", "## Tested", "")
    yield "Held by tests on the cases they run, not proved."
    yield ""
    for item in listed["tested"]:
        yield f"- {item['claim']}"
        for test in item["tests"]:
            yield f"  - `{test}`"
    yield from ("", "## Sampled only", "")
    yield "Measured at finitely many points; none of it is part of a proof."
    yield ""
    for item in listed["sampled"]:
        yield f"- {item['claim']} (`{item['code']}`)"
    yield from ("", "## Open", "")
    for claim in listed["open"]:
        yield f"- {claim}"


def _chapter(path: Path, doc: str) -> Iterator[str]:
    """One construction: its statement as its docstring has it, then the rest of the theorem in a list."""
    kind, *_, name = path.relative_to(PACKAGE / "kinds").with_suffix("").parts
    head, parts = _flat(doc.split("\n\n")[0]), labelled(doc)
    named = f"`{name}`: {head.removeprefix(f'{name}: ')}"
    yield from ("", f"### {named if kind == 'function' else f'{kind}, {named}'}", "")
    yield from _blocks(parts["Statement"])
    yield ""
    for label in THEOREM[1:]:
        yield f"- {label}: {_flat(parts[label])}"
    yield f"- Code: `{_path(path)}`"


def _path(path: Path) -> str:
    return f"src/attnfun/{path.relative_to(PACKAGE).as_posix()}"


def _flat(part: str) -> str:
    return " ".join(part.split())


def _cell(part: str) -> str:
    return _flat(part).removesuffix(".").replace("|", "\\|")


def _blocks(part: str) -> Iterator[str]:
    """Paragraphs on one line each, indented formulas as they stand."""
    for number, block in enumerate(re.split(r"\n\s*\n", part)):
        if number:
            yield ""
        yield block.rstrip() if block.startswith("    ") else _flat(block)


if __name__ == "__main__":
    sys.stdout.write(text())
