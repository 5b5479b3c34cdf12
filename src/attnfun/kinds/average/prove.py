"""Method sparse average: how far heads with position codes are from the mean over the positions a query names.

| symbol | meaning |
| --- | --- |
| u_j, w_S | the codes that tokens hold, as floats; β the stored factor of the keys, a power of two |
| ŝ_j, D_j | ⟨w_S, u_j⟩ as computed here, and a bound on how far the network's own sum is from it |
| t | logits on S lie within [t_min, t_max], rounding included; w: width of the range of the z |

Every sum of m products is within γ_{m+2} Σ|w||u| of the true one, whatever its order, so two of them differ by at most
twice that. With λ = (1/q) Σ_{j∉S} e^{(β(ŝ_j + D_j) − t_min)(1 − 8u) + 2E} the weight outside S is at most λ, and on S
the weights are those of equal logits moved by at most (t_max − t_min)/2 + E:

    |out − mean| ≤ w (λ + tanh((t_max − t_min)/4 + E/2)) + 2γ_{N+24} max|z|

(`rounding` for E, the 8u and tanh; a difference that is above 0 is not shrunk: Undecided). H heads take every H-th
position of the set each, equally many; the output is the mean of theirs, whose errors are at most the largest, and the
sum costs γ_{H+4} max|z|.

Failure mode: Undecided where a logit outside S is not below those of S, where one may overflow, in float32, or where
the network is another.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnfun.certify.rounding import LARGEST, ROUNDOFF, gamma, hypotheses, kernel_move
from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.average.target import Averages
from attnfun.kinds.average.weights import Coded, Sets, sparse_average_network
from attnfun.language.brief import Brief
from attnfun.network import TokenNetwork
from attnfun.network.head import Array
from attnfun.network.tokens import same_entries
from attnfun.search import Goal, Say

_SAFE = 1 + 1e-9


@dataclass(frozen=True)
class AverageBound(Brief):
    """Outputs are within `error` of the means; outside their sets codes score at most 1 − `margin` of those inside.

    `reach`: the largest |w| of all queries times the largest Σ|u_j|; queries rounded by a part s of their largest
    number move scores by s · reach at most.
    """

    error: float
    margin: float
    beta: float
    reach: float
    hypotheses: tuple[str, ...]


def proof(target: Averages, weights: Coded, _goal: Goal, _say: Say) -> Proof:
    """The worst error over the sets of the target."""
    try:
        found = averaged(target, weights, target.subsets)
    except Undecided as why:
        return undecided(why, "sparse average")
    sets = f"for the {len(target.subsets):,} sets "
    sets += "it was trained on, and no others" if target.others is None else "given; others are proved when encoded"
    return Proof("sparse average", found.error, hypotheses=(sets, *found.hypotheses))


def averaged(target: Averages, weights: Coded, named: Sets) -> AverageBound:
    """The bound for these sets; Undecided where there is none."""
    if not isinstance(weights.network, TokenNetwork):
        raise Undecided("it has ReLU units between its layers, and nothing is proved of those")
    queries = weights.queries(target.keys, named, target.heads)
    return prove_by_sparse_average(weights.network, weights.codes, queries, named, target.z_range)


def prove_by_sparse_average(
    network: TokenNetwork, keys: Array, queries: Array, subsets: Sets, z_range: tuple[float, float]
) -> AverageBound:
    """The worst error over the queries (S, H, m), query s standing for subsets[s], for z in z_range."""
    N, m = keys.shape
    heads = len(network.heads)
    beta = _beta(network, m)
    provided(network.dtype == "float64", "averages are proved in float64: float32 cuts codes and z uncounted")
    u = ROUNDOFF[network.dtype]
    if queries.shape != (len(subsets), heads, m) or not (np.isfinite(keys).all() and np.isfinite(queries).all()):
        raise Undecided("keys and queries do not fit, or are not finite")
    if not subsets or any(not s or len(s) % heads or len(set(s)) != len(s) for s in subsets):
        raise Undecided("the heads do not share the positions equally")
    provided(all(0 <= j < N for s in subsets for j in s), "a set names a position that there is not")
    low, high = z_range
    provided(low <= high, "the range of z is empty")  # NaN must not pass
    width, size = (high - low) * _SAFE, max(abs(low), abs(high))
    logits = m * beta * float(np.abs(keys).max()) * max(1.0, float(np.abs(queries).max()))
    provided(size < LARGEST[network.dtype] and logits < LARGEST[network.dtype], "logits or values past what is counted")
    worst, margin = 0.0, math.inf
    for head in range(heads):
        found = _one_head(keys, queries[:, head], tuple(s[head::heads] for s in subsets), beta, u)
        worst, margin = max(worst, found[0]), min(margin, found[1])
    error = (width * worst + (2 * gamma(N + 24, u) + 2 * gamma(heads + 4, u)) * size) * _SAFE
    provided(error < math.inf, "the bound is infinite")
    reach = float(np.abs(queries).max() * np.abs(keys).sum(axis=1).max()) * _SAFE
    return AverageBound(error, margin, beta, reach, hypotheses(network.dtype))


def _one_head(keys: Array, queries: Array, subsets: Sets, beta: float, u: float) -> tuple[float, float]:
    """(bound for z of width 1 but for the rounding of sums, margin)."""
    N, m = keys.shape
    scores = queries @ keys.T
    sizes = np.abs(queries) @ np.abs(keys).T
    off = 2 * gamma(m + 2, u) * sizes * _SAFE + 1e-300
    inside = np.zeros((len(subsets), N), dtype=bool)
    for row, subset in zip(inside, subsets):
        row[list(subset)] = True
    E = kernel_move(N, "float64", spare=6)
    t_min = np.where(inside, scores - off, np.inf).min(axis=1) * beta
    t_max = np.where(inside, scores + off, -np.inf).max(axis=1) * beta
    gaps = np.where(inside, -math.inf, (scores + off) * beta - t_min[:, None])
    if not (np.isfinite(t_min).all() and np.isfinite(t_max).all() and (gaps < 0).all()):  # NaN must not pass
        raise Undecided("a position outside its set scores as high as one inside")
    q = np.array([len(s) for s in subsets], dtype=np.float64)
    leak = np.exp(gaps * (1 - 16 * u) + 2 * E).sum(axis=1) / q * _SAFE
    uneven = np.tanh((t_max - t_min) * _SAFE / 4 + E)
    rest = np.where(inside, -np.inf, scores + off).max(axis=1)
    margin = float((1 - rest / np.where(inside, scores, np.inf).min(axis=1)).min())
    return float((leak + uneven).max()) * _SAFE, margin


def _beta(network: TokenNetwork, m: int) -> float:
    """β of a network whose entries are those of one that averages; Undecided otherwise."""
    dim, heads = len(network.outputs), network.heads
    if len(network.layers) != 1 or network.width != (1 + len(heads)) * m + 2 * dim:
        raise Undecided("the network has another shape than one that averages")
    beta = float(heads[0].key[0, 0])
    provided(beta > 0 and math.frexp(beta)[0] == 0.5, "beta is no power of two")
    provided(same_entries(network, sparse_average_network(m, dim, beta, len(heads))), "an entry is not one of averages")
    return beta
