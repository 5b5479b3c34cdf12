"""How far an error in the variables can move a function: proved slopes, and the modulus of continuity over a box.

|f(b) − f(a)| ≤ Σ_k slope_k |b_k − a_k| for all a, b in the box, kinks included (`language/gradient.py`: the partials
over a box enclose every Clarke gradient). `change_bound` cuts the box into sub-boxes, each widened by the errors, and
takes on each the smaller of Σ_k slope_k E_k and of the oscillation of f, which is finite where a slope is not (a root
at 0). Boxes are cut until the bound is close to what their centres show, or the budget is spent, which costs tightness
and nothing else.
"""

from collections.abc import Sequence

import numpy as np

from attnfun.language import BallAlgebra, GradientAlgebra, Graph, precision, run
from attnfun.language.domain import Array, Box, cut, exchanged, halved
from attnfun.language.enclosures import abs_uppers, ball_ends, balls

_CLOSE = 1.05
_BATCH = 32
_NODES = 60  # boxes times nodes is the work: larger graphs have fewer boxes


def slope_bounds(graph: Graph, box: Box, budget: int = 600) -> Array:
    """(outputs, d) bounds of |∂f_o/∂x_k| over the box; infinite where a derivative is."""
    low, high = box.low_array[None], box.high_array[None]
    width = box.high_array - box.low_array
    with precision(64):
        found, _ = enclosed_slopes(graph, box.names, low, high)
        seen = np.zeros(found.shape[1:])
        spent = 1
        while True:
            centre = (low + high) / 2
            here, _ = enclosed_slopes(graph, box.names, centre[-2 * _BATCH :], centre[-2 * _BATCH :])
            seen = np.maximum(seen, np.where(np.isfinite(here), here, 0.0).max(axis=0))
            bad = np.flatnonzero((found > _CLOSE * seen + 1e-300).any(axis=(1, 2)))
            if len(bad) == 0 or spent >= budget:
                break
            bad = bad[np.argsort(found.max(axis=(1, 2))[bad])[-_BATCH:]]
            new = halved(low[bad], high[bad], 1 / width)
            low, high, found = exchanged(bad, (low, high, found), (*new, enclosed_slopes(graph, box.names, *new)[0]))
            spent += len(new[0])
    return np.asarray(found.max(axis=0) * (1 + 1e-12))


def change_bound(graph: Graph, box: Box, errors: Array, enough: float = 0.0, budget: int = 1500) -> float:
    """A bound of |f_o(a) − f_o(b)| over all outputs and all a, b of the box with |a_k − b_k| ≤ errors_k.

    A bound of `enough` needs no sharpening. `budget` is a number of boxes, for graphs of up to `_NODES` nodes.
    """
    budget = budget * _NODES // max(_NODES, len(graph.nodes))
    if not np.any(errors > 0):
        return 0.0
    low, high = box.low_array[None], box.high_array[None]
    width = box.high_array - box.low_array
    with precision(64):
        score, terms = _change(graph, box, low, high, errors)
        seen, spent = 0.0, 1
        while not score.max() <= enough:
            centre = (low[-2 * _BATCH :] + high[-2 * _BATCH :]) / 2
            slopes, _ = enclosed_slopes(graph, box.names, centre, centre)
            here = np.where(np.isfinite(slopes), slopes, 0.0) @ errors
            seen = max(seen, float(here.max()))
            bad = np.flatnonzero(~(score <= max(_CLOSE * seen, enough)))
            if len(bad) == 0 or spent >= budget:
                break
            bad = bad[np.argsort(score[bad])[-_BATCH:]]
            steep = np.where(np.isfinite(terms[bad]), terms[bad], 1e300)  # cut where the error matters most
            share = steep / np.maximum(steep.max(axis=1, keepdims=True), 1e-300)
            sides = (high[bad] - low[bad]) / width
            axis = np.argmax(np.where(share > 0.1, sides, 0.0), axis=1)
            new = cut(low[bad], high[bad], axis)
            low, high, score, terms = exchanged(
                bad, (low, high, score, terms), (*new, *_change(graph, box, *new, errors))
            )
            spent += len(new[0])
    return float(score.max()) * (1 + 1e-12)


def summands(graph: Graph, output: int) -> list[int]:
    """Nodes whose sum, with signs, is the output: its sums and differences taken apart, a node once for every use."""
    found: list[int] = []
    stack = [output]
    while stack and len(found) + len(stack) <= 200:
        node = stack.pop()
        if graph.nodes[node].op in ("add", "sub", "neg"):
            stack += graph.nodes[node].args
        else:
            found.append(node)
    return found + stack


def _change(graph: Graph, box: Box, low: Array, high: Array, errors: Array) -> tuple[Array, Array]:
    """(boxes,) bounds of the change from a point of each sub-box, and (boxes, d) what each variable adds to it."""
    left = np.maximum(np.nextafter(low - errors, -np.inf), box.low_array)
    right = np.minimum(np.nextafter(high + errors, np.inf), box.high_array)
    slopes, swing = enclosed_slopes(graph, box.names, left, right)
    with np.errstate(invalid="ignore"):
        terms = np.where(errors > 0, slopes * errors, 0.0)
    terms = np.where(np.isnan(terms), np.inf, terms)
    change = np.minimum(terms.sum(axis=2) * (1 + 1e-12), swing)
    return change.max(axis=1), terms.max(axis=1)


def enclosed_slopes(
    graph: Graph, names: Sequence[str], low: Array, high: Array, clip_sqrt: bool = True
) -> tuple[Array, Array]:
    """(boxes, outputs, d) bounds of |∂f_o/∂x_k| and (boxes, outputs) of the oscillation of f_o on every sub-box."""
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=clip_sqrt, sharp=True), len(names))
    values = {n: balls(low[:, k], high[:, k]) for k, n in enumerate(names)}
    slopes, swing = np.zeros((len(low), len(graph.outputs), len(names))), np.zeros((len(low), len(graph.outputs)))
    for o, dual in enumerate(run(graph, algebra, algebra.variables(names, values))):
        least, most = ball_ends(dual.value, len(low))
        wide = (most - least) * (1 + 1e-12)
        swing[:, o] = np.where(np.isnan(wide), np.inf, wide)
        for k, partial in enumerate(dual.partials):
            if partial is not None:
                size = np.broadcast_to(abs_uppers(np.asarray(partial, dtype=object)), (len(low),))
                slopes[:, o, k] = np.where(np.isnan(size), np.inf, size)
    return slopes, swing
