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

from __future__ import annotations

import numpy as np

from attnfun.network.head import Array
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork

BETA = {"float32": (128.0, 256.0), "float64": (1024.0, 2048.0)}
"""β of the one head, of the cascade: e^−β, and e^(−β/2) for the cascade, are below the smallest number of the dtype."""


def one_head(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """Logits β u: one head of rank 1 that copies the best key into every token."""
    names = _names(coordinates, ("one",))
    beta = BETA[dtype][0]
    head = _Head(names, 1)
    head.query["one", 0] = 1.0
    for i in range(coordinates):
        head.key[f"x{i + 1}", 0] = beta * float(levels ** (coordinates - 1 - i))
    return _network(names, (head.copy_of_best("pick the best", coordinates),), np.zeros((0, len(names))), dtype)


def cascade(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """k layers: flags of the beaten, coordinate by coordinate, then a copy of the best key."""
    names = _names(coordinates, ("one", "constant", "out"))
    beta = BETA[dtype][1]
    far, most = beta * _far(levels), beta * float(levels)
    layers = []
    for i in range(1, coordinates):
        head = _Head(names, 2)
        head.query["one", 0] = 1.0
        head.key[f"x{i}", 0], head.key["out", 0], head.key["constant", 0] = beta, -far, -most
        head.query[f"x{i}", 1], head.query["one", 1], head.query["out", 1] = beta, beta / 2, -far
        head.key["constant", 1] = 1.0
        carry = np.eye(len(names))
        carry[names.index("out"), names.index("out")] = 0.0
        value, output = np.zeros((len(names), 1)), np.zeros((1, len(names)))
        value[names.index("one"), 0], value[names.index("constant"), 0] = 1.0, -1.0
        output[0, names.index("out")] = 1.0
        flag = TokenHead(f"who is beaten in x{i}", head.query.array, head.key.array, value, output)
        layers.append(TokenLayer((flag,), carry))
    pick = _Head(names, 1)
    pick.query["one", 0] = 1.0
    pick.key[f"x{coordinates}", 0], pick.key["out", 0], pick.key["constant", 0] = beta, -far, -2 * far
    layers.append(pick.copy_of_best("pick the best of the rest", coordinates))
    constant = np.zeros((1, len(names)))
    constant[0, [names.index(f"x{i + 1}") for i in range(coordinates)]] = float(levels)
    constant[0, [names.index("one"), names.index("constant")]] = 1.0
    return _network(names, tuple(layers), constant, dtype)


def _far(levels: int) -> float:
    return float(1 << (2 * levels - 1).bit_length())


class _Matrix:
    """(coordinates, columns) zeros, written by the coordinate's name."""

    def __init__(self, names: tuple[str, ...], columns: int) -> None:
        self.names, self.array = names, np.zeros((len(names), columns))

    def __setitem__(self, place: tuple[str, int], value: float) -> None:
        self.array[self.names.index(place[0]), place[1]] = value


class _Head:
    def __init__(self, names: tuple[str, ...], rank: int) -> None:
        self.names = names
        self.query, self.key = _Matrix(names, rank), _Matrix(names, rank)

    def copy_of_best(self, name: str, coordinates: int) -> TokenLayer:
        value, output = np.zeros((len(self.names), coordinates)), np.zeros((coordinates, len(self.names)))
        for i in range(coordinates):
            value[self.names.index(f"x{i + 1}"), i] = 1.0
            output[i, self.names.index(f"best{i + 1}")] = 1.0
        return TokenLayer((TokenHead(name, self.query.array, self.key.array, value, output),))


def _names(coordinates: int, more: tuple[str, ...]) -> tuple[str, ...]:
    keys = tuple(f"x{i + 1}" for i in range(coordinates))
    return (*keys, *more, *(f"best{i + 1}" for i in range(coordinates)))


def _network(names: tuple[str, ...], layers: tuple[TokenLayer, ...], constants: Array, dtype: str) -> TokenNetwork:
    outputs = tuple(name for name in names if name.startswith("best"))
    readout = np.zeros((len(names), len(outputs)))
    for column, name in enumerate(outputs):
        readout[names.index(name), column] = 1.0
    return TokenNetwork(names, layers, constants, readout, outputs, dtype)
