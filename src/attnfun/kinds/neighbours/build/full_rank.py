"""The furthest of N points by one head of full rank.

Statement. Points x_1, …, x_N are tokens. One head with logits −β⟨x_i, x_j⟩ and values x_j puts at token i the average
of the points furthest from x_i; as β grows, the furthest point itself. The nearest: logits +β⟨x_i, x_j⟩, and the token
itself, which would always win, is shut out by N coordinates that hold the position (logit −(2β + 1024) on itself).
For independent uniform points, n = N−1 candidates, f, F, S as in `sphere`, the error E|target − output|² is exactly

    n ∫ f(t) S(t)^{n−1} ∫_0^∞ λ e^{−λ(1+c)} [ (n−1) m_2 φ^{n−2} + (n−1)(n−2) ((1−t²) m_1² + m_g²) φ^{n−3}
        + 2(n−1) c (1−t) m_s φ^{n−2} + 2 c² (1−t) φ^{n−1} ] dλ dt,

t the least score, g = s − t for a score s of density f/S(t) on [t, 1], W = e^{−βg}, D = e^{−λW}, φ = E D, m_1 = E W D,
m_g = E g W D, m_2 = E 2(1 − ts) W² D, m_s = E (1+s) W D, and c = e^{−β(1−t)} for the token itself (0 if shut out).

Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) for the head; the error is derived here.
Derivation. target − output = Σ_{i≥2} p_i (x_1 − x_i) with x_1 the target and p_i = W_i/(1 + c + Σ W_j). Given the
scores, directions orthogonal to y are independent with mean 0, so E⟨x_1 − x_i, x_1 − x_j⟩ = 1 − t² + g_i g_j, and
E|x_1 − x_i|² = 2(1 − t s_i); with y itself: (1−t)(1+s_i) and 2(1−t). Given t the other scores are independent, and
(1 + c + ΣW)^{−2} = ∫ λ e^{−λ(1+c+ΣW)} dλ separates them.
Size: 1 layer, 1 head, rank d (nearest: d + N), width d (d + N); N ≥ 3.
Bound (proved, d ≥ 3, β ≥ 1, real arithmetic): `bounds.full_rank_error`. To first order in 1/β the error is C/β with
C = (2 ln 2 − 1) n(n−1) ∫ f² S^{n−2} (1−t²), for ties decide: P(gap < δ) ≈ p0 δ, p0 = n(n−1) ∫ f² S^{n−2}.
Failure mode: the error falls as 1/β and no faster; exact ties give the average.
"""

import math

import numpy as np
from scipy.optimize import brentq

from attnfun.errors import Infeasible
from attnfun.kinds.neighbours import pattern, sphere
from attnfun.kinds.neighbours.bounds import LOSS, full_rank_error
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.language.domain import Array
from attnfun.network import TokenNetwork
from attnfun.network.named_coordinates import GAP

MOST_BETA = 1e12


def build(dim: int, points: int, beta: float, nearest: bool) -> TokenNetwork:
    """The network on tokens x (and, for the nearest, the position)."""
    return pattern.full_rank(dim, points, nearest, beta, 2 * beta + GAP)


def predict(dim: int, points: int, beta: float, nearest: bool) -> Prediction:
    """The error by quadrature of the integral above, the proved bound, and what it is to first order."""
    error = exact_error(dim, points, beta, not nearest)
    coarse = exact_error(dim, points, beta, not nearest, nodes=6)
    C, p0, doubt = first_order(dim, points)
    how = "the exact integral, by quadrature (uncertainty: what fewer nodes change); `proved` by an upper sum"
    proved = full_rank_error(dim, points, beta, not nearest) if beta >= 1 else None
    details = {"beta": beta, "C": C, "C_uncertainty": doubt, "p0": p0, "first_order": C / beta}
    return Prediction(error, how, abs(error - coarse), proved, details=details)


def first_order(dim: int, points: int) -> tuple[float, float, float]:
    """(C, p0, what fewer nodes change of C)."""
    n = points - 1

    def times(weight: int) -> tuple[float, float]:
        return sphere.mean(
            dim, lambda t: sphere.density(dim, t) * sphere.above(dim, t) ** (n - 2) * (1 - t * t) ** weight
        )

    (C, doubt), (p0, _) = times(1), times(0)
    return LOSS * n * (n - 1) * C, n * (n - 1) * p0, LOSS * n * (n - 1) * doubt


