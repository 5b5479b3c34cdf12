"""From set disjointness to triples, and the two-party protocol that any attention layer is: both executable.

Statement (reduction). For a, b in {0,1}^n let N = 2n+1, M = 20n, and tokens 1; then for i = 1..n 3n+i if a_i, else 3n;
then for i = 1..n M−1−(3n+i) if b_i, else M−1−(4n+1). Token 0 is in a triple that sums to 0 mod M iff a_i = b_i = 1 for
some i.
Derivation. Alice's tokens A lie in 3n..4n, Bob's are M−1−B with B in 3n+1..4n+1. 1 + A + (M−1−B) ≡ 0 iff A = B, which
then is 3n+i with a_i = b_i = 1. No other triple with token 0 sums to a multiple of M: 1+A+A' ≤ 8n+1; two of Bob's give
2M−1−B−B', from 32n−3 to 34n−3; and 1+1+x is 3, at most 4n+2, or M+1−B, none of them 0 mod 20n for n ≥ 1.

Statement (protocol). One attention layer, a token that both parties know, Alice's tokens and Bob's. For every head
Alice sends the largest logit of her tokens, their normaliser and its r averages of values, p bits each; Bob does the
rest. That is H(r+2)p bits, and the output is the layer's but for rounding them.
Derivation. Softmax sums over a union of tokens are sums over the parts after a common shift. Each number is sent as one
of 2^p equally spaced ones in a range that both parties know: a logit in ±L, L from the weights and a bound of the
entries of the tokens (rounded up, and the sums are taken after that rounding, so it costs nothing); the logarithm of
the normaliser between −(step of the logit) and ln n; averages in ±V. Their errors are half a step each.

Source. Idea: C. Sanford, D. Hsu, M. Telgarsky 2023, arXiv 2306.02896. The numbers of the reduction are checked here.
Size. 2n+1 tokens; H(r+2)p bits. Bound: none; the error is measured. Failure mode: few bits, or ranges so large that 2^p
steps are coarse.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.language.domain import Array
from attnfun.language.numbers import whole_number
from attnfun.network import TokenHead, TokenNetwork


def disjointness_to_triples(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """(2n+1 tokens, modulus 20n): token 0 has a triple iff the sets a and b (bits) meet."""
    left, right = (np.asarray(x) for x in (a, b))
    if left.ndim != 1 or left.shape != right.shape or len(left) == 0:
        raise InvalidRequest("disjointness is of two sets given by equally many bits")
    require(np.isin(left, (0, 1)).all() and np.isin(right, (0, 1)).all(), "sets are given by bits 0 and 1")
    n = len(left)
    M, i = 20 * n, np.arange(1, n + 1)
    alice = np.where(left == 1, 3 * n + i, 3 * n)
    bob = M - 1 - np.where(right == 1, 3 * n + i, 4 * n + 1)
    return np.concatenate([[1], alice, bob]).astype(np.int64), M


@dataclass(frozen=True, eq=False)
class Conversation:
    """What Bob puts out for the common token, what the layer puts out, and the bits that Alice sent."""

    output: Array
    layer_output: Array
    bits: int

    @property
    def error(self) -> float:
        return float(np.abs(self.output - self.layer_output).max())


def converse(
    network: TokenNetwork, common: ArrayLike, alice: ArrayLike, bob: ArrayLike, bits: int, largest: float = 1.0
) -> Conversation:
    """The protocol on a network of one layer: the read-out of the token `common` (width,), from the tokens of both.

    `largest`: a bound of the entries of all tokens that both parties know beforehand. Constant tokens and `common` are
    known to both and counted as Bob's.
    """
    require(len(network.layers) == 1, f"the protocol is of one layer, and the network has {len(network.layers)}")
    bits = whole_number("bits", bits, 1, 52)
    known, mine, theirs = (np.asarray(x, dtype=np.float64) for x in (common, alice, bob))
    if known.shape != (network.width,) or any(x.ndim != 2 or x.shape[1] != network.width for x in (mine, theirs)):
        raise InvalidRequest(f"tokens of width {network.width} are needed: one common, and those of either party")
    if len(mine) == 0 or not all((np.abs(x) <= largest).all() for x in (known, mine, theirs)):  # NaN must not pass
        raise InvalidRequest(f"Alice needs a token, and no entry of a token may exceed largest={largest:g}")
    layer = network.layers[0]
    own = np.concatenate([known[None], theirs, network.constants])
    stream = known if layer.carry is None else known @ layer.carry
    spent = 0
    for head in layer.heads:
        message = _message(head, known, mine, bits, largest)
        spent += bits * (head.outputs + 2)
        stream = stream + _answer(head, known, own, *message) @ head.output
    whole = network.run(np.concatenate([known[None], mine, theirs]))[0]
    return Conversation(np.asarray(stream @ network.readout), np.asarray(whole, dtype=np.float64), spent)


def _message(head: TokenHead, query: Array, tokens: Array, bits: int, largest: float) -> tuple[float, float, Array]:
    """(largest logit, logarithm of the normaliser, averages) as p-bit numbers of ranges known to both."""
    range_logit = max(float(np.abs(query @ head.query @ head.key.T).sum()) * largest, 1e-300)
    range_value = np.maximum(np.abs(head.value).sum(axis=0) * largest, 1e-300)
    logits = tokens @ head.key @ (head.query.T @ query)
    step = 2 * range_logit / (2**bits - 1)
    place = min(max(np.ceil((logits.max() + range_logit) / step), 0.0), 2.0**bits - 1)
    top = float(place * step - range_logit)
    weights = np.exp(logits - top)
    total = float(weights.sum())
    log_total = _rounded(np.array(np.log(max(total, 1e-300))), -step, max(np.log(len(tokens)), 1e-9), bits)
    averages = _rounded(weights @ (tokens @ head.value) / total, -range_value, range_value, bits)
    return top, float(log_total), averages


def _rounded(x: Array, low: float | Array, high: float | Array, bits: int) -> Array:
    """The nearest of 2^bits equally spaced numbers from low to high."""
    places = 2.0**bits - 1
    return np.asarray(low + np.clip(np.rint((x - low) / (high - low) * places), 0, places) / places * (high - low))


def _answer(head: TokenHead, query: Array, tokens: Array, top: float, log_total: float, averages: Array) -> Array:
    """The head's average over Bob's tokens and the part Alice described."""
    logits = tokens @ head.key @ (head.query.T @ query)
    most = max(float(logits.max()), top)
    weights = np.exp(logits - most)
    part = float(np.exp(top + log_total - most))
    return np.asarray((weights @ (tokens @ head.value) + part * averages) / (weights.sum() + part))
