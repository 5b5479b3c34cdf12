"""The further of two points by a tally: d heads of rank 1, nearly linear, then a look-up by sign.

Statement. Candidates carry the index +1, −1. Layer 1: head k has logits −β x_k y_k (x_k, y_k entries in an orthonormal
basis; the query's own key is 0) and writes its average index to the query's scratch. The sum is −(β/3)⟨x_1 − x_2, y⟩
up to β², so its sign is the answer but for near ties. Layer 2, one head: logits index · scratch, values x.

Source: derived here; the majority vote of Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) at a small inverse
temperature instead of a large one, and with an orthonormal basis instead of random directions.
Derivation. Head k puts out F(1), F(r) = Σ v_j e^{r a_j}/Σ e^{r a_j}, v = (1, −1, 0), a = −β y_k (x_1k, x_2k, 0):
F(0) = 0, F'(0) = (a_1 − a_2)/3, and F'' = E[(v−Ev)(a−Ea)²] for softmax weights, at most 2 Var a ≤ 2 (β y_k)², for a
spreads over at most 2β|y_k|. So |F(1) − F'(0)| ≤ β² y_k², and over all heads at most β² Σ y_k² = β².
Size: 2 layers, d + 1 heads, every one of rank 1, no mask; width 2d + 4.
Bound (proved, real arithmetic): the scratch is −(β/3)(τ + B), τ = ⟨x_1−x_2, y⟩, |B| ≤ 3β; `bounds.tally_error` with δ =
50/sharpness. To first order (computed) P(wrong) is ∫ f² E|B| and the error ∫ f² E|x_1−x_2|²|B| at ties τ = 0, B ≈ (β/6)
Σ y_k² (x_1k² − x_2k²): means over 20,000 drawn ties, where x_1 and x_2 have the same score, of density f²/∫f². Over all
points B has the standard deviation (β/6) √(8(d−1))/(d(d+2)).
Failure mode: the scratch is of size β/√d and must be resolved: in float64 rounding costs about 48 d u/β on τ.
"""

import math
from functools import lru_cache

import numpy as np

from attnfun.kinds.neighbours import pattern, sphere
from attnfun.kinds.neighbours.bounds import tally_error
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.network import TokenNetwork

SHARPNESS = 1e10  # of the look-up, in units of τ
LEAST_BETA = 1e-7
_TIES = 20_000
_WARM = 1.0  # beyond it the first order says nothing


def build(dim: int, beta: float, nearest: bool) -> TokenNetwork:
    return pattern.tally(dim, nearest, beta, 3 * SHARPNESS / beta)


def predict(dim: int, beta: float) -> Prediction:
    at_tie = sphere.collision(dim)
    wrong, loss, doubt = (beta * at_tie * figure for figure in _at_ties(dim))
    most = 6 * beta * at_tie * (1 + 1e-9)
    error, right = (loss, 1 - wrong) if beta <= _WARM else (None, None)
    how = "to first order in beta, its constant a mean over drawn ties (uncertainty: its standard error);"
    how += " `proved` bounds the second order everywhere"
    proved, details = tally_error(dim, beta, 50 / SHARPNESS), {"beta": beta, "rounding": 48 * dim * 2.0**-53 / beta}
    return Prediction(error, how, doubt, proved, right, max(0.0, 1 - most), details)


@lru_cache(maxsize=16)
def _at_ties(dim: int) -> tuple[float, float, float]:
    """E|B|/β and E|x_1−x_2|²|B|/β given τ = 0, and the standard error of the second."""
    rng = np.random.default_rng([dim, 5])
    # f² ∝ (1 − s²)^{d−3} is the law of an inner product in dimension 2d − 3
    score = sphere.uniform_points(rng, _TIES, 2 * dim - 3)[:, :1]
    y = sphere.uniform_points(rng, _TIES, dim)
    x = []
    for _ in range(2):
        away = rng.standard_normal((_TIES, dim))
        away -= np.sum(away * y, axis=1, keepdims=True) * y
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        x.append(score * y + np.sqrt(1 - score**2) * away)
    B = np.abs(np.sum(y * y * (x[0] ** 2 - x[1] ** 2), axis=1)) / 6
    loss = B * np.sum((x[0] - x[1]) ** 2, axis=1)
    return float(B.mean()), float(loss.mean()), float(loss.std(ddof=1) / math.sqrt(_TIES))


def beta_for(dim: int, eps: float) -> float:
    """The β whose proved error is eps, no larger than 0.01."""
    room = eps * (1 - 1e-6) / (8 * sphere.collision(dim)) - 50 / SHARPNESS
    return min(0.01, room / 3)