def exact_error(dim: int, points: int, beta: float, attends_self: bool, nodes: int = 12) -> float:
    """The integral of the statement: Gauss–Legendre in the angles of t and s, the trapezoidal rule in ln λ."""
    n = points - 1
    # the angles at which the least score has any weight
    coarse = np.linspace(math.acos(sphere.reach(dim)), math.acos(-sphere.reach(dim)), 4001)[1:-1]
    chances = _least_score(dim, n, coarse)
    inside = np.flatnonzero(chances > 1e-18 * chances.max())
    step = coarse[1] - coarse[0]
    theta, weight = sphere.panels(np.linspace(coarse[inside[0]] - step, coarse[inside[-1]] + step, 13), nodes)
    least = weight * _least_score(dim, n, theta)
    t = np.cos(theta)[:, None]
    # s = cos(theta·(1 − u)): from s = t at u = 0 to 1, on intervals of u that shrink to the scale of 1/β
    steps = int(math.log2(max(2.0, 8 * beta))) + 4
    u, w = sphere.panels(np.concatenate([[0.0], 2.0 ** -np.arange(steps, -1, -1.0)]), nodes)
    angle = theta[:, None] * (1 - u)
    # t − s = cos θ − cos((1−u)θ), without cancellation
    g = 2 * np.sin(theta[:, None] * (1 - u / 2)) * np.sin(theta[:, None] * u / 2)
    s = t + g
    chance = sphere.peak(dim) * np.sin(angle) ** (dim - 2) * theta[:, None] * w
    chance /= sphere.above(dim, t)
    W = np.exp(-beta * g)
    c = np.exp(-beta * (1 - t[:, 0])) if attends_self else np.zeros(len(theta))
    far = 1 - t[:, 0]
    steps_of_log = 24 * nodes
    logs = np.linspace(-18.0 - math.log(n), math.log(60.0), steps_of_log)
    total = np.zeros(len(theta))
    distance, nearness, mass = 2 * (1 - t * s), 1 + s, chance * W
    for lam in np.exp(logs):
        exponent = -lam * W
        phi = np.maximum(1 + np.sum(chance * np.expm1(exponent), axis=1), 1e-300)
        WD = mass * np.exp(exponent, out=exponent)
        inner = 2 * c * c * far * phi ** (n - 1)
        m_2 = np.sum(distance * WD * W, axis=1)
        own = 2 * c * far * np.sum(nearness * WD, axis=1) if attends_self else 0.0
        inner += (n - 1) * (m_2 + own) * phi ** (n - 2)
        if n >= 3:
            pair = (1 - t[:, 0] ** 2) * np.sum(WD, axis=1) ** 2 + np.sum(g * WD, axis=1) ** 2
            inner += (n - 1) * (n - 2) * pair * phi ** (n - 3)
        total += lam * lam * np.exp(-lam * (1 + c)) * inner
    return float(np.sum(least * total) * (logs[1] - logs[0]))


def _least_score(dim: int, n: int, theta: Array) -> Array:
    """The density of the angle whose cosine is the least of n scores."""
    return np.asarray(n * sphere.peak(dim) * np.sin(theta) ** (dim - 2) * sphere.above(dim, np.cos(theta)) ** (n - 1))


def beta_for(dim: int, points: int, eps: float, nearest: bool) -> float:
    """The least β (three digits, rounded up) whose proved error is at most eps."""

    def excess(log: float) -> float:
        return math.log(full_rank_error(dim, points, math.exp(log), not nearest)) - math.log(eps)

    top = math.log(MOST_BETA)
    if excess(0.0) <= 0:
        return 1.0
    if not excess(top) <= 0:
        least = full_rank_error(dim, points, MOST_BETA, not nearest)
        text = f"eps={eps:g} needs beta above {MOST_BETA:g}, whose logits float64 does not resolve"
        raise Infeasible(text, nearest={"eps": 2 * least})
    beta = math.exp(brentq(excess, 0.0, top, xtol=1e-6))
    digits = 10.0 ** (math.floor(math.log10(beta)) - 2)
    for _ in range(4):
        beta = math.ceil(beta / digits) * digits
        if full_rank_error(dim, points, beta, not nearest) <= eps:
            return float(beta)
        beta += digits / 2
    raise Infeasible(f"no beta is proved to reach eps={eps:g}")
