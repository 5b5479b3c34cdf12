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

Both are written from the grid and the dtype alone: P levels, k coordinates. `prove` holds stored weights against them.
"""

import numpy as np

from attnfun.network.head import Array
from attnfun.network.named_coordinates import Stream
from attnfun.network.tokens import TokenLayer, TokenNetwork

BETA = {"float32": (128.0, 256.0), "float64": (1024.0, 2048.0)}
"""β of the one head, of the cascade: e^−β, and e^(−β/2) for the cascade, are below the smallest number of the dtype."""


def far(levels: int, beta: float) -> float:
    """M: the least power of two from 2P on, times β."""
    return beta * float(1 << (2 * levels - 1).bit_length())


def one_head(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """Logits β u: one head of rank 1 that copies the best key into every token."""
    stream, beta = _stream(coordinates, ("one",)), BETA[dtype][0]
    key = {(f"x{i + 1}", 0): beta * float(levels ** (coordinates - 1 - i)) for i in range(coordinates)}
    pick = _copy(stream, "pick the best", coordinates, key, dtype)
    return _network(stream, (pick,), np.zeros((0, stream.width)), coordinates, dtype)


def cascade(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """k layers: flags of the beaten, coordinate by coordinate, then a copy of the best key."""
    stream, beta = _stream(coordinates, ("one", "constant", "out")), BETA[dtype][1]
    M, carry = far(levels, beta), np.diag([0.0 if name == "out" else 1.0 for name in stream.names])
    layers = []
    for s in range(1, coordinates):
        query = {("one", 0): 1.0, (f"x{s}", 1): beta, ("one", 1): beta / 2, ("out", 1): -M}
        key = {(f"x{s}", 0): beta, ("out", 0): -M, ("constant", 0): -beta * float(levels), ("constant", 1): 1.0}
        parts = query, key, {("one", 0): 1.0, ("constant", 0): -1.0}, {("out", 0): 1.0}
        layers.append(TokenLayer((stream.head(f"who is beaten in x{s}", dtype, *parts),), carry))
    key = {(f"x{coordinates}", 0): beta, ("out", 0): -M, ("constant", 0): -2 * M}
    layers.append(_copy(stream, "pick the best of the rest", coordinates, key, dtype))
    constant = {(f"x{i + 1}", 0): float(levels) for i in range(coordinates)} | {("one", 0): 1.0, ("constant", 0): 1.0}
    return _network(stream, tuple(layers), stream.matrix(1, constant).T, coordinates, dtype)


def _stream(k: int, more: tuple[str, ...]) -> Stream:
    return Stream(0, "", [*(f"x{i + 1}" for i in range(k)), *more, *(f"best{i + 1}" for i in range(k))])


def _copy(stream: Stream, name: str, k: int, key: dict[tuple[str, int], float], dtype: str) -> TokenLayer:
    """A head whose logits are the same for every token that asks, and that writes the values x to `best`."""
    value, best = ({(f"{what}{i + 1}", i): 1.0 for i in range(k)} for what in ("x", "best"))
    return TokenLayer((stream.head(name, dtype, {("one", 0): 1.0}, key, value, best),))


def _network(stream: Stream, layers: tuple[TokenLayer, ...], constants: Array, k: int, dtype: str) -> TokenNetwork:
    outputs = stream.names[-k:]
    readout = stream.matrix(k, {(name, column): 1.0 for column, name in enumerate(outputs)})
    return TokenNetwork(stream.names, layers, constants, readout, outputs, dtype)
