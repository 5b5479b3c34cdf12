"""Heads that pick the lexicographically best of n key tokens: one head for small grids, a cascade for large ones.

Statement. Keys x ∈ {0, …, P−1}^k, n tokens, plain softmax attention without a mask. Both networks give every token the
best key, with at least the winner weight below on tokens equal to it; in a format of p bits every logit that decides
is computed without rounding, and the losers' weights underflow to 0, so a best key that occurs once is copied exactly.

*One head* (rank 1, P^k ≤ 2^p + 1): logits β u(x), u = Σ_i P^(k−i) x_i. Gaps are at least 1, so the weight on the best
key is at least 1/(1 + (n − 1) e^−β). β is a power of two with e^−β = 0 in the format (128; 1024 in float64).

*Cascade* (k layers of one head, rank 2 and at last 1, P ≤ 2^(p−1)): B(x1 − m1) + x2 would need B > P, that is P² levels
once more. Instead layer s < k writes into each token a flag `out` that says whether it is beaten in coordinates 1…s.
One constant token c stands for the token that asks: token i sees

    logit of key j    β x_s(j) − M out(j)
    logit of c        β (x_s(i) + 1/2) − M out(i)        value 1 for keys, 0 for c:  out(i) ← 1 − weight of c

so c wins by β/2 iff token i is not out and no other token that is not out has more; out(i) is then 0, else 1. The large
number M = 2^⌈log2 2P⌉ β multiplies a flag that is 0 for those who are still in it, so it costs them no bits: it is the
losers' x_s that drowns, and that no longer matters. The last layer picks: logits β x_k − M out, values x.

Bound. In real arithmetic flags of those still in are at most f_s, f_0 = 0 and f_s = n exp(−β/2 + M f_{s−1}), those of
losers at least 1 − f_s: c leads or trails other keys by β/2 − M f_{s−1} at least, and losers' logits lie below by
more, because M(1 − 2f) ≥ β(P + 1/2). The weight on the best key is at least 1/(1 + (n−1) exp(−β + M f_{k−1}))
(`prove.winner_weight`).
In p bits: x_s + 1/2 has p bits for x_s < 2^(p−1), β is a power of two and the flag an exact 0, e^(−β/2) = 0 (β = 256,
2048 in float64), so deciding logits are exact in any order of summation. A platform whose exp gives up to e^−100
instead of 0 there changes nothing: M·n·e^−100 ≤ 1e-8 for all P and n that are accepted, far below β/2.
Equal best keys share their weight; the average of m of them is off by at most (m + 2) 2^−p relatively.

Size. One head: k weights. Cascade: k heads, one constant token, width 2k + 3.
Failure mode. Keys off the grid, and n above 2^(p−2), are refused; torch agrees on the CPU in the dtype of the network.
"""

from attnfun.kinds.lexicographic.pattern import BETA, cascade, one_head

__all__ = ["BETA", "cascade", "one_head"]
