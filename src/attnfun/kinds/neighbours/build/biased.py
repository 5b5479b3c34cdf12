"""A biased half-space, sign(⟨z, y⟩ − b), by one head of full rank and a positional bias.

Statement. Tokens z and y, and a constant token. One head at y: logits β⟨z, y⟩ at z and βb at the constant token, which
a positional coordinate carries; y itself is shut out; values +1 and −1. It puts out tanh(β(⟨z, y⟩ − b)/2), and for
independent uniform z, y the relative error of sign(⟨z, y⟩ − b) is exactly 4 E σ(−β|t − b|)², t of density f.

Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) treat biased targets with positional encodings; this form and
its error are derived here. Heads of lower rank: `limits.separation.rank` with the same bias.
Size: 1 layer, 1 head of rank d + 1 (entries, and one column for bias and mask), 1 constant token.
Bound (proved, real arithmetic): `bounds.biased_error`; to first order in 1/β it is 4 (2 ln 2 − 1) f(b)/β.
Failure mode: |b| ≥ 1 leaves nothing to decide and is refused.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.bounds import LOSS, biased_error
from attnfun.kinds.neighbours.prediction import Prediction
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.network.blocks import GAP, Stream

_LOSS = 4 * LOSS


def build(dim: int, bias: float, beta: float) -> TokenNetwork:
    stream = Stream(dim, "xq", ("query", "one", "anchor", "answer"))
    query, key = np.zeros((2, stream.width, dim + 1))
    at = stream.at("q1")
    query[at : at + dim, :dim], key[:dim, :dim] = beta * np.eye(dim), np.eye(dim)
    query[stream.at("one"), dim] = 1.0
    key[stream.at("anchor"), dim] = beta * bias
    key[stream.at("query"), dim] = -(2 * beta + GAP)
    value, output = np.zeros((stream.width, 1)), np.zeros((1, stream.width))
    value[stream.at("one"), 0], value[stream.at("anchor"), 0] = 1.0, -2.0
    output[0, stream.at("answer")] = 1.0
    anchor = np.zeros((1, stream.width))
    anchor[0, [stream.at("one"), stream.at("anchor")]] = 1.0
    layer = TokenLayer((TokenHead("half-space", query, key, value, output),))
    return TokenNetwork(stream.names, (layer,), anchor, output.T, ("sign",))


def predict(dim: int, bias: float, beta: float) -> Prediction:
    error, doubt = sphere.mean(dim, lambda t: 4 * special.expit(-beta * np.abs(t - bias)) ** 2, bias, 0.1 / beta)
    first = _LOSS * float(sphere.density(dim, np.array([bias]))[0]) / beta
    return Prediction(
        error=error,
        uncertainty=doubt,
        proved=biased_error(dim, beta),
        accuracy=1.0,
        how="the exact integral, by quadrature (uncertainty: what fewer nodes change)",
        details={"beta": beta, "first_order": first},
    )


def beta_for(dim: int, eps: float) -> float:
    return _LOSS * sphere.peak(dim) / eps * (1 + 1e-6)
