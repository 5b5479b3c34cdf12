"""A witnessed range: two points of the box whose values, in balls, differ by at least so much. For relative
tolerances.
"""

import numpy as np
from flint import arb

from attnfun.language import BallAlgebra, precision, run
from attnfun.language.domain import Array, climbed
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

    def score(X: Array) -> Array:
        with np.errstate(all="ignore"):
            values = sign * function.values(X)[:, output]
        return np.where(np.isfinite(values), values, -np.inf)

    return np.asarray(climbed(function.box, score, 8000, 12, 10)[-1])
