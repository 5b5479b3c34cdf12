"""compose as an MLP: the same program with a broken line of ReLU units (`unary/spline`) for every step.

A step of tolerance E takes about F + R/√E units, F and R measured. With S_i the sensitivity of the output to step i the
tolerances minimise the units Σ R_i/√E_i under Σ S_i E_i = 0.97 ε: by Lagrange E_i ∝ (R_i/S_i)^{2/3}. Steps that are
broken lines themselves (R = 0: relu, abs) need no tolerance and get a small one. The total is known before anything is
built: units grow like 1/√ε, where keys grow like a power of ln(1/ε).
"""

import math
from collections.abc import Sequence

from attnfun.errors import Infeasible
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.spline import Growth, growth
from attnfun.language import Graph

MOST_UNITS = 100_000
"""The most hidden units that are built, whatever `max_keys` allows: past it the proof would take minutes."""
_USED = 0.97  # of eps; broken lines use up what they are given
_LEAST = {"float64": 0.02, "float32": 0.2}  # of an equal share, for steps that are exact but for rounding


def shares(
    intervals: Sequence[tuple[Graph, float, float]], weights: Sequence[float], request: Request
) -> tuple[float, ...]:
    """The tolerance of every step (g, low, high) with its sensitivity; Infeasible, with the nearest eps, if the units
    would be too many.
    """
    sizes = [growth(*interval) for interval in intervals]
    allowed = _USED * request.eps
    sensitive = [max(w, 1e-300) for w in weights]
    wanted = [(size.rate / s) ** (2 / 3) for size, s in zip(sizes, sensitive, strict=True)]
    total = sum(w * s for w, s in zip(wanted, sensitive, strict=True))
    kept = _LEAST[request.dtype]
    least = [kept * allowed / (len(sizes) * s) for s in sensitive]
    scale = (1 - kept) * allowed / total if total > 0 else 0.0
    tolerances = tuple(max(scale * w, e) for w, e in zip(wanted, least, strict=True))
    _require_room(sizes, tolerances, request)
    return tolerances


def _require_room(sizes: Sequence[Growth], tolerances: Sequence[float], request: Request) -> None:
    limit = min(request.max_keys, MOST_UNITS)
    units = sum(size(e) for size, e in zip(sizes, tolerances, strict=True))
    if not units <= 1.1 * limit + 8:  # an estimate; what is built is counted exactly
        nearest = nearest_request(units, sum(size.fixed for size in sizes), request)
        raise Infeasible(f"compose: about {units:,.0f} ReLU units would be needed, more than {limit:,}", nearest)


def nearest_request(units: float, fixed: float, request: Request) -> dict[str, float | str]:
    """The eps at which the units that grow, like 1/√eps, leave room for the `fixed` ones; attention where none does."""
    room = min(request.max_keys, MOST_UNITS) - fixed
    if not (room > 1 and units < math.inf):
        return {"realise": "attention"}
    return {"eps": float(f"{1.15 * request.eps * ((units - fixed) / room) ** 2:.2g}")}
