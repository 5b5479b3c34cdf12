"""The lower end: a float64 point of the box at which balls show the error to be at least so much."""

from __future__ import annotations

import numpy as np
from flint import arb

from attnfun.certify.exact import network_at
from attnfun.certify.view import Array, View
from attnfun.expressions import BallAlgebra, Graph, precision, run
from attnfun.expressions.enclosures import abs_lower


def error_at(view: View, graph: Graph, names: tuple[str, ...], x: Array) -> float:
    """A proved lower bound of max_o |f_o(x) − net_o(x)| at the exact point x; 0 where balls cannot tell."""
    env = {n: arb(float(v)) for n, v in zip(names, x, strict=True)}
    f = run(graph, BallAlgebra(clip_sqrt=True), env)
    lows = [abs_lower(a - b) for a, b in zip(f, network_at(view, x), strict=True)]
    return max([0.0, *(v for v in lows if v > 0)])


def best_witness(
    view: View, graph: Graph, names: tuple[str, ...], starts: Array, step: Array, evaluations: int = 40
) -> tuple[float, Array]:
    """Pattern search from each start: the largest proved `error_at` found, and its point (always inside the box)."""
    best, where = -1.0, np.clip(starts[0], view.low, view.high)
    with precision(128):
        for start in starts:
            x = np.clip(start, view.low, view.high)
            value, h, used = error_at(view, graph, names, x), np.array(step, dtype=np.float64), 1
            while used < evaluations and np.any(h > 1e-6 * step):
                moved = False
                for k in range(view.dim):
                    for sign in (1.0, -1.0):
                        y = x.copy()
                        y[k] = min(max(y[k] + sign * h[k], view.low[k]), view.high[k])
                        if y[k] == x[k]:
                            continue
                        other = error_at(view, graph, names, y)
                        used += 1
                        if other > value:
                            x, value, moved = y, other, True
                            break
                if not moved:
                    h = h / 2.5
            if value > best:
                best, where = value, x
    return best, where
