"""staircase: a function of one variable that is constant between jumps, in one head.

Statement. Let g be v_0, v_1, …, v_k on the intervals between t_1 < … < t_k. Keys of slopes κ j and values v_j, the
biases such that keys j − 1 and j meet at t_j, are within ε of g farther than r from every t_j, for κ = λ/r, λ = ln(1/ε)
and a few: k + 1 keys, whatever r and ε are.
Size: k + 1 keys; only slopes grow with 1/r.  Bound: *staircase*, from the stored weights.
Failure mode: float64 holds no walls narrower than some 1e-14 of the argument, float32 than some 1e-5.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from attnfun.certify.staircase import wall_exponent
from attnfun.errors import feasible
from attnfun.kinds.function.build.unary.features import evaluated, jump_places
from attnfun.kinds.function.build.unary.keys import Fit, Keys, head_of
from attnfun.language import Graph
from attnfun.language.graph import JUMPS

_MOST_STEPS = 400


@lru_cache(maxsize=256)
def staircase(g: Graph, low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(t_1, …, t_k) inside (low, high) and (v_0, …, v_k); Infeasible if g is not constant between them."""
    feasible(all(n.op == "sign" for n in g.nodes if n.op in JUMPS), "compose: a jump that is not written by signs")
    at = [t for t in jump_places(g, low, high) if low < t < high]
    feasible(len(at) <= _MOST_STEPS, f"compose: a step with {len(at):,} jumps; at most {_MOST_STEPS} are built")
    places, levels = list[float](), list[float]()
    for a, b in pairwise([low, *at, high]):
        seen = evaluated(g, a + (b - a) * np.linspace(1e-3, 1 - 1e-3, 9))
        same = np.isfinite(seen).all() and np.ptp(seen) <= 1e-12 * np.abs(seen).max()
        feasible(same, "compose: a step that jumps and is not constant between its jumps")
        level = float(seen[4])
        if not levels or abs(level - levels[-1]) > 1e-12 * max(abs(level), abs(levels[-1])):
            places += [a] if levels else []
            levels.append(level)
    return tuple(places), tuple(levels)


def fit_staircase(g: Graph, low: float, high: float, width: float, eps: float, dtype: str) -> Fit:
    """The head of the module's statement: within eps farther than `width` from the jumps."""
    places, levels = staircase(g, low, high)
    feasible(places, "compose: a step that does not jump on the range of its argument")
    kappa = wall_exponent(max(levels) - min(levels), eps) / width
    middle = (places[0] + places[-1]) / 2  # of one jump the jump itself: then no bias is needed
    t, j = np.array(places) - middle, np.arange(len(levels)) - (len(levels) - 1) / 2
    biases = np.concatenate([[0.0], -np.cumsum(kappa * t)])
    keys = Keys(1.0, -middle, np.asarray(kappa * j), biases - (biases.max() + biases.min()) / 2)
    return Fit((head_of(keys, np.array(levels), dtype),), error=eps)
