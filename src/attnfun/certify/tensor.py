"""One step of a composition with several arguments: a tensor head against the function g(u_1, …, u_d) it stands for.

Statement. Let U be in the box B, |û_k − U_k| ≤ δ_k, B' the box B widened by δ_k on both sides of axis k, g analytic on
B', h the head as a function of û. Then

    |h(û) − g(U)| ≤ sup_{B'} |h − g| + sup_{B'} Σ_k |∂_k g| δ_k,

for û and U lie in B', and the segment between them too: along it g moves by ∫ ∇g · (û − U). The first term is proved by
*nodes*, the second by balls for the gradient on a grid of sub-boxes of B'.
Failure modes: Undecided for more than four arguments, for kinks, and where g is not defined on all of B'.
"""

import math

import numpy as np

from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.view import Array, Undecided, View
from attnfun.errors import AttnfunError
from attnfun.language import ArrayAlgebra, Graph, run
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box, sub_boxes
from attnfun.language.slopes import enclosed_slopes

_CELLS = {2: 24, 3: 8, 4: 5}  # sub-boxes an axis for the gradient


def prove_tensor(seen: View, g: Graph, names: tuple[str, ...], enough: float) -> float:
    """sup |g − seen| on the box of `seen`; `enough` needs no sharpening, it steers and proves nothing."""
    try:
        require_defined(g, Box(names, tuple(seen.low.tolist()), tuple(seen.high.tolist())))
    except AttnfunError:
        raise Undecided(f"composition: {g.text(g.outputs[0], 60)} is not defined around its arguments") from None
    estimate = _sampled(seen, g, names)
    return prove_by_nodes(seen, g, names, estimate, max(2 * estimate, enough), witnessed=False).high


def gradient_shifts(g: Graph, names: tuple[str, ...], seen: View, shifts: tuple[Array, ...]) -> list[float]:
    """For every δ of `shifts`: sup Σ_k |∂_k g| δ_k over the box of `seen`, infinite where balls cannot tell."""
    cells = _CELLS[len(names)]
    edges = [np.linspace(a, b, cells + 1) for a, b in zip(seen.low, seen.high, strict=True)]
    for edge, a, b in zip(edges, seen.low, seen.high, strict=True):
        edge[0], edge[-1] = a, b
    slopes = np.ascontiguousarray(enclosed_slopes(g, names, *sub_boxes(edges), clip_sqrt=False)[0][:, 0].T)
    found = []
    for delta in shifts:
        used = delta > 0
        total = (slopes[used] * delta[used][:, None]).sum(axis=0)
        found.append(float(total.max()) * (1 + 1e-12) if used.any() else 0.0)
    return [value if value == value else math.inf for value in found]


def _sampled(seen: View, g: Graph, names: tuple[str, ...]) -> float:
    """A float estimate of sup |g − seen| on a grid, for `nodes` to size itself by."""
    count = {2: 41, 3: 15, 4: 9}[seen.dim]
    t = (1 - np.cos(np.linspace(0, np.pi, count))) / 2
    lines = [np.clip(a + (b - a) * t, a, b) for a, b in zip(seen.low, seen.high, strict=True)]
    grid = {n: m.ravel() for n, m in zip(names, np.meshgrid(*lines, indexing="ij"), strict=True)}
    with np.errstate(all="ignore"):
        f = np.asarray(run(g, ArrayAlgebra(), grid)[0], dtype=np.float64)
        (head,) = seen.heads
        out = head.values[..., 0]
        for axis in head.axes:
            out = np.moveaxis(np.tensordot(axis.weights(lines[axis.variable]), out, axes=(1, 0)), 0, -1)
        error = np.abs(np.broadcast_to(f, (count**seen.dim,)) - (out.ravel() + seen.bias[0]))
    return float(np.max(np.where(np.isfinite(error), error, 0.0)))
