"""A witnessed range: two points of the box whose values, in balls, differ by at least so much. For relative
tolerances.
"""

from __future__ import annotations

import numpy as np
from flint import arb

from attnfun.language import BallAlgebra, precision, run
from attnfun.language.domain import Array
from attnfun.language.enclosures import lower
from attnfun.language.function import Function


def witnessed_range(function: Function) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """(width, x⁺, x⁻) with f(x⁺) − f(x⁻) ≥ width proved at these float64 points; of several outputs the narrowest
    that varies.
    """
    assert function.graph is not None
    widths = []
    for o in range(len(function.outputs)):
        # floats may not see a variation far below the values' size: a few more points, told apart by balls alone
        points = [_extreme(function, o, 1.0), _extreme(function, o, -1.0)]
        points += [function.box.low_array, function.box.high_array, *function.box.sample(6, np.random.default_rng(0))]
        with precision(256):
            values = []
            for x in points:
                env = {n: arb(float(v)) for n, v in zip(function.box.names, x, strict=True)}
                values.append(run(function.graph, BallAlgebra(clip_sqrt=True), env)[o])
            kept = [i for i, v in enumerate(values) if v.is_finite()]
            if not kept:
                continue
            order = sorted(kept, key=lambda i: float((values[i] - values[kept[0]]).mid()))
            above, below = points[order[-1]], points[order[0]]
            width = lower(values[order[-1]] - values[order[0]])
        if width > 0:
            widths.append((width, tuple(float(v) for v in above), tuple(float(v) for v in below)))
    if not widths:
        centre = tuple(float(v) for v in (function.box.low_array + function.box.high_array) / 2)
        return 0.0, centre, centre
    return min(widths)


def _extreme(function: Function, output: int, sign: float) -> Array:
    """A point of large sign·f_o: samples, corners and edges, then a few shrinking random steps from the best (seeded).

    Deliberately a plain search: a smaller witnessed range makes the tolerance stricter, never laxer.
    """
    rng = np.random.default_rng(0)
    box = function.box

    def score(X: Array) -> Array:
        with np.errstate(all="ignore"):
            values = sign * function.values(X)[:, output]
        return np.where(np.isfinite(values), values, -np.inf)

    X = box.probe(8000, rng)
    values = score(X)
    top = X[np.argsort(values)[-24:]]
    step = 0.05
    for _ in range(12):
        Y = np.repeat(top, 10, axis=0) + step * (box.high_array - box.low_array) * rng.standard_normal(
            (10 * len(top), box.dim)
        )
        Y = np.concatenate([top, np.clip(Y, box.low_array, box.high_array)])
        top = Y[np.argsort(score(Y))[-24:]]
        step *= 0.75
    return np.asarray(top[-1])
