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

Nothing but the stored entries is read, and nothing of a construction. Failure mode: undecided for any other entry.
"""

from __future__ import annotations

import math

import numpy as np

from attnfun.certify.verdict import Proof, undecided
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.head import Array
from attnfun.search import Goal, Say

_BITS = {"float32": 24, "float64": 53}
BETA = {"float32": (128.0, 256.0), "float64": (1024.0, 2048.0)}  # one head, cascade: e^−β and e^(−β/2) underflow
_METHOD = "best key"
_Layer = tuple[Array, Array, Array, Array, Array | None]


def proof(
    target: BestKey, weights: TokenNetwork | TokenTransformer, _goal: Goal | None = None, _say: Say | None = None
) -> Proof:
    """0 for one head or a cascade that holds the grid; undecided for other weights, and why."""
    if not isinstance(weights, TokenNetwork):
        return undecided("it has ReLU units between its layers, and nothing is proved of those", _METHOD)
    P, k, bits = target.levels, target.coordinates, _BITS[weights.dtype]
    single = is_single(weights)
    if single and P**k > 2**bits + 1:
        return undecided(f"one head in {weights.dtype} tells {P:,}^{k} keys not apart", _METHOD)
    if not single and 2 ** (bits - 1) < P:
        return undecided(f"a cascade in {weights.dtype} tells {P:,} levels not apart", _METHOD)
    layers, constants = (_one_head if single else _cascade)(P, k, BETA[weights.dtype][0 if single else 1])
    names = _names(k, single)
    if weights.coordinates != names or len(weights.layers) != len(layers):
        return undecided("the network has other coordinates or layers than one that picks the best key", _METHOD)
    stored = [(*layer.heads[0].arrays.values(), layer.carry) for layer in weights.layers]
    same = all(len(layer.heads) == 1 for layer in weights.layers) and _equal(weights.constants, constants)
    same = same and all(_equal(x, y) for own, wanted in zip(stored, layers, strict=True) for x, y in zip(own, wanted))
    if not same or not _equal(weights.readout, _matrix(names, k, {(f"best{i + 1}", i): 1.0 for i in range(k)})):
        return undecided("an entry of the network is not that of one that picks the best key", _METHOD)
    return Proof(_METHOD, 0.0, hypotheses=_hypotheses(weights.dtype, P))


def _hypotheses(dtype: str, levels: int) -> tuple[str, ...]:
    most = 2 ** _BITS[dtype] // max(1, levels - 1)
    return (
        f"IEEE arithmetic of {dtype}, sums in any order (no TF32)",
        f"an exp that is 0 where the true one underflows in {dtype}",
        f"the best key occurs once, or at most {most:,} times where weights are summed before they are divided",
    )


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
        shift = _far(levels, beta) * math.exp(min(0.0, math.log(n) - beta / 2 + shift)) * (1 + 1e-12)
        if not shift < 0.25:  # the flags' bound needs f below 1/4; no grid and no n that are accepted come here
            return 0.0
    rest = (n - 1) * math.exp(-beta + shift) * (1 + 1e-12)
    return math.nextafter(1 / (1 + rest), 0.0) if n > 1 else 1.0


def _far(levels: int, beta: float) -> float:
    """M: the least power of two from 2P on, times β."""
    return beta * float(1 << (2 * levels - 1).bit_length())


def _names(k: int, single: bool) -> tuple[str, ...]:
    more = ("one",) if single else ("one", "constant", "out")
    return (*(f"x{i + 1}" for i in range(k)), *more, *(f"best{i + 1}" for i in range(k)))


def _matrix(names: tuple[str, ...], columns: int, entries: dict[tuple[str, int], float]) -> Array:
    out = np.zeros((len(names), columns))
    for (name, column), value in entries.items():
        out[names.index(name), column] = value
    return out


def _copy(names: tuple[str, ...], k: int, key: dict[tuple[str, int], float]) -> _Layer:
    """A head whose logits are the same for every token that asks, and that writes the values x to `best`."""
    value = _matrix(names, k, {(f"x{i + 1}", i): 1.0 for i in range(k)})
    output = _matrix(names, k, {(f"best{i + 1}", i): 1.0 for i in range(k)}).T
    return _matrix(names, 1, {("one", 0): 1.0}), _matrix(names, 1, key), value, output, None


def _one_head(P: int, k: int, beta: float) -> tuple[list[_Layer], Array]:
    names = _names(k, True)
    place = {(f"x{i + 1}", 0): beta * float(P ** (k - 1 - i)) for i in range(k)}
    return [_copy(names, k, place)], np.zeros((0, len(names)))


def _cascade(P: int, k: int, beta: float) -> tuple[list[_Layer], Array]:
    names, M = _names(k, False), _far(P, beta)
    value, output = _matrix(names, 1, {("one", 0): 1.0, ("constant", 0): -1.0}), _matrix(names, 1, {("out", 0): 1.0}).T
    carry = np.diag([0.0 if name == "out" else 1.0 for name in names])
    layers: list[_Layer] = []
    for s in range(1, k):
        asked = {("one", 0): 1.0, (f"x{s}", 1): beta, ("one", 1): beta / 2, ("out", 1): -M}
        key = {(f"x{s}", 0): beta, ("out", 0): -M, ("constant", 0): -beta * float(P), ("constant", 1): 1.0}
        layers.append((_matrix(names, 2, asked), _matrix(names, 2, key), value, output, carry))
    layers.append(_copy(names, k, {(f"x{k}", 0): beta, ("out", 0): -M, ("constant", 0): -2 * M}))
    c = {(f"x{i + 1}", 0): float(P) for i in range(k)} | {("one", 0): 1.0, ("constant", 0): 1.0}
    return layers, _matrix(names, 1, c).T


def _equal(stored: Array | None, wanted: Array | None) -> bool:
    return stored is wanted if stored is None or wanted is None else np.array_equal(stored, wanted)
