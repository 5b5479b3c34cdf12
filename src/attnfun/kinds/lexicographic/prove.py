"""Method best key: which stored networks pick the lexicographically best key without any error.

Statement. Let a network of p bits (24 in float32, 53 in float64) on n ≤ 2^(p−2) keys x ∈ {0, …, P−1}^k be, entry by
entry, one of the two below. Then every token holds the best key exactly, as the dtype computes it, if the best key
occurs once; and if it occurs m times with m(P − 1) ≤ 2^p, where weights are summed before they are divided.

*One head* (P^k ≤ 2^p + 1, β = 128 in float32, 1024 in float64): logits β Σ_i P^(k−i) x_i, values x.

*Cascade* (P ≤ 2^(p−1), β = 256 or 2048, M = 2^⌈log2 2P⌉ β): one constant token c, whose coordinates x are all P.
Layers s < k write a flag `out` and carry everything else on; layer k picks:

    s < k    logit of key j   β x_s(j) − M out(j)               value 1
             logit of c       β (x_s(i) + 1/2) − M out(i)       value 0,  as token i sees it
    k        logit of key j   β x_k(j) − M out(j)               values x;  c: β P − 2M

Derivation. *One head*: all sums of products are β times whole numbers of at most P^k − 1 ≤ 2^p, so nothing rounds in
any order; different keys have logits that differ by β at least, and e^−β underflows. *Cascade*, by induction on s:
after layer s a token has out = 0 if no key is better in coordinates 1…s, else 1, both exactly. c's key is β P − β P = 0
exactly, so its logit is what token i says. Logits of tokens still in are β x_s ≥ 0, and x_s + 1/2 has p bits: exact.
Those of beaten tokens are at most β(P − 1) − M ≤ −β(P + 1), rounding or not. A token that is still in and has the
largest x_s of those sees c ahead of all others by β/2 at least: its out is 0. Another one that is still in sees a key
ahead of c by β/2 at least, and a beaten one sees c at β(P − 1/2) − M < −β P: of either the weight of c underflows,
those that are left are equal, and out is a whole number divided by itself. c itself asks with x_s = P, more than any
key has, and stays at 0. *Last*: weights are equal on the copies of the best key; beaten keys and c are behind by β at
least, and underflow. Of one copy the answer is x/1; of m copies the sum is m x ≤ 2^p, exact in any order, and so is
m x/m.

Nothing but the stored entries is read. They are compared with the networks that `pattern.py` writes, which is what the
construction proposes too: the theorem is about that code, so read both. Failure mode: undecided for any other entry.
"""

import math

from attnfun.certify.verdict import Proof, undecided
from attnfun.kinds.lexicographic.pattern import cascade, far, one_head
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.limits.grids import BITS
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.tokens import same_entries
from attnfun.search import Goal, Say

_METHOD = "best key"


def proof(
    target: BestKey, weights: TokenNetwork | TokenTransformer, _goal: Goal | None = None, _say: Say | None = None
) -> Proof:
    """0 for one head or a cascade that holds the grid; undecided for other weights, and why."""
    if not isinstance(weights, TokenNetwork):
        return undecided("it has ReLU units between its layers, and nothing is proved of those", _METHOD)
    P, k, bits = target.levels, target.coordinates, BITS[weights.dtype]
    single = is_single(weights)
    if single and P**k > 2**bits + 1:
        return undecided(f"one head in {weights.dtype} tells {P:,}^{k} keys not apart", _METHOD)
    if not single and 2 ** (bits - 1) < P:
        return undecided(f"a cascade in {weights.dtype} tells {P:,} levels not apart", _METHOD)
    if not same_entries(weights, (one_head if single else cascade)(P, k, weights.dtype)):
        return undecided("the network, entry by entry, is not one that picks the best key", _METHOD)
    hypotheses = (
        f"IEEE arithmetic of {weights.dtype}, sums in any order (no TF32)",
        f"an exp that is 0 where the true one underflows in {weights.dtype}",
        f"the best key occurs once, or at most {2**bits // max(1, P - 1):,} times where weights are summed before they "
        "are divided",
    )
    return Proof(_METHOD, 0.0, hypotheses=hypotheses)


def is_single(network: TokenNetwork | TokenTransformer) -> bool:
    """One head has no constant token, a cascade has one."""
    return "constant" not in network.coordinates


def winner_weight(levels: int, coordinates: int, beta: float, n: int, single: bool) -> float:
    """The weight on the best key among n in real arithmetic, from below.

    One head: 1/(1 + (n − 1) e^−β). Cascade: flags of those still in are at most f_s, f_0 = 0 and f_s = n exp(−β/2 +
    M f_{s−1}), those of losers at least 1 − f_s, because c leads or trails other keys by β/2 − M f_{s−1} at least, and
    M(1 − 2f) ≥ β(P + 1/2); so at least 1/(1 + (n − 1) exp(−β + M f_{k−1})), rounded down.
    """
    shift = 0.0
    for _ in range(0 if single else coordinates - 1):
        shift = far(levels, beta) * math.exp(min(0.0, math.log(n) - beta / 2 + shift)) * (1 + 1e-12)
        if not shift < 0.25:  # the flags' bound needs f below 1/4; no grid and no n that are accepted come here
            return 0.0
    rest = (n - 1) * math.exp(-beta + shift) * (1 + 1e-12)
    return math.nextafter(1 / (1 + rest), 0.0) if n > 1 else 1.0
