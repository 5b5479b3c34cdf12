"""The weights of a token network as one vector in units in which its tokens are of size 1, and back.

    Z' = Z / scales,    W_Q' = scales W_Q,    W_O' = W_O / scales,    C' = scales C / scales,    R' = scales R / size

The scales are powers of two, so the change of units is exact. A random start, in these units: W_Q and W_K normal over
√width and the fourth root of the rank (logits of size 1), W_V normal over √width, W_O normal over √(values · heads ·
layers), carries the identity, units as wide networks have them (He) and their outputs small, constant tokens standard
normal, the read-out normal over √width.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.learn.descend import descend, generator, one_torch_thread, require_torch
from attnfun.learn.probe import effective
from attnfun.learn.weights import joined, power_of_two, split
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
    arrays = {name: in_units(name, own, scales, size) for name, own in network.arrays()}
    return joined(network.architecture, arrays)


def tokens_of(architecture: TokenArchitecture, vector: Array, scales: Array, size: float) -> Tokens:
    """The network with these weights, in its dtype; InvalidRequest where a weight is not finite."""
    with np.errstate(all="ignore"):
        arrays = {
            name: rounded(in_units(name, own, scales, size, back=True), architecture.dtype)
            for name, own in split(architecture, vector).items()
        }

    def made(cls: Any, here: str, *name: str) -> Any:
        return cls(*name, *(arrays[f"{here}/{field.name}"] for field in fields(cls) if field.type == "Array"))

    layers, blocks = [], []
    for number, layer in enumerate(architecture.layers):
        here = f"layer{number}"
        heads = tuple(made(TokenHead, f"{here}/head{k}", "learned") for k in range(len(layer.heads)))
        layers.append(TokenLayer(heads, arrays.get(f"{here}/carry")))
        blocks.append(made(FeedForward, f"{here}/ffn") if layer.ffn else None)
    names, ends = (architecture.coordinates, architecture.outputs), (arrays["constants"], arrays["readout"])
    plain = TokenNetwork(names[0], tuple(layers), *ends, names[1], architecture.dtype)
    return TokenTransformer(plain, tuple(blocks)) if architecture.has_units else plain


def random_tokens(architecture: TokenArchitecture, scales: Array, size: float, seed: int) -> Tokens:
    """A network of this shape; the same seed gives the same bits."""
    rng, W, depth, parts = np.random.default_rng([seed, 0]), architecture.width, len(architecture.layers), []
    for name, shape in architecture.layout():
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
            counts.append(float(effective(terms / terms.sum(axis=2, keepdims=True)).mean()))
    return float(np.mean(counts))


def fit_sample(
    architecture: TokenArchitecture,
    tokens: Array,
    values: Array,
    *,
    steps: int,
    seed: int,
    lr: float = 3e-3,
    batch: int = 64,
    shared: bool = False,
) -> Tokens:
    """Adam on the mean squared error of (samples, n, width) tokens against (samples, read, outputs) values.

    For studies whose targets are dear to draw anew at every step: `af.train` draws fresh token matrices and looks at a
    probe a hundred times; here the sample is given, and nothing is looked at on the way.

    The last `read` tokens are read. `shared` gives all layers, which must have one shape, the same weights. Where
    weights stop being finite the start is returned. The same seed gives the same bits on one machine.
    """
    torch = require_torch()
    depth = len(architecture.layers)
    if shared and len(set(architecture.layers)) != 1:
        raise InvalidRequest("layers that share their weights have one shape")
    with one_torch_thread():
        from attnfun.learn.torch_tokens import run

        scales, size = token_scales(tokens), float(power_of_two(float(np.abs(values).max()) or 1.0))
        origin = random_tokens(architecture, scales, size, seed)
        kind = getattr(torch, architecture.dtype)
        Z, Y = torch.tensor(tokens / scales, dtype=kind), torch.tensor(values / size, dtype=kind)
        begin = torch.tensor(token_vector(origin, scales, size), dtype=kind)
        block = architecture.layers[0].weights(architecture.width)
        if shared:
            begin = torch.cat([begin[:block], begin[depth * block :]])
        free = begin.clone().requires_grad_(True)

        def whole() -> Any:
            return torch.cat([free[:block]] * depth + [free[block:]]) if shared else free

        def loss(step: int) -> Any:
            at = torch.randint(len(Z), (batch,), generator=generator(seed, 1, step))
            out = run(architecture, whole(), Z[at])[:, -Y.shape[1] :]
            return torch.mean((out - Y[at]) ** 2)

        descend([free], loss, steps=steps, lr=lr)
        final = whole().detach().numpy().astype(np.float64)
    return tokens_of(architecture, final, scales, size) if np.isfinite(final).all() else origin
