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

import numpy as np

from attnfun.kinds.average.target import Averages
from attnfun.language.circle import circle
from attnfun.network.head import Array


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
