"""The weights of a token network as one vector in units in which its tokens are of size 1, and back.

    Z' = Z / scales,    W_Q' = scales W_Q,    W_O' = W_O / scales,    C' = scales C / scales,    R' = scales R / size

The scales are powers of two, so the change of units is exact. A random start, in these units: W_Q and W_K normal over
√width and the fourth root of the rank (logits of size 1), W_V normal over √width, W_O normal over √(values · heads ·
layers), carries the identity, units as wide networks have them (He) and their outputs small, constant tokens standard
normal, the read-out normal over √width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod

import numpy as np

from attnfun.learn.weights import Part, power_of_two
from attnfun.network import (
    FeedForward,
    TokenArchitecture,
    TokenHead,
    TokenLayer,
    TokenNetwork,
    TokenTransformer,
    rounded,
)
from attnfun.network.head import Array
from attnfun.network.tokens import attention_terms

Tokens = TokenNetwork | TokenTransformer


def token_layout(architecture: TokenArchitecture) -> Iterator[Part]:
    """Name and shape of every free array, in the order of the vector; the names are those of `arrays()`."""
    W = architecture.width
    for number, layer in enumerate(architecture.layers):
        for place, (r, p) in enumerate(layer.heads):
            here = f"layer{number}/head{place}"
            yield f"{here}/query", (W, r)
            yield f"{here}/key", (W, r)
            yield f"{here}/value", (W, p)
            yield f"{here}/output", (p, W)
        if layer.carry:
            yield f"layer{number}/carry", (W, W)
        if layer.ffn:
            yield f"layer{number}/ffn/inner", (W, layer.ffn)
            yield f"layer{number}/ffn/bias", (layer.ffn,)
            yield f"layer{number}/ffn/outer", (layer.ffn, W)
    yield "constants", (architecture.constants, W)
    yield "readout", (W, len(architecture.outputs))


def token_scales(tokens: Array) -> Array:
    """(width,) a power of two near the largest entry of each coordinate of given tokens; 1 where all are 0."""
    size = np.abs(tokens).max(axis=tuple(range(tokens.ndim - 1)))
    return np.where(size > 0, power_of_two(np.where(size > 0, size, 1.0)), 1.0)


def in_units(name: str, array: Array, scales: Array, size: float, back: bool = False) -> Array:
    """An array in the units of the vector, or `back` in those of the network."""
    kind = name.rsplit("/", 1)[-1]
    up, down = (1 / scales, scales) if back else (scales, 1 / scales)
    if kind in ("query", "key", "value", "inner"):
        return array * up[:, None]
    if kind in ("output", "outer", "constants"):
        return array * down
    if kind == "carry":
        return array * up[:, None] * down
    return array * up[:, None] * (size if back else 1 / size) if kind == "readout" else array


def token_vector(network: Tokens, scales: Array, size: float) -> Array:
    """The weights of a network in these units."""
    arrays = dict(network.arrays())
    parts = [in_units(name, arrays[name], scales, size).reshape(-1) for name, _ in token_layout(network.architecture)]
    return np.concatenate(parts)


def tokens_of(architecture: TokenArchitecture, vector: Array, scales: Array, size: float) -> Tokens:
    """The network with these weights, in its dtype; InvalidRequest where a weight is not finite."""
    arrays, start = dict[str, Array](), 0
    for name, shape in token_layout(architecture):
        own = vector[start : start + prod(shape)].reshape(shape)
        with np.errstate(all="ignore"):
            arrays[name] = rounded(in_units(name, own, scales, size, back=True), architecture.dtype)
        start += prod(shape)
    layers, blocks = [], list[FeedForward | None]()
    for number, layer in enumerate(architecture.layers):
        heads = [
            TokenHead("learned", *(arrays[f"layer{number}/head{k}/{part}"] for part in _PARTS))
            for k in range(len(layer.heads))
        ]
        layers.append(TokenLayer(tuple(heads), arrays.get(f"layer{number}/carry")))
        here = f"layer{number}/ffn"
        blocks.append(
            FeedForward(*(arrays[f"{here}/{part}"] for part in ("inner", "bias", "outer"))) if layer.ffn else None
        )
    plain = TokenNetwork(
        architecture.coordinates,
        tuple(layers),
        arrays["constants"],
        arrays["readout"],
        architecture.outputs,
        architecture.dtype,
    )
    return TokenTransformer(plain, tuple(blocks)) if architecture.has_units else plain


_PARTS = ("query", "key", "value", "output")


def random_tokens(architecture: TokenArchitecture, scales: Array, size: float, seed: int) -> Tokens:
    """A network of this shape; the same seed gives the same bits."""
    rng, W, depth, parts = np.random.default_rng([seed, 0]), architecture.width, len(architecture.layers), []
    for name, shape in token_layout(architecture):
        kind = name.rsplit("/", 1)[-1]
        if kind == "carry":
            parts.append(np.eye(W).reshape(-1))
            continue
        heads = len(architecture.layers[int(name[5 : name.index("/")])].heads) if "/" in name else 1
        spread = {
            "query": W**-0.5 * shape[-1] ** -0.25,
            "key": W**-0.5 * shape[-1] ** -0.25,
            "value": W**-0.5,
            "output": (shape[0] * heads * depth) ** -0.5 if shape[0] else 0.0,
            "inner": (2 / W) ** 0.5,
            "bias": 0.0,
            "outer": (shape[0] * depth) ** -0.5 if shape[0] else 0.0,
            "constants": 1.0,
            "readout": W**-0.5,
        }[kind]
        parts.append(spread * rng.standard_normal(shape).reshape(-1))
    return tokens_of(architecture, np.concatenate(parts), scales, size)


def token_norms(network: Tokens) -> tuple[float | None, float | None, float]:
    """Mean and largest spectral norm of W_Q W_Kᵀ over the heads (an inverse temperature), largest entry of W_V W_O."""
    plain = network.attention
    if not plain.heads:
        return None, None, 0.0
    norms, value = [], 0.0
    for head in plain.heads:
        small = head.product
        finite = bool(np.isfinite(small).all())  # of anything else LAPACK complains on the terminal
        norms.append(float(np.linalg.norm(small, 2)) if finite else math.inf)
        value = max(value, float(np.abs(head.value @ head.output).max()))
    return float(np.mean(norms)), max(norms), value


def token_effective_keys(network: Tokens, tokens: Array) -> float | None:
    """exp(entropy) of the attention weights, averaged over given tokens and heads; None with ReLU units between."""
    if isinstance(network, TokenTransformer) or not network.heads:
        return None
    Z, n, counts = network.joined(network.given(tokens)), tokens.shape[1], []
    for layer, state in zip(network.layers, network.states(Z), strict=False):
        for head in layer.heads:
            terms = attention_terms(head, state)[:, :n].astype(np.float64)
            weights = terms / terms.sum(axis=2, keepdims=True)
            entropy = -np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=2)
            counts.append(float(np.exp(entropy).mean()))
    return float(np.mean(counts))
