"""Method sparse average: how far a head with position codes is from the mean over the positions a query names.

| symbol | meaning |
| --- | --- |
| u_j, w_S | the codes that tokens hold, as floats; β the stored factor of the keys, a power of two |
| ŝ_j, D_j | ⟨w_S, u_j⟩ as computed here, and a bound on how far it and the network's own sum are from it and each other |
| t | logits on S lie within [t_min, t_max], rounding included; w: width of the range of the z |

Every sum of m products is within γ_{m+2} Σ|w||u| of the true one, whatever its order, so two of them differ by at most
twice that. With λ = (1/q) Σ_{j∉S} e^{(β(ŝ_j + D_j) − t_min)(1 − 8u) + 2E} the weight outside S is at most λ, and on S the
weights are those of equal logits moved by at most (t_max − t_min)/2 + E:

    |out − mean| ≤ w (λ + tanh((t_max − t_min)/4 + E/2)) + 2γ_{N+24} max|z|

(`rounding` for E, the 8u and tanh; a difference that is above 0 is not shrunk: Undecided).

Failure mode: Undecided where a logit outside S is not below those of S, or the network is another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.rounding import ROUNDOFF, gamma, hypotheses
from attnfun.certify.view import Undecided
from attnfun.network import TokenNetwork
from attnfun.network.head import Array

_SAFE = 1 + 1e-9


@dataclass(frozen=True)
class AverageBound:
    """Outputs are within `error` of the means; outside their sets all codes score at most 1 − `margin` of those inside."""

    error: float
    margin: float
    beta: float
    largest_score: float
    hypotheses: tuple[str, ...]


def prove_sparse_average(
    network: TokenNetwork,
    keys: Array,
    queries: Array,
    subsets: tuple[tuple[int, ...], ...],
    z_range: tuple[float, float],
) -> AverageBound:
    """The worst error over the queries (S, m), query s standing for subsets[s], for z in z_range."""
    N, m = keys.shape
    beta = _pattern(network, m)
    u = ROUNDOFF[network.dtype]
    if queries.shape != (len(subsets), m) or not (np.isfinite(keys).all() and np.isfinite(queries).all()):
        raise Undecided("keys and queries do not fit, or are not finite")
    low, high = z_range
    width, size = (high - low) * _SAFE, max(abs(low), abs(high))
    scores = queries @ keys.T
    off = 2 * gamma(m + 2, u) * (np.abs(queries) @ np.abs(keys).T) * _SAFE + 1e-300
    inside = _members(subsets, N)
    E = 16 * (1 + N // 64) * u
    t_min = np.where(inside, scores - off, np.inf).min(axis=1) * beta
    t_max = np.where(inside, scores + off, -np.inf).max(axis=1) * beta
    gaps = np.where(inside, -math.inf, (scores + off) * beta - t_min[:, None])
    if not (np.isfinite(t_min).all() and np.isfinite(t_max).all() and (gaps < 0).all()):  # NaN must not pass
        raise Undecided("a position outside its set scores as high as one inside")
    q = np.array([len(s) for s in subsets], dtype=np.float64)
    leak = np.exp(gaps * (1 - 16 * u) + 2 * E).sum(axis=1) / q * _SAFE
    uneven = np.tanh((t_max - t_min) * _SAFE / 4 + E)
    error = width * float((leak + uneven).max()) * _SAFE + 2 * gamma(N + 24, u) * size
    rest = np.where(inside, -np.inf, scores + off).max(axis=1)
    margin = float((1 - rest / np.where(inside, scores, np.inf).min(axis=1)).min()) if N > q.max() else math.inf
    if not error < math.inf:
        raise Undecided("the bound is infinite")
    return AverageBound(error, margin, beta, float(np.abs(scores).max()), hypotheses(network.dtype))


def _members(subsets: tuple[tuple[int, ...], ...], tokens: int) -> NDArray[np.bool_]:
    inside = np.zeros((len(subsets), tokens), dtype=bool)
    for row, subset in enumerate(subsets):
        inside[row, list(subset)] = True
    return inside


def _pattern(network: TokenNetwork, m: int) -> float:
    """β of a network whose entries are those of one that averages; Undecided otherwise."""
    dim, total = len(network.outputs), network.width
    if len(network.layers) != 1 or len(network.heads) != 1 or total != 2 * m + 2 * dim or len(network.constants):
        raise Undecided("the network has another shape than one that averages")
    head, eye = network.heads[0], np.eye(total)
    if network.layers[0].carry is not None or head.query_dim != m or head.outputs != dim:
        raise Undecided("the network has another shape than one that averages")
    beta = float(head.key[0, 0])
    if not (beta > 0 and math.frexp(beta)[0] == 0.5):
        raise Undecided("beta is no power of two")
    means = eye[:, 2 * m + dim :]
    wanted = (eye[:, m : 2 * m], beta * eye[:, :m], eye[:, 2 * m : 2 * m + dim], means.T)
    same = all(np.array_equal(x, y) for x, y in zip(head.arrays.values(), wanted, strict=True))
    if not (same and np.array_equal(network.readout, means)):
        raise Undecided("an entry of the network is not that of one that averages")
    return beta
