"""What is proved of networks that find neighbours: bounds of E|target − output|², independent uniform points.

All in real arithmetic, N points, n = N − 1 candidates, f, S as in `sphere`; each a function of a few numbers, which
`prove` reads from stored weights and the constructions choose.

**One head of full rank** (`full_rank_error`). Logits ∓β⟨x_i, x_j⟩, values x_j. For d ≥ 3 and β ≥ 1 the error is at most

    (2 ln 2 − 1) n(n−1) U/β + 4(n−1) e^{−2βG}                                                          squares
    + n(n−1)(n−2) V (ln(4/3)/β² + 1/β⁴) + 10 (n−1) e^{−βG'}                                            pairs
    + 12 e^{−β} + 3.56 n f(0) 2^{1−n}/β²                                                               the token itself

for all G, G' > 0 with U ≥ ∫ f(t) S(t)^{n−2} sup_{0≤g≤G} f(t+g) (1 − t² + |t| G) dt and
V ≥ ∫ f(t) S(t)^{n−3} (sup_{0≤g≤G'} f(t+g))² dt, upper Riemann sums here. Squares:
p_i² ≤ σ(−βg_i)², ∫_0^∞ σ(−x)² dx = ln 2 − 1/2, and 1 − ts ≤ 1 − t² + |t| G for g ≤ G; beyond G, σ² ≤ e^{−2βG}. Pairs:
p_i p_j ≤ e^{−β(g_i+g_j)}/(1 + e^{−βg_i} + e^{−βg_j})², whose integral over g_i, g_j ≥ 0 is ln(4/3)/β², and ∫∫ of it
times g_i g_j is at most β^{−4}; where g_i > G', Σ_i p_i ≤ (n−1) e^{−βG'}, twice, and 1 − t² + g_i g_j ≤ 5. The token
itself costs at most 2u p² + 4u p, u = 1−t, p ≤ σ(−βu): at most 12 e^{−β} for t ≤ 0; t > 0 has density at most n f(0)
2^{1−n}, and ∫_0^∞ 2x σ(−x)² + 4x σ(−x) dx < 3.56.

**Scores first** (`scores_error`). A head with logits ∓B·score, every score off by at most η: its logits are off by Bη,
so its output by at most Bη from that of a head of full rank at B that does not see the query, and
√error ≤ √(`full_rank_error`) + Bη.

**Tally** (`tally_error`). The further of two points by the sign of −(β/3)(τ + B), τ = ⟨x_1−x_2, y⟩, |B| ≤ 3β, looked up
by a softmax that gives the other tokens at most 2 e^{−50} where |τ + B| ≥ δ. The density of τ is at most ∫ f²
(`sphere.collision`), so P(wrong sign) ≤ 6β ∫ f², and the error is at most 8 (3β + δ) ∫ f² + 16 e^{−50}.

**Half-space** (`biased_error`). tanh(β(t − b')/2) for sign(t − b): at most 4 (2 ln 2 − 1) f(0)/β for b' = b, because
f ≤ f(0) and ∫_0^∞ σ(−x)² dx = ln 2 − 1/2 on either side. Between b and b', where t is with probability at most
f(0)|b − b'|, the error is at most 4.
"""

import math
from functools import lru_cache

import numpy as np

from attnfun.errors import require
from attnfun.kinds.neighbours import sphere
from attnfun.language import Array, precision
from attnfun.language.enclosures import arb, upper

_CELLS = 6000
_ROUNDING = 1 + 1e-9  # over the relative error of every sum and power of doubles below, d up to 4096
LOSS = 2 * math.log(2) - 1


def scores_error(dim: int, points: int, beta: float, score_error: float) -> float:
    """The bound of a choice at inverse temperature `beta` by scores that are off by at most `score_error`."""
    return (math.sqrt(full_rank_error(dim, points, beta, False)) + beta * score_error) ** 2 * (1 + 1e-12)


def tally_error(dim: int, beta: float, blur: float) -> float:
    """The bound of a tally, `blur` being δ; no error is larger than 4."""
    return min(4.0, 8 * (3 * beta + blur) * sphere.collision(dim) * _ROUNDING + 16 * math.exp(-50))


def biased_error(dim: int, beta: float, shift: float = 0.0) -> float:
    """The bound of a half-space whose threshold is off by at most `shift`."""
    return 4 * LOSS * sphere.peak(dim) / beta * _ROUNDING + 4 * sphere.peak(dim) * shift * _ROUNDING


def full_rank_error(dim: int, points: int, beta: float, attends_self: bool) -> float:
    """The bound of one head of full rank, rounded up; `attends_self`: the query sees its own token."""
    n = points - 1
    require(beta >= 1 and math.isfinite(beta), f"beta={beta!r}: the bound is proved for finite beta of at least 1")
    require(dim >= 3, f"dim={dim}: proved for 3 dimensions and more: a score's density must have its top at 0")
    top = _peak_above(dim)
    own = 12 * math.exp(-beta) + 3.56 * n * top * 2.0 ** (1 - n) / beta**2 if attends_self else 0.0
    G = math.log(4e4 * (n - 1) * beta) / (2 * beta)
    edges, tails = _tails(dim)
    a, b = edges[:-1], edges[1:]
    inner = np.where((a <= 0) & (b >= 0), 0.0, np.minimum(np.abs(a), np.abs(b)))  # the cell's point nearest to 0
    outer = np.maximum(np.abs(a), np.abs(b))

    def shape(width: float) -> Array:
        """The largest value of f/f(0) on [a, b + width], of every cell."""
        top_at = np.clip(0.0, a, np.minimum(1.0, b + width))
        return np.asarray(((1 - top_at) * (1 + top_at)) ** ((dim - 3) / 2))

    here = (b - a) * ((1 - inner) * (1 + inner)) ** ((dim - 3) / 2)
    U = top**2 * float(np.sum(here * shape(G) * tails[:-1] ** (n - 2) * (1 - inner**2 + outer * G)))
    squares = LOSS * n * (n - 1) * U / beta + 4 * (n - 1) * math.exp(-2 * beta * G)
    pairs = 0.0
    if n > 2:
        further = math.log(1e6 * (n - 1) * beta) / beta
        V = top**3 * float(np.sum(here * shape(further) ** 2 * tails[:-1] ** (n - 3)))
        pairs = n * (n - 1) * (n - 2) * V * (math.log(4 / 3) / beta**2 + beta**-4)
        pairs += 10 * (n - 1) * math.exp(-beta * further)
    return (squares + pairs + own) * _ROUNDING


@lru_cache(maxsize=16)
def _tails(dim: int) -> tuple[Array, Array]:
    """Edges of cells of [−1, 1], and upper ends of S there, from balls."""
    L = sphere.reach(dim)
    edges = np.unique(np.concatenate([[-1.0], np.linspace(-L, L, _CELLS + 1), [0.0, 1.0]]))
    tails = np.empty(len(edges))
    with precision(96):
        half, rest = arb(0.5), (arb(dim) - 1) / 2
        for i, t in enumerate(edges.tolist()):
            part = (arb(t) * arb(t)).beta_lower(half, rest, regularized=1) / 2
            tails[i] = min(1.0, upper(half - part if t > 0 else half + part))
    return edges, tails


@lru_cache(maxsize=64)
def _peak_above(dim: int) -> float:
    with precision(96):
        d = arb(dim)
        return upper(((d / 2).lgamma() - ((d - 1) / 2).lgamma()).exp() / arb.pi().sqrt())
