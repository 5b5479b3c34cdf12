"""Averages over q named tokens of N (sparse averaging), by heads whose keys are codes of positions.

Statement: token i holds z_i, its position i and a set S_i of q positions; target (1/q) Σ_{j ∈ S_i} z_j. If keys u_j in
R^m and a query w_S satisfy ⟨w_S, u_j⟩ = 1 on S and at most 1 − μ elsewhere, the head with logits β⟨w_S, u_j⟩ and values
z_j is off by at most ((N − q)/q) e^{−βμ} (max z − min z).

Source: C. Sanford, D. Hsu, M. Telgarsky 2023, arXiv 2306.02896: m of the order of q log N at bounded precision, m = 2q
exactly without bound on precision; m p must be at least of the order of q (quoted, constant unknown).

Derivation: weights on S are equal, and e^{−βμ} of them at most elsewhere. Two kinds of keys:
*random*: random signs in R^m, w_S the least-norm solution of ⟨w, u_j⟩ = 1 on S. Two codes overlap by about √(m), so
⟨w_S, u_j⟩ elsewhere is about √(q/m): m = 4 q ln N is a rule of thumb, not a theorem; μ is computed for every set used.
*curve*: u_j = (cos kt_j, sin kt_j), k = 1..q, t_j = 2πj/N, m = 2q; w_S the coefficients of −Π_{i∈S}(1 − cos(t − t_i)),
which is 0 on S and negative elsewhere, without its constant and scaled to 1 on S: exact for every set of every N, with
a margin that falls like N^{−2q}.

*several heads*: H heads, H a divisor of q, average over q/H of the positions each, and the output is their mean. With
H = q and the curve a head of rank 2 copies one position, with margin 1 − cos(2π/N) only: as many coordinates of queries
as one head on the curve (2q), at 2 log2 N bits instead of 2q log2 N.

Size: 1 layer, H heads of rank m; tokens of width m + H m + 2 dim; β = ln((N − q)/(q ε))/μ, raised to a power of two.

Bound: `prove`, from the numbers of the tokens and weights, for every set that is encoded.

Failure mode: μ ≤ 0 (random keys of too small m), or a margin that rounding eats (curves with large N, q): Infeasible.
The query w_S is computed by the encoder from S (a linear solve or a product), not by the network.

Example: `sparse_average_network(44, 1, 32.0)` has one head of rank 44 and reads tokens of width 90.
"""

import math

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.average.target import Averages, rule_of_thumb
from attnfun.kinds.average.weights import Coded, Sets, sparse_average_network
from attnfun.language.circle import circle
from attnfun.network.head import Array
from attnfun.search import Proposal, Proposals

_DOUBLINGS = 3


def position_codes(target: Averages) -> Array:
    """(N, m): the keys that a target names."""
    if target.keys == "curve":
        return curve_keys(target.tokens, target.q // target.heads)
    drawn = np.random.default_rng(target.seed).random((target.tokens, target.width))
    return np.where(drawn < 0.5, -1.0, 1.0)  # independent signs


def curve_keys(tokens: int, q: int) -> Array:
    """(N, 2q): cos kt_j and sin kt_j, k = 1..q, t_j = 2πj/N."""
    cos, sin = circle(np.outer(np.arange(tokens), np.arange(1, q + 1)) % tokens, tokens, "float64")
    return np.concatenate([cos, sin], axis=1)


def proposals(target: Averages) -> Proposals:
    """The least β of the theorem for the margin of these sets, and twice that, and so on."""
    N, q, m, eps = target.tokens, target.q, target.width, target.others or 0.0
    share, (low, high) = q // target.heads, target.z_range
    codes = position_codes(target)
    plain = Coded(sparse_average_network(m, target.dim, 1.0, target.heads), codes)
    mu = _margin(codes, plain.queries(target.keys, target.subsets, target.heads), target.subsets)
    if not mu > 0:
        wider = {"width": max(2 * m, 2 * rule_of_thumb(N, share))}
        nearest = wider if target.keys == "random" else {"keys": "random"}
        raise Infeasible(f"averages over {q} of {N}: {m} coordinates do not tell every set apart", nearest)
    wanted = max(math.log((N - share) / share * (high - low) / eps), 1.0) / mu
    beta, why = 2.0 ** math.ceil(math.log2(wanted)), ""
    for _ in range(_DOUBLINGS):
        network = sparse_average_network(m, target.dim, beta, target.heads)
        missed = yield Proposal(plain.holding(network), "sparse average")
        why, beta = f"averages over {q} of {N} with margin {mu:.2g}: eps={eps:g}: {missed.reason}", 2 * beta
    raise Infeasible(why, {"keys": "random"} if target.keys == "curve" else {"eps": 4 * eps})


def _margin(codes: Array, queries: Array, named: Sets) -> float:
    """1 − the largest score of a position outside its set, as computed."""
    worst, heads = -math.inf, queries.shape[1]
    for head in range(heads):
        for row, subset in zip(queries[:, head] @ codes.T, named, strict=True):
            worst = max(worst, float(np.delete(row, list(subset[head::heads])).max()))
    return 1 - worst
