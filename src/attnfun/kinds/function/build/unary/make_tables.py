"""Write `tables.json`: python -m attnfun.kinds.function.build.unary.make_tables (or `make tables`); about five minutes.

Every entry is the smallest head the general search finds for the normal form, at that tolerance, ratio or width.
"""

import json
import sys
from typing import Any

import numpy as np

from attnfun.kinds.function.build.unary.features import known
from attnfun.kinds.function.build.unary.fit import pinned_square
from attnfun.kinds.function.build.unary.keys import Array
from attnfun.kinds.function.build.unary.layout import problem
from attnfun.kinds.function.build.unary.search import passes, search
from attnfun.kinds.function.build.unary.tables import TABLES, normal
from attnfun.language import parse

_TOLERANCES = tuple(10.0**-d for d in range(2, 11))
_RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0, 25.0, 100.0, 1e3)
_KINDS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    "square": ("u**2", ((-1.0, 1.0),)),
    "log": ("log(u)", tuple((1.0, r) for r in (*_RATIOS, 1e4, 1e6))),
    "power -1": ("1/u", tuple((1.0, r) for r in _RATIOS)),
    "power -2": ("u**-2", tuple((1.0, r) for r in _RATIOS)),
    "power 1/2": ("sqrt(u)", tuple((1.0, r) for r in _RATIOS)),
    "power -1/2": ("u**(-1/2)", tuple((1.0, r) for r in _RATIOS)),
    "exp": ("exp(u)", tuple((-w, 0.0) for w in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))),
    "root": ("sqrt(u)", ((0.0, 1.0),)),
}


def row(kind: str, text: str, low: float, high: float, eps: float) -> list[Any] | None:
    """One entry, keys in the coordinate s of the normal form, seven digits each; None if the search failed."""
    graph = parse(text, ["u"])
    form = known(graph)
    assert form is not None
    n = normal(form, low, high, eps)
    assert n is not None and n.kind == kind
    p = problem(graph, low, high, 0.97 * eps, "float64")
    c = search(p, False)
    if not passes(p, c) or len(c.pieces) != 1:
        return None
    keys = c.pieces[0]
    # q = w u + c and u = s/rate + origin
    slopes = keys.slopes * keys.w / n.rate
    biases = keys.biases + keys.slopes * (keys.w * n.origin + keys.c)
    biases = biases - biases[int(np.argmin(np.abs(slopes)))]
    return [kind, n.parameter, eps, *_short(slopes, biases)]


def _short(*columns: Array) -> list[list[float]]:
    return [[float(f"{v:.7g}") for v in column] for column in columns]


def main() -> None:
    """Everything anew: an old file must not serve its own making."""
    TABLES.unlink(missing_ok=True)
    rows = []
    for kind, (text, intervals) in _KINDS.items():
        for low, high in intervals:
            for eps in _TOLERANCES:
                made = row(kind, text, low, high, eps)
                print(kind, low, high, eps, "-" if made is None else len(made[3]), file=sys.stderr)
                if made is not None:
                    rows.append(made)
    for eps in _TOLERANCES[:-1]:
        keys, _ = pinned_square(1.0, eps, "float64")
        rows.append(["pinned", 1.0, eps, *_short(keys.slopes, keys.biases)])
    TABLES.write_text("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
