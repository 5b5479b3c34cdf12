"""The furthest of N−1 points by heads of rank 1: scores first, written to the candidates, then one choice.

Statement. n = N−1 candidates and a query y. Layer 1: 2d heads of rank 1, ±β for every entry k: the *candidate* x_i
asks, logits ±β x_ik y_k at the query's token and 0 at all candidates, values 1 at the query and −1/n elsewhere. Their
sum, scaled, is ⟨x_i, y⟩ up to β² and stands in the candidate's own scratch. Layer 2: one head of rank 1, logits
−B·scratch for every asker, the query's token shut out, values x. So two layers of rank-1 heads do for one query and any
number of points what one layer needs full rank for.

Source: derived here.
Derivation. A head puts out h(±a) with a = β x_ik y_k, h(a) = (e^a − 1)/(e^a + n) = (1 + 1/n) σ(a − ln n) − 1/n and
h'(0) = 1/N. (h(a) − h(−a))/2 is odd, and |σ'''| ≤ 1/8, so it is a/N up to (1 + 1/n)|a|³/48; Σ_k |x_ik y_k|³ ≤ 1.
Size: 2 layers, 2d + 1 heads, rank 1 each, width 2d + 3; no index, nothing grows with N.
Bound (proved, real arithmetic): every score is off by at most η = N²β²/(48 n); the rest is `bounds.scores_error`.
Failure mode: float64 rounds the scores by about N √(2d) u/β, so Bη cannot be made as small as one likes. One query at a
time: for all N points as queries the scratch would need N coordinates, and layer 2 rank N; whether heads of rank
below N and d do it in two layers for all queries at once is not known here.
"""

import math
from dataclasses import replace

from attnfun.kinds.neighbours import pattern
from attnfun.kinds.neighbours.bounds import scores_error
from attnfun.kinds.neighbours.build import full_rank
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.network import TokenNetwork
from attnfun.network.named_coordinates import GAP

SCORE_ERROR = 1e-9  # η


def small_beta(points: int) -> float:
    """The β of layer 1 whose scores are off by at most SCORE_ERROR."""
    return math.sqrt(48 * (points - 1) * SCORE_ERROR) / points * (1 - 1e-9)


def build(dim: int, points: int, beta: float, nearest: bool) -> TokenNetwork:
    """`beta` is the inverse temperature B of the choice."""
    n, small = points - 1, small_beta(points)
    values = 1 + 1 / n, -1 / n
    return pattern.scores(dim, nearest, small, values, points / (2 * small), (beta, 2 * beta + GAP))


def predict(dim: int, points: int, beta: float) -> Prediction:
    base = full_rank.predict(dim, points, beta, nearest=True)  # the query is not seen, as there
    proved = None if base.proved is None else scores_error(dim, points, beta, SCORE_ERROR)
    rounding = points * math.sqrt(2 * dim) * 2.0**-53 / small_beta(points)
    how = "the integral of a full-rank head at the same inverse temperature, by quadrature (uncertainty: what fewer"
    how += " nodes change); `proved` with the scores' error added"
    own = {"small_beta": small_beta(points), "score_error": SCORE_ERROR, "rounding": rounding}
    return replace(base, how=how, proved=proved, details={**base.details, **own})


def beta_for(dim: int, points: int, eps: float) -> float:
    """A β whose proved error is at most eps."""
    beta = full_rank.beta_for(dim, points, eps, nearest=True)
    for _ in range(8):
        shift = beta * SCORE_ERROR
        if shift >= 0.5 * math.sqrt(eps):
            break
        if scores_error(dim, points, beta, SCORE_ERROR) <= eps:
            return beta
        beta = full_rank.beta_for(dim, points, (math.sqrt(eps) - 1.01 * shift) ** 2, nearest=True)
    return math.inf
