"""One layer of standard softmax attention with free weights, trained to mark tokens that pairs or triples complete.

Tokens are residues mod M with a free embedding each; a token attends to all tokens and a null; an MLP reads the token
and what H heads of rank r and value width r brought. The task is Match2 or Match3 at every token. Sets are drawn so
that both answers are common (`fair_modulus`). Torch is imported when a function is called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from attnfun.learn.descend import descend, generator, one_torch_thread, require_torch


@dataclass(frozen=True)
class Layer:
    """What is trained: `order` 2 or 3, N tokens of Z_M, H heads of rank and value width r; `width` of embedding, MLP."""

    order: int
    tokens: int
    modulus: int
    heads: int
    rank: int
    steps: int
    width: int = 32
    hidden: int = 64
    batch: int = 128
    rate: float = 1e-2
    samples: int = 4000


def fair_modulus(order: int, tokens: int) -> int:
    """The modulus at which about half of the tokens of a random set have a match: 1 − e^{−N^{order−1}/(c M)} = ½."""
    sets = tokens if order == 2 else tokens * (tokens + 1) / 2
    return max(3, round(sets / math.log(2)))


def trained_accuracy(layer: Layer, seed: int) -> tuple[float, float, float]:
    """(balanced accuracy on fresh sets, its standard error, share of tokens with a match)."""
    torch = require_torch()
    M, r, H, w = layer.modulus, layer.rank, layer.heads, layer.width
    with one_torch_thread():
        source = generator(seed, 5)

        def drawn(*shape: int, fan: int) -> Any:
            return (torch.randn(shape, generator=source) * fan**-0.5).requires_grad_()

        embedding, null = drawn(M, w, fan=1), drawn(1, w, fan=1)
        Q, K, V = (drawn(H, w, r, fan=w) for _ in range(3))
        first, second = drawn(w + H * r, layer.hidden, fan=w + H * r), drawn(layer.hidden, layer.hidden, fan=layer.hidden)
        last = drawn(layer.hidden, 1, fan=layer.hidden)
        shifts = [torch.zeros(layer.hidden, requires_grad=True) for _ in range(2)] + [torch.zeros(1, requires_grad=True)]

        def scores(x: Any) -> Any:
            tokens = embedding[x]
            keys = torch.cat([tokens, null.expand(len(x), 1, w)], dim=1)
            q, k, v = (torch.einsum("bnw,hwr->bhnr", t, m) for t, m in ((tokens, Q), (keys, K), (keys, V)))
            heads = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
            seen = torch.cat([tokens, heads.transpose(1, 2).flatten(2)], dim=-1)
            inner = torch.nn.functional.gelu(seen @ first + shifts[0])
            inner = torch.nn.functional.gelu(inner @ second + shifts[1])
            return (inner @ last + shifts[2])[..., 0]

        def loss(step: int) -> Any:
            x = torch.randint(M, (layer.batch, layer.tokens), generator=generator(seed, 6, step))
            wanted = _matches(torch, x, M, layer.order).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(scores(x), wanted)

        weights = [embedding, null, Q, K, V, first, second, last, *shifts]
        losses = descend(weights, loss, steps=layer.steps, lr=layer.rate)
        if not math.isfinite(losses[-1]):
            return math.nan, math.nan, math.nan
        x = torch.randint(M, (layer.samples, layer.tokens), generator=generator(seed, 7))
        wanted = _matches(torch, x, M, layer.order)
        with torch.no_grad():
            right = ((scores(x) > 0) == wanted).double()
        yes, no = right[wanted], right[~wanted]
        balanced = float((yes.mean() + no.mean()) / 2)
        spread = math.sqrt(sum(float(p.var()) / len(p) for p in (yes, no))) / 2
        return balanced, spread, float(wanted.double().mean())


def _matches(torch: Any, x: Any, modulus: int, order: int) -> Any:
    """(batch, N) residues → whether some x_j (and x_k), not necessarily different, complete x_i to 0 mod M."""
    sums = (x[:, :, None] + x[:, None]) % modulus
    if order == 2:
        return (sums == 0).any(dim=-1)
    there = torch.zeros((len(x), modulus), dtype=torch.bool)
    there.scatter_(1, sums.flatten(1), torch.ones(sums.flatten(1).shape, dtype=torch.bool))
    return there.gather(1, (modulus - x) % modulus)
