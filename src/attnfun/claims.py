"""`python -m attnfun.claims`: CLAIMS.md, what is proved, conditional, tested, only sampled, and open.

Constructions and methods of proof are found in the code: the registry and the functions `prove_by_<name>`, with the
statements of their docstrings; hypotheses are those that certificates print. What no code can know about itself is in
`claims_listed`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

import attnfun.certify
from attnfun.certify import Status, relu_rounding, rounding, witness
from attnfun.certify.rounding import hypotheses
from attnfun.claims_listed import OPEN, SAMPLED, TESTED
from attnfun.constructions import CONSTRUCTIONS, sequence
from attnfun.constructions.preorders import lexicographic as heads
from attnfun.limits import lexicographic, score_rank, singular
from attnfun.limits.embedding import check
from attnfun.network.network import DTYPES
from attnfun.verbs import compile as compile_target

_LABEL = re.compile(
    r"(?:^|(?<=\n)|(?<= {2}))(Statement|Source|Construction|Derivation|Size|Bound|L\^p|Failure modes?|Example)"
    r"(?: \([^)]*\))?[.:]\s",
)

_ROOMS = {
    "in_context": ("linear", "lasso", "logistic", "richardson"),
    "neighbours": ("full_rank", "scores", "tally", "majority_vote", "random_heads", "biased"),
    "matching": ("match2", "match3", "sparse_average"),
}


def methods() -> list[ModuleType]:
    """The modules of `certify/` that offer a `prove_by_<name>`, in the alphabet's order."""
    found = []
    for info in pkgutil.iter_modules(attnfun.certify.__path__):
        module = importlib.import_module(f"attnfun.certify.{info.name}")
        if hasattr(module, f"prove_by_{info.name}"):
            found.append(module)
    return found


def labelled(doc: str) -> dict[str, str]:
    """The parts of a docstring that begin with a label such as “Statement.” or “Failure mode:”, by label."""
    places = list(_LABEL.finditer(doc))
    ends = [m.start() for m in places[1:]] + [len(doc)]
    return {m.group(1).removesuffix("s"): doc[m.end() : end].strip() for m, end in zip(places, ends, strict=True)}


def black_box_hypotheses() -> tuple[str, ...]:
    """What a certificate about an untraceable function adds to its hypotheses; taken from one, made here."""

    def opaque(x: Any) -> Any:
        return np.interp(np.asarray(x, dtype=np.float64), (-1.0, 0.0, 1.0), (1.0, 0.0, 1.0))

    certificate = compile_target(opaque, domain={"x": (-1.0, 1.0)}, eps=1.5, lipschitz=1.0).certificate
    assert certificate.status is Status.CONDITIONAL
    return tuple(h for h in certificate.hypotheses if h not in hypotheses("float64"))


def text() -> str:
    """CLAIMS.md."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Claims"
    yield ""
    yield "Written by `make claims` from the code: change the code, not this file. Proofs: `docs/mathematics.md`."
    yield ""
    yield "| status of a certificate | what it says |"
    yield "| --- | --- |"
    for status in Status:
        yield f"| {status.value} | {status.meaning} |"
    yield from ("", "## Proved", "")
    yield "Of a network with status `proved`: its error in real arithmetic, from the stored weights, by one of"
    yield ""
    yield "| method | for | declines | code |"
    yield "| --- | --- | --- | --- |"
    for module in methods():
        doc = module.__doc__ or ""
        head = doc.split("\n\n")[0]
        name, _, scope = " ".join(head.split()).removeprefix("Method ").partition(": ")
        declines = labelled(doc).get("Failure mode", "")
        yield f"| {name} | {_cell(scope)} | {_cell(declines)} | `{_path(module)}` |"
    yield ""
    yield f"plus the rounding of its evaluation (`{_path(rounding)}`, of MLPs"
    yield f"`{_path(relu_rounding)}`). Lower ends are witnessed at a float64 point of the domain (`{_path(witness)}`)."
    yield ""
    yield "The constructions rest on these statements, derived in their files. No certificate relies on them."
    chapters = [
        (f"`{name}`: {one.summary}", importlib.import_module(type(one).__module__))
        for name, one in CONSTRUCTIONS.items()
    ]
    for title, module in (*chapters, ("Sequence maps: heads that gather, then networks that apply", sequence)):
        yield from _chapter(title, module)
    for room, names in _ROOMS.items():
        for name in names:
            module = importlib.import_module(f"attnfun.constructions.{room}.{name}")
            title = _flat((module.__doc__ or "").split("\n")[0])
            yield from _chapter(f"{room.replace('_', ' ')}, `{name}`: {title}", module)
    yield from ("", "### Limits", "")
    yield "Of finite relations, from the relation and the certificate alone (`docs/finite-relations.md`): integer"
    yield f"vectors rank exactly and obstructions exclude what they say (`{_path(check)}`); a rank is enough, or"
    yield f"is not (`{_path(score_rank)}`, with singular values of `{_path(singular)}`)."
    yield ""
    yield "Of lexicographic order: the largest grid that one number ranks in a format, and the winner weight of heads"
    yield f"on it, by the arguments of `{_path(lexicographic)}` and `{_path(heads)}`. Of a preorder by a continuous"
    yield "utility expression: all its properties (`docs/preorders.md`)."
    yield from ("", "## Conditional", "")
    yield "Hypotheses that certificates print:"
    yield ""
    for dtype in DTYPES:
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
    for item in TESTED:
        yield f"- {item.claim}"
        for test in item.tests:
            yield f"  - `{test}`"
    yield from ("", "## Sampled only", "")
    yield "Measured at finitely many points; none of it is part of a proof."
    yield ""
    for claim, path in SAMPLED:
        yield f"- {claim} (`{path}`)"
    yield from ("", "## Open", "")
    for claim in OPEN:
        yield f"- {claim}"


def _chapter(title: str, module: ModuleType) -> Iterator[str]:
    """One construction: its statement as its docstring has it, then the rest of the theorem in a list."""
    parts = labelled(module.__doc__ or "")
    yield from ("", f"### {title}", "")
    yield from _blocks(parts["Statement"])
    yield ""
    for label in ("Source", "Size", "Bound", "Failure mode"):
        yield f"- {label}: {_flat(parts[label])}"
    yield f"- Code: `{_path(module)}`"


def _path(module: ModuleType) -> str:
    return "src/" + module.__name__.replace(".", "/") + ".py"


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
